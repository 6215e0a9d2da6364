"""Quantization to an accuracy goal: the network with the fewest cycles whose metric drops no more than allowed.

Steps that cost no cycles run first, until the goal is met. Then mixed precision: points of the frontier are measured to find
the cheapest one that meets the goal (more expensive than the network so far if that misses the goal, cheaper if it meets it),
and wider types that the metric does not need are removed again. Of all networks that meet the goal, the one with the fewest
cycles is chosen if it also meets the goal on the held-back samples; if not, the next better one is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from npuc.errors import QuantizationError
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.measurements import Goal, GoalCheck, GoalResult, Measurement, MeasurementLog
from npuc.quant.ladder.search import TypeSearch
from npuc.quant.ladder.sequence import attempt, chosen
from npuc.quant.mixed_precision.cost_model import CostModel

MIXED = "mixed"


def search_goal(
    context: QuantizationContext,
    goal: Goal,
    cost_model: CostModel,
    start: Candidate,
    names: Sequence[str] | None = None,
    *,
    report: Callable[[Measurement | GoalCheck], None] = lambda measurement: None,
    passed: Callable[[str], None] = lambda text: None,
    points: int = 0,
    default: Candidate | None = None,
) -> GoalResult:
    """The network with the fewest cycles that loses no more than the goal allows.

    `default` is what the default makes of `start` by its own quick steps, if it needs any. The metric decides what steps go on
    from: one that is closer to float in decibels and loses more of the metric is measured and left out.

    `report` is called for every network that is measured or checked, `passed` for steps that proposed none. `points` further
    points of the frontier are measured for a plot. A goal that is out of reach raises a `QuantizationError`.
    """
    log = MeasurementLog(goal, cost_model, report)
    entries = chosen(names)
    now = log.measured("default", start)
    if default is not None and default.quantized is not start.quantized and not log.is_good(now):
        now = _less_lost(now, log.measured("default with its quick steps", default))
    for entry in entries:
        if entry.name == MIXED or log.is_good(now):
            continue
        begun = time.perf_counter()
        step_result, proposed = attempt(entry, now.candidate, context)
        if proposed is None:
            passed(str(step_result))
        else:
            now = _less_lost(now, log.measured(entry.name, proposed, begun))
    search = None
    if any(entry.name == MIXED for entry in entries):
        log.is_good(now)  # the check decides where to search
        search = TypeSearch(log, now, context)
        search.cheapest()
        if points:
            search.more(points)
    best = log.best()
    if best is None and search is not None:
        best = next((measurement for measurement in search.beyond() if log.is_good(measurement)), None)
    if best is None:
        raise _out_of_reach(log, [entry.name for entry in entries])
    return GoalResult(best, tuple(log.measurements), tuple(log.checks))


def _less_lost(before: Measurement, after: Measurement) -> Measurement:
    """The later of two measurements, unless it loses more of the metric."""
    return before if after.lost > before.lost else after


def _out_of_reach(log: MeasurementLog, steps: Sequence[str]) -> QuantizationError:
    goal, measurements = log.goal, log.measurements
    best = min(
        measurements,
        key=lambda measurement: (
            not log.may_be_good(measurement),
            measurement.lost,
            measurement.cycles_or_inf,
        ),
    )
    levers = ["Allow more", "calibrate with more and more typical samples"]
    held = ""
    if log.checks:
        check = min(
            log.checks, key=lambda candidate: (candidate.loss.value, candidate.measurement.cycles_or_inf)
        )
        best = check.measurement
        held = (
            f" on the {goal.samples} samples that steer, and {goal.shown(check.loss.value)} ± "
            f"{goal.shown(check.loss.spread)} on the {goal.held_back} that are held back"
        )
        levers.append("label more samples")
    cycles = "" if best.cycles is None else f", for {best.cycles:,} cycles on {log.cost_model.machine}"
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
        f"by '{best.words}'{cycles}), and {goal.drop:g}{goal.unit} may be lost: {len(measurements)} networks were measured",
        fix=", or ".join(levers),
    )
