"""`npuc quantize --plan`: what the steps of the ladder can be expected to give and take, printed before any of them runs."""

from __future__ import annotations

import os
from dataclasses import asdict
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuc.cli.console import Printer, size
from npuc.cli.quantization import QuantizationRequest, data_of
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.ir import Graph
    from npuc.quant.ladder.plan import Plan
    from npuc.target import Target


def print_plan(
    printer: Printer, model: Path, graph: Graph, request: QuantizationRequest, target: Target | None
) -> None:
    """Measure the default on a few samples, and print what the ladder's steps are expected to add."""
    from npuc.calib.feeding import Feeder
    from npuc.flow import needs_ranges, schemes_of
    from npuc.ir.target_rewrites import rewritten_for
    from npuc.quant.ladder.plan import LOOKED_AT, make_plan
    from npuc.quant.ladder.run import MOST_SAMPLES
    from npuc.quant.prequantized import is_quantized

    graph = graph if target is None else rewritten_for(graph, target, "float")
    config = request.config_for(graph)
    if not request.typical or not request.tune:
        raise UsageError(
            "a plan needs typical data to measure the default on", fix="Give --data PATH, without --no-tune"
        )
    if is_quantized(graph) or not needs_ranges(graph, config, target):
        raise UsageError(
            "the network gets no ranges from data, so the ladder has nothing to do", fix="Leave --plan out"
        )
    source = data_of(printer, graph, request)
    batches = Feeder(graph, source, request.strict, printer.note, lambda: None).batches()
    samples = [
        {name: array.copy() for name, array in batch.inputs.items()} for batch in islice(batches, LOOKED_AT)
    ]
    total = min(source.total or len(samples), MOST_SAMPLES)
    options = request.ladder_options
    plan = make_plan(
        graph,
        samples,
        schemes_of(graph, config, target),
        options.steps(),
        total=max(total, len(samples)),
        threads=request.threads or len(os.sched_getaffinity(0)),
        device=options.torch_device or "cpu",
        fixed="scheme" in config.model_fields_set,
        goal=options.accuracy_drop if options.accuracy_drop is not None else options.expected_drop,
    )
    _say(printer, model, plan, total)
    printer.result(_plain(plan))


def _say(printer: Printer, model: Path, plan: Plan, total: int) -> None:
    worst = (
        ""
        if plan.worst_slice is None
        else f", worst slice {plan.worst_slice[0]} {plan.worst_slice[1]:.1f} dB"
    )
    printer.say(
        f"plan for {model}: the default was measured on {counted(plan.samples, 'sample')}{worst}; the rest is expected of "
        f"{counted(total, 'sample')}, from results under schemes of this kind ({plan.kind})"
    )
    printer.say(f"  {'step':10}{'SQNR':>9}{'top-1 lost':>15}{'time':>9}{'memory':>12}  results behind it")
    for step in plan.steps:
        if not step.applies:
            printer.say(f"  {step.name:10}nothing to do under this scheme")
            continue
        # With no result of the step under such schemes, the figures are only those of the step before it.
        known = "measured here" if step.name == "default" else str(step.pairs) if step.pairs else "none"
        quality = f"{step.sqnr:.1f} dB" if known != "none" else "unknown"
        lost = f"{step.loss.points:.1f} ± {step.loss.spread:.1f}" if known != "none" else "unknown"
        printer.say(
            f"  {step.name:10}{quality:>9}{lost:>15}{_duration(step.seconds):>9}{size(step.memory):>12}  {known}"
        )
    if plan.enough is not None:
        printer.say(f"  {'goal':10}expected to be met after '{plan.enough}'; later steps would not run")
    printer.say(
        "  losses are those of image classifiers at such decibels; a detector's or a transformer's may differ"
    )


def _duration(seconds: float) -> str:
    if not isfinite(seconds):
        return "unknown"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _plain(plan: Plan) -> dict[str, Any]:
    """The plan as plain values; a time that is not known is null."""
    steps = [
        {**asdict(step), "seconds": step.seconds if isfinite(step.seconds) else None} for step in plan.steps
    ]
    return {**asdict(plan), "steps": steps}
