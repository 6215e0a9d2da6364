"""The Pareto frontier of choosing one option for each unit, with the least total noise and cost.

Noises add up, and so do costs. The units are added one by one to the combinations of those before, and combinations that are
worse than another in both are dropped, because they cannot be part of an optimum (Nemhauser and Ullmann). The result is the
exact frontier. If it grows beyond a limit, it is thinned, and `exact` is False.

Example: two units with the options (noise 4, cost 1) or (1, 3), and (2, 1) or (1, 9), give the points (6, 2), (3, 4) and
(2, 12); the combination (5, 10) is dropped, because (3, 4) is better in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array

MOST = 100_000
"""The largest number of combinations that are kept."""


@dataclass(frozen=True)
class Option:
    """One way to compute a unit."""

    noise: float
    cost: float
    pick: Any = None
    """The choice that the option represents."""


@dataclass(frozen=True)
class Frontier:
    """The Pareto-optimal combinations, by rising cost and falling noise."""

    noise: Array
    cost: Array
    exact: bool
    units: tuple[tuple[Option, ...], ...]
    _stages: tuple[tuple[Array, Array], ...]
    """For each unit and each combination after it: the combination before it, and the option."""

    def __len__(self) -> int:
        return len(self.cost)

    def options(self, point: int) -> list[Option]:
        """The option of every unit in a combination."""
        options: list[Option] = []
        for unit, (before, option) in zip(reversed(self.units), reversed(self._stages), strict=True):
            options.append(unit[int(option[point])])
            point = int(before[point])
        return options[::-1]

    def picks(self, point: int) -> list[Any]:
        """The choices of all units in a combination."""
        return [option.pick for option in self.options(point)]

    def cheapest(self, noise: float) -> int | None:
        """The cheapest combination with at most this noise; None if there is none."""
        good = np.flatnonzero(self.noise <= noise)
        return int(good[0]) if good.size else None

    def quietest(self, cost: float) -> int | None:
        """The combination with the least noise and at most this cost; None if there is none."""
        good = np.flatnonzero(self.cost <= cost)
        return int(good[-1]) if good.size else None


def frontier(units: Sequence[Sequence[Option]], most: int = MOST) -> Frontier:
    """The Pareto-optimal combinations of the options of all units.

    >>> best = frontier([[Option(4, 1), Option(1, 3)], [Option(2, 1), Option(1, 9)]])
    >>> list(best.cost), list(best.noise)
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
    """The indices of the Pareto-optimal points, by rising cost; the first of equal points."""
    order = np.lexsort((noise, cost))
    least = np.minimum.accumulate(noise[order])
    better = np.ones(len(order), bool)
    better[1:] = noise[order][1:] < least[:-1]
    undominated: Array = order[better]
    return undominated
