"""What goes into memory planning and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Buffer:
    """A block of memory that is in use in [start, end).

    `fixed` is an address that it must have; `bank` is a bank that it must lie in as a whole.

    >>> Buffer("x", size=4096, start=0, end=3, alignment=64).size
    4096
    """

    name: str
    size: int
    start: int
    end: int
    alignment: int = 1
    fixed: int | None = None
    bank: int | None = None


@dataclass(frozen=True, slots=True)
class Banks:
    """Memory in banks of `size` bytes each, and pairs of buffers that should have no bank in common."""

    size: int
    apart: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Addresses, and how good they are.

    `size` is the end of the highest buffer. No plan can be smaller than `lower_bound`; `proven` says that none is smaller
    than this one. `method` is how it was found. `shared` names the pairs of buffers that have a bank in common though they
    should not.
    """

    buffers: tuple[Buffer, ...]
    addresses: Mapping[str, int]
    size: int
    lower_bound: int
    proven: bool
    method: str
    shared: tuple[tuple[str, str], ...] = ()
