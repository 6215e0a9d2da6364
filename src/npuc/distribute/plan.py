"""What travels to workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Chunk = tuple[int, Any]
"""A number, by which its results are known, and what is to be worked on."""


class WorkPlan(Protocol):
    """All that a result depends on beside its chunk, as data that can be pickled."""

    @property
    def key(self) -> str:
        """What tells it from other plans, from one run to the next."""

    @property
    def fix(self) -> str:
        """What a user may do where a chunk ends every process that takes it."""

    def open(self) -> Callable[[Any], Any]:
        """What runs chunks in this process: files are read here, once."""

    def describe(self, work: Any) -> str:
        """A chunk in words, behind `on the`."""
