"""The search for types along the frontier of noise and cycles, by the metric of the goal.

A metric is coarse and slow to measure, so few points are measured: from the cheap end in steps that double, then by bisection.
Wider types of single units are then removed again where the metric does not need them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from npuc.arrays import Array
from npuc.quant.ladder.context import QuantizationContext
from npuc.quant.ladder.measurements import Measurement, MeasurementLog
from npuc.quant.mixed_precision.frontier import Option
from npuc.quant.mixed_precision.mixing import Mixer, Pick, describe

_APART = 0.5
"""The distance in decibels between the points of the frontier that are considered."""
_STRIDE = 0.02
"""The first step of the search, as a share of the network's cycles."""
_TAKEN_BACK = 8
"""The largest number of units whose wider types are tried without."""
_SAVING = 0.01
"""The share of cycles that a cheaper network has to save to be worth its noise."""


class TypeSearch:
    """The frontier of a network, and the points of it that were measured."""

    def __init__(self, log: MeasurementLog, base: Measurement, context: QuantizationContext) -> None:
        self._log, self._base = log, base
        self._mixer = Mixer(base.candidate, context, log.cost_model)
        self._tried: dict[int, Measurement] = {}

    def cheapest(self) -> None:
        """Search the cheapest point that meets the goal: cheaper than the network so far if that meets it, else above."""
        frontier, own = self._mixer.frontier, self._mixer.base_cost
        cheapest = first_that_meets(
            self._places(),
            lambda place: float(frontier.cost[place]) / own,
            lambda place: self._log.may_be_good(self._measurement(place)),
        )
        if cheapest is not None:
            self._take_back(frontier.options(cheapest), self._measurement(cheapest))

    def beyond(self) -> Iterator[Measurement]:
        """Points with less noise than all that were measured, at growing distances."""
        places = self._places()
        index = 1 + max((places.index(place) for place in self._tried if place in places), default=-1)
        stride = 1
        while index < len(places):
            yield self._measurement(places[index])
            if index == len(places) - 1:
                return
            index, stride = min(index + stride, len(places) - 1), 2 * stride

    def more(self, points: int) -> None:
        """Measure points for a plot, except those that cost ten times as much because layers run on the CPU."""
        frontier, own = self._mixer.frontier, self._mixer.base_cost
        near = [
            place
            for place in _apart(np.arange(len(frontier)), frontier.noise)
            if frontier.cost[place] <= 10 * own
        ]
        for index in sorted({int(i) for i in np.linspace(0, len(near) - 1, points)}) if near else ():
            self._measurement(near[index])

    def _places(self) -> list[int]:
        """The points that are worth measuring."""
        frontier, own = self._mixer.frontier, self._mixer.base_cost
        good = self._log.may_be_good(self._base)
        worth = frontier.cost < -_SAVING * own if good else frontier.cost >= -_SAVING * own
        return _apart(np.flatnonzero(worth), frontier.noise)

    def _measurement(self, point: int) -> Measurement:
        if point not in self._tried:
            begun, picks = time.perf_counter(), self._mixer.frontier.picks(point)
            same = all(pick.is_own for pick in picks)
            self._tried[point] = (
                self._base
                if same
                else self._log.measured(describe(picks), self._mixer.candidate(picks), begun)
            )
        return self._tried[point]

    def _take_back(self, options: Sequence[Option], best: Measurement) -> None:
        """Try to give units their own types back, those with the highest cost first."""
        picks: list[Pick] = [option.pick for option in options]
        by_cost = sorted(
            (i for i, candidate in enumerate(options) if candidate.cost > 0), key=lambda i: -options[i].cost
        )
        for index in by_cost[:_TAKEN_BACK]:
            fewer = list(picks)
            fewer[index] = Pick(picks[index].unit, "own")
            begun = time.perf_counter()
            words = f"without {picks[index].unit.name}"
            measurement = self._log.measured(words, self._mixer.candidate(fewer), begun)
            if measurement.met and measurement.cycles_or_inf < best.cycles_or_inf:
                picks, best = fewer, measurement


def first_that_meets(
    places: Sequence[int], cost: Callable[[int], float], met: Callable[[int], bool]
) -> int | None:
    """The first place that meets the goal, assuming that all later ones do: by steps that double, then by bisection.

    The search starts at the cheap end, because the metric is coarse and the answer should be there.
    """
    low, high, reach = 0, len(places), _STRIDE
    while low < high:
        index = max((i for i in range(low, high) if cost(places[i]) <= cost(places[0]) + reach), default=low)
        if met(places[index]):
            high = index
            break
        low, reach = index + 1, 2 * reach
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if met(places[middle]) else (middle + 1, high)
    return places[low] if low < len(places) else None


def _apart(points: Array, noise: Array) -> list[int]:
    """Points whose noise differs by at least `_APART` decibels, including both ends."""
    kept: list[int] = []
    for point in points:
        if not kept or noise[point] <= noise[kept[-1]] * 10 ** (-_APART / 10):
            kept.append(int(point))
    if len(points) and kept[-1] != points[-1]:
        kept.append(int(points[-1]))
    return kept
