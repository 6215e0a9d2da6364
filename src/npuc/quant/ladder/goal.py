"""Climbing to an accuracy: no further than the metric asks, and by the way that costs the fewest cycles.

The steps that cost no cycles come first, each until the drop is met. Then types are mixed: the points of the frontier are
measured for the cheapest that meets it (above the network so far if it does not, below it if it does), and what
that point gives to single units is taken back where the metric does not mind. Of all networks that meet the drop, the one
with the fewest cycles wins, if it meets the drop on the samples that are held back too; if not, the next that promises more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from npuc.errors import QuantizationError
from npuc.quant.ladder.climb import attempt, chosen
from npuc.quant.ladder.search import TypeSearch
from npuc.quant.ladder.way import Check, Climb, Goal, Stop, Way
from npuc.quant.ladder.workshop import Candidate, Workshop
from npuc.quant.mixed_precision.prices import Prices

MIXED = "mixed"


def climb_to(
    shop: Workshop,
    goal: Goal,
    prices: Prices,
    start: Candidate,
    names: Sequence[str] | None = None,
    *,
    report: Callable[[Stop | Check], None] = lambda stop: None,
    passed: Callable[[str], None] = lambda text: None,
    points: int = 0,
) -> Climb:
    """The network of the fewest cycles that loses no more than the goal allows.

    `report` hears of every network that is measured or checked, `passed` of steps that gave none; `points` more of the
    frontier are measured for a picture of it. A goal that is out of reach is a `QuantizationError`.
    """
    way = Way(goal, prices, report)
    entries = chosen(names)
    now = way.measured("default", start)
    for entry in entries:
        if entry.name == MIXED or way.is_good(now):
            continue
        begun = time.perf_counter()
        rung, found = attempt(entry, now.candidate, shop)
        if found is None:
            passed(str(rung))
        else:
            now = way.measured(entry.name, found, begun)
    search = None
    if any(entry.name == MIXED for entry in entries):
        way.is_good(now)  # which says where to search
        search = TypeSearch(way, now, shop)
        search.cheapest()
        if points:
            search.more(points)
    best = way.best()
    if best is None and search is not None:
        best = next((stop for stop in search.beyond() if way.is_good(stop)), None)
    if best is None:
        raise _out_of_reach(way, [entry.name for entry in entries])
    return Climb(best, tuple(way.stops), tuple(way.checks))


def _out_of_reach(way: Way, steps: Sequence[str]) -> QuantizationError:
    goal, stops = way.goal, way.stops
    best = min(stops, key=lambda stop: (not way.may_be_good(stop), stop.lost, stop.price))
    levers = ["Allow more", "calibrate with more and more typical samples"]
    held = ""
    if way.checks:
        check = min(way.checks, key=lambda one: (one.loss.value, one.stop.price))
        best = check.stop
        held = (
            f" on the {goal.samples} samples that steer, and {goal.shown(check.loss.value)} ± "
            f"{goal.shown(check.loss.spread)} on the {goal.held_back} that are held back"
        )
        levers.append("label more samples")
    cycles = "" if best.cycles is None else f", for {best.cycles:,} cycles on {way.prices.machine}"
    if MIXED not in steps:
        levers.append(
            "add the step 'mixed' (--ladder all), which gives more bits to the layers that need them"
        )
    elif best.words != "default":
        levers.append("train the network with its quantization")
    if "round" not in steps:
        levers.append("add the step 'round'")
    return QuantizationError(
        f"{goal.metric} loses {goal.shown(best.lost)}{goal.unit}{held} at best ({goal.shown(best.figure)} instead of "
        f"{goal.shown(goal.exact)}, "
        f"by '{best.words}'{cycles}), and {goal.drop:g}{goal.unit} may be lost: {len(stops)} networks were measured",
        fix=", or ".join(levers),
    )
