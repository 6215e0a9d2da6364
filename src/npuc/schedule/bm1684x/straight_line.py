"""Calculations with one 32-bit number of each row: straight-line programs, and where their numbers lie in a lane.

A number of every row is a plane of one column. Each step makes a new plane of two others, or of another and a constant; a plane
is free again after the last step that reads it. No step writes where it reads, which would take twice as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from npuc.schedule.bm1684x.planes import Plane
from npuc.schedule.bm1684x.work import FLOOR, SHIFT, Builder, Operand, constant, shift_by

Number = str | int
"""The name of a number of every row, or a constant."""


@dataclass(frozen=True)
class Step:
    """`target = first operation second`, shifted to the right, rounded."""

    target: str
    operation: int
    first: Number
    second: Number
    right: int = 0
    rounding: int = FLOOR


@dataclass(frozen=True)
class StraightLine:
    """Steps, each of which gives a new name; `given` are there before the first, `read_after` are read after the last."""

    steps: tuple[Step, ...]
    given: tuple[str, ...]
    read_after: tuple[str, ...]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The plane of each name: one that no name holds that is still read, this step's own operands included."""
        last = {name: -1 for name in self.given}
        for number, step in enumerate(self.steps):
            last |= {name: number for name in (step.first, step.second) if isinstance(name, str)}
            last.setdefault(step.target, number)
        last |= dict.fromkeys(self.read_after, len(self.steps))
        held = {name: place for place, name in enumerate(self.given)}
        places = dict(held)
        for number, step in enumerate(self.steps):
            held = {name: place for name, place in held.items() if last[name] >= number}
            taken = set(held.values())
            places[step.target] = next(place for place in range(len(held) + 1) if place not in taken)
            held[step.target] = places[step.target]
        return places

    @property
    def planes(self) -> int:
        """How many planes it needs."""
        return max(self.places.values(), default=-1) + 1

    def emit(self, build: Builder, planes: Sequence[Plane]) -> None:
        """Its commands."""
        for step in self.steps:
            target = planes[self.places[step.target]]
            first, second = (self._operand(number, planes) for number in (step.first, step.second))
            if step.operation == SHIFT and isinstance(step.second, int):
                second = shift_by(step.second)
            build.elementwise(
                step.operation, target.shape, target.whole, first, second, right=step.right, rounding=step.rounding
            )  # fmt: skip

    def _operand(self, number: Number, planes: Sequence[Plane]) -> Operand:
        return constant(number) if isinstance(number, int) else planes[self.places[number]].whole
