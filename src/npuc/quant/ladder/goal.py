"""Climbing to an accuracy: no further than the metric asks, and by the way that costs the fewest cycles.

The steps that cost no cycles come first, each until the drop is met. Then types are mixed: the points of the frontier are
measured for the cheapest that meets it (above the network so far if it does not, below it if it does), and what
that point gives to single units is taken back where the metric does not mind. Of all networks that meet the drop, the one
with the fewest cycles wins. The same data chooses and measures, so the figure of the winner flatters it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.errors import QuantizationError
from npuc.ir import Graph
from npuc.quant.ladder.climb import WORTH, chosen
from npuc.quant.ladder.workshop import Candidate, Workshop
from npuc.quant.mixed_precision.frontier import Option
from npuc.quant.mixed_precision.mixing import Mixer, Pick, describe
from npuc.quant.mixed_precision.prices import Prices

Array = np.ndarray[Any, Any]

MIXED = "mixed"
POINTS = " points"
"""The unit of differences of shares."""
_APART = 0.5
"""Decibels between the points of the frontier that are looked at."""
_STRIDE = 0.02
"""Part of the network's cycles that the search goes further at first."""
_TAKEN_BACK = 8
"""Units that are tried without what they were given, at most."""
_SAVING = 0.01
"""Part of the cycles that a cheaper network has to save to be worth its noise."""


@dataclass(frozen=True)
class Goal:
    """How much of a metric may be lost."""

    measure: Callable[[Graph], float]
    """The figure of an integer network."""
    exact: float
    """That of the float network."""
    drop: float
    metric: str = "the metric"
    unit: str = ""
    lower_is_better: bool = False

    def lost(self, figure: float) -> float:
        """What a figure is worse than float."""
        return (figure - self.exact if self.lower_is_better else self.exact - figure) + 0.0

    def shown(self, value: float, sign: str = "") -> str:
        """A figure, or a difference, in as many digits as it needs."""
        return f"{value:{sign}.2f}" if self.unit == POINTS else f"{value:{sign}.5g}"

    def met_by(self, figure: float) -> bool:
        """Whether that is allowed; sums of rounded shares are."""
        return self.lost(figure) <= self.drop + 1e-9


@dataclass(frozen=True)
class Stop:
    """A network that was measured on the way."""

    words: str
    figure: float
    lost: float
    met: bool
    cycles: int | None
    """None if it does not compile."""
    seconds: float
    candidate: Candidate = field(repr=False)

    @property
    def sqnr(self) -> float:
        """Of its outputs, in decibels."""
        return self.candidate.sqnr

    @property
    def price(self) -> float:
        """Cycles, for comparison."""
        return float("inf") if self.cycles is None else float(self.cycles)


@dataclass(frozen=True)
class Climb:
    """The way that was taken."""

    best: Stop
    stops: tuple[Stop, ...]


def climb_to(
    shop: Workshop,
    goal: Goal,
    prices: Prices,
    start: Candidate,
    names: Sequence[str] | None = None,
    *,
    report: Callable[[Stop], None] = lambda stop: None,
    passed: Callable[[str], None] = lambda text: None,
    points: int = 0,
) -> Climb:
    """The network of the fewest cycles that loses no more than the goal allows.

    `report` hears of every network that is measured, `passed` of steps that gave none; `points` more of the frontier are
    measured for a picture of it. A goal that is out of reach is a `QuantizationError`.
    """
    way = _Way(goal, prices, report)
    entries = chosen(names)
    now = way.measured("default", start)
    for entry in entries:
        if now.met or entry.name == MIXED:
            continue
        begun = time.perf_counter()
        found = entry.make().propose(now.candidate, shop)
        if found is None:
            passed(f"{entry.name}: nothing to do")
        elif found.sqnr < now.sqnr + WORTH:
            passed(f"{entry.name}: {now.sqnr:.2f} to {found.sqnr:.2f} dB, no gain, left out")
        else:
            now = way.measured(entry.name, found, begun)
    if any(entry.name == MIXED for entry in entries):
        _mix(way, now, shop, points)
    good = [stop for stop in way.stops if stop.met]
    if not good:
        raise _out_of_reach(goal, way.stops, entries, prices)
    return Climb(min(good, key=lambda stop: (stop.price, stop.lost)), tuple(way.stops))


