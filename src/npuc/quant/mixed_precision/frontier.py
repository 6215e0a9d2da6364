"""The integer program: one option for each unit, so that noise and cost are the least; all answers at once.

Noises add up, and so do costs. Unit after unit is joined to the combinations of those before it, and combinations that
another one beats in both are dropped: none of them can be part of an answer. What remains at the end is the whole
frontier, exact (Nemhauser and Ullmann). Should it ever grow beyond bounds, it is thinned and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array

MOST = 100_000
"""Combinations that are kept from unit to unit."""


@dataclass(frozen=True)
class Option:
    """One way to compute a unit."""

    noise: float
    cost: float
    pick: Any = None
    """What it stands for."""


@dataclass(frozen=True)
class Frontier:
    """The best combinations by rising cost and falling noise."""

    noise: Array
    cost: Array
    exact: bool
    units: tuple[tuple[Option, ...], ...]
    _stages: tuple[tuple[Array, Array], ...]
    """For each unit, and each combination after it: the combination before, and the option."""

    def __len__(self) -> int:
        return len(self.cost)

    def options(self, point: int) -> list[Option]:
        """The option of every unit in a combination."""
        found: list[Option] = []
        for unit, (before, option) in zip(reversed(self.units), reversed(self._stages), strict=True):
            found.append(unit[int(option[point])])
            point = int(before[point])
        return found[::-1]

    def picks(self, point: int) -> list[Any]:
        """What the options stand for."""
        return [option.pick for option in self.options(point)]

    def cheapest(self, noise: float) -> int | None:
        """The cheapest combination with at most this noise; None if there is none."""
        good = np.flatnonzero(self.noise <= noise)
        return int(good[0]) if good.size else None

    def quietest(self, cost: float) -> int | None:
        """The combination of least noise with at most this cost; None if there is none."""
        good = np.flatnonzero(self.cost <= cost)
        return int(good[-1]) if good.size else None


def frontier(units: Sequence[Sequence[Option]], most: int = MOST) -> Frontier:
    """All combinations that no other beats.

    >>> found = frontier([[Option(4, 1), Option(1, 3)], [Option(2, 1), Option(1, 9)]])
    >>> list(found.cost), list(found.noise)
    ([2.0, 4.0, 12.0], [6.0, 3.0, 2.0])
    """
    noise, cost = np.zeros(1), np.zeros(1)
    stages: list[tuple[Array, Array]] = []
    exact = True
    for unit in units:
        assert unit, "a unit has at least one option"
        all_noise = np.add.outer(noise, [option.noise for option in unit]).ravel()
        all_cost = np.add.outer(cost, [option.cost for option in unit]).ravel()
        kept = pareto(all_noise, all_cost)
        if len(kept) > most:
            # Evenly over the frontier, both ends included.
            kept = kept[np.unique(np.linspace(0, len(kept) - 1, most).round().astype(np.int64))]
            exact = False
        noise, cost = all_noise[kept], all_cost[kept]
        stages.append((kept // len(unit), kept % len(unit)))
    return Frontier(noise, cost, exact, tuple(map(tuple, units)), tuple(stages))


def pareto(noise: Array, cost: Array) -> Array:
    """The indices of the points that no other beats, by rising cost; of equal points the first."""
    order = np.lexsort((noise, cost))
    least = np.minimum.accumulate(noise[order])
    better = np.ones(len(order), bool)
    better[1:] = noise[order][1:] < least[:-1]
    found: Array = order[better]
    return found
