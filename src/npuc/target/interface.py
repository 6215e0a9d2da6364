"""What the compiler asks of a machine, whatever describes it.

A target file is enough for machines that npuc's own instruction set drives: `DescribedMachine` answers from its data. A
chip with an instruction set of its own is a class with the same methods. Nothing else in the compiler knows which chip
it compiles for. The protocol grows with the stages that ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from npuc.target.check import Parameters, Support, support
from npuc.target.model import Target


@runtime_checkable
class Machine(Protocol):
    """A machine that npuc compiles for."""

    @property
    def description(self) -> Target:
        """Its figures."""
        ...

    def can(self, op_kind: str, parameters: Parameters) -> Support:
        """Can this op run here, natively, after a rewrite, or not, and which limit says so?"""
        ...


@dataclass(frozen=True)
class DescribedMachine:
    """A machine that a target file describes.

    >>> from npuc.target import load_target
    >>> DescribedMachine(load_target("edge-4t")).can("relu", {}).verdict
    'native'
    """

    description: Target

    def can(self, op_kind: str, parameters: Parameters) -> Support:
        """Answered by the target's limits."""
        return support(self.description, op_kind, parameters)