class _Way:
    """The networks that were measured, in order."""

    def __init__(self, goal: Goal, prices: Prices, report: Callable[[Stop], None]) -> None:
        self.goal, self.prices, self.report = goal, prices, report
        self.stops: list[Stop] = []

    def measured(self, words: str, candidate: Candidate, begun: float | None = None) -> Stop:
        """Measure a network."""
        begun = time.perf_counter() if begun is None else begun
        figure, cycles = self.goal.measure(candidate.made), self.prices.network(candidate.made)
        # Types that the compiler has no instructions for are of no use, unless the network is not for this machine at all.
        runs = cycles is not None or not self.stops or self.stops[0].cycles is None
        stop = Stop(
            words,
            figure,
            self.goal.lost(figure),
            runs and self.goal.met_by(figure),
            cycles,
            time.perf_counter() - begun,
            candidate,
        )
        self.stops.append(stop)
        self.report(stop)
        return stop


def _mix(way: _Way, base: Stop, shop: Workshop, points: int) -> None:
    """Look for the cheapest point of the frontier that meets the goal."""
    mixer = Mixer(base.candidate, shop, way.prices)
    whole, own = mixer.frontier, mixer.base_cost
    tried: dict[int, Stop] = {}

    def stop_at(point: int) -> Stop:
        if point not in tried:
            begun, picks = time.perf_counter(), whole.picks(point)
            same = all(pick.is_own for pick in picks)
            tried[point] = base if same else way.measured(describe(picks), mixer.candidate(picks), begun)
        return tried[point]

    worth = whole.cost < -_SAVING * own if base.met else whole.cost >= -_SAVING * own
    places = _apart(np.flatnonzero(worth), whole.noise)
    found = _cheapest(places, lambda place: float(whole.cost[place]) / own, lambda place: stop_at(place).met)
    if found is not None:
        _take_back(way, mixer, whole.options(found), stop_at(found))
    if points:
        # What runs on the CPU is far to the right of all else.
        near = [
            place for place in _apart(np.arange(len(whole)), whole.noise) if whole.cost[place] <= 10 * own
        ]
        for index in sorted({int(i) for i in np.linspace(0, len(near) - 1, points)}) if near else ():
            stop_at(near[index])


def _cheapest(places: Sequence[int], cost: Callable[[int], float], met: Callable[[int], bool]) -> int | None:
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


def _take_back(way: _Way, mixer: Mixer, options: Sequence[Option], best: Stop) -> None:
    """Units that do not need what they were given give it back, those that cost most first."""
    picks: list[Pick] = [option.pick for option in options]
    dear = sorted((i for i, one in enumerate(options) if one.cost > 0), key=lambda i: -options[i].cost)
    for index in dear[:_TAKEN_BACK]:
        fewer = list(picks)
        fewer[index] = Pick(picks[index].unit, "own")
        begun = time.perf_counter()
        found = way.measured(f"without {picks[index].unit.name}", mixer.candidate(fewer), begun)
        if found.met and found.price < best.price:
            picks, best = fewer, found


def _out_of_reach(
    goal: Goal, stops: Sequence[Stop], entries: Sequence[object], prices: Prices
) -> QuantizationError:
    best = min(stops, key=lambda stop: (stop.lost, stop.price))
    cycles = "" if best.cycles is None else f", for {best.cycles:,} cycles on {prices.machine}"
    steps = {getattr(entry, "name", "") for entry in entries}
    levers = ["Allow more", "calibrate with more and more typical samples"]
    if MIXED not in steps:
        levers.append(
            "add the step 'mixed' (--ladder all), which gives more bits to the layers that need them"
        )
    elif best.words != "default":
        levers.append("train the network with its quantization")
    if "round" not in steps:
        levers.append("add the step 'round'")
    return QuantizationError(
        f"{goal.metric} loses {goal.shown(best.lost)}{goal.unit} at best ({goal.shown(best.figure)} instead of "
        f"{goal.shown(goal.exact)}, "
        f"by '{best.words}'{cycles}), and {goal.drop:g}{goal.unit} may be lost: {len(stops)} networks were measured",
        fix=", or ".join(levers),
    )
