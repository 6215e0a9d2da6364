"""The search for types along the frontier of noise and cycles, by the metric that is the goal.

A metric is rough and each look at it takes time, so few points are measured: from the cheap end in steps that double, then
by halves. What the point that is found gives to single units is taken back where the metric does not mind.
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
"""Decibels between the points of the frontier that are looked at."""
_STRIDE = 0.02
"""Part of the network's cycles that the search goes further at first."""
_TAKEN_BACK = 8
"""Units that are tried without what they were given, at most."""
_SAVING = 0.01
"""Part of the cycles that a cheaper network has to save to be worth its noise."""


class TypeSearch:
    """The frontier of a network, and the points of it that were measured."""

    def __init__(self, log: MeasurementLog, base: Measurement, context: QuantizationContext) -> None:
        self._log, self._base = log, base
        self._mixer = Mixer(base.candidate, context, log.cost_model)
        self._tried: dict[int, Measurement] = {}

    def cheapest(self) -> None:
        """Look for the cheapest point that meets the goal: below the network so far if that is good, else above."""
        whole, own = self._mixer.frontier, self._mixer.base_cost
        found = first_that_meets(
            self._places(),
            lambda place: float(whole.cost[place]) / own,
            lambda place: self._log.may_be_good(self._measurement(place)),
        )
        if found is not None:
            self._take_back(whole.options(found), self._measurement(found))

    def beyond(self) -> Iterator[Measurement]:
        """Points that are quieter than all that were measured, ever further away."""
        places = self._places()
        index = 1 + max((places.index(place) for place in self._tried if place in places), default=-1)
        stride = 1
        while index < len(places):
            yield self._measurement(places[index])
            if index == len(places) - 1:
                return
            index, stride = min(index + stride, len(places) - 1), 2 * stride

    def more(self, points: int) -> None:
        """Measure points for a picture; what runs on the CPU is far to the right of all else."""
        whole, own = self._mixer.frontier, self._mixer.base_cost
        near = [
            place for place in _apart(np.arange(len(whole)), whole.noise) if whole.cost[place] <= 10 * own
        ]
        for index in sorted({int(i) for i in np.linspace(0, len(near) - 1, points)}) if near else ():
            self._measurement(near[index])

    def _places(self) -> list[int]:
        """The points that are worth a look."""
        whole, own = self._mixer.frontier, self._mixer.base_cost
        good = self._log.may_be_good(self._base)
        worth = whole.cost < -_SAVING * own if good else whole.cost >= -_SAVING * own
        return _apart(np.flatnonzero(worth), whole.noise)

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
        """Units that do not need what they were given give it back, those that cost most first."""
        picks: list[Pick] = [option.pick for option in options]
        dear = sorted((i for i, one in enumerate(options) if one.cost > 0), key=lambda i: -options[i].cost)
        for index in dear[:_TAKEN_BACK]:
            fewer = list(picks)
            fewer[index] = Pick(picks[index].unit, "own")
            begun = time.perf_counter()
            words = f"without {picks[index].unit.name}"
            found = self._log.measured(words, self._mixer.candidate(fewer), begun)
            if found.met and found.price < best.price:
                picks, best = fewer, found


def first_that_meets(
    places: Sequence[int], cost: Callable[[int], float], met: Callable[[int], bool]
) -> int | None:
    """The first place that meets the goal, were they all in order: by steps that double, then by halves.

    A metric is rough, and the cheap end is where the answer should be: so the search starts there.
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
    """Points that differ by more than chance, both ends included."""
    found: list[int] = []
    for point in points:
        if not found or noise[point] <= noise[found[-1]] * 10 ** (-_APART / 10):
            found.append(int(point))
    if len(points) and found[-1] != points[-1]:
        found.append(int(points[-1]))
    return found
