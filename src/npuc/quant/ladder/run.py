"""Running the ladder: its options, its samples, and the sequence of steps or the search for a goal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.calib.sources import Source
from npuc.errors import UsageError
from npuc.ir import Graph
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.fallback import STEPS as QUICK
from npuc.quant.ladder.fallback import wide_if_useless
from npuc.quant.ladder.finer_weights import finer_if_useless
from npuc.quant.ladder.goal import MIXED, search_goal
from npuc.quant.ladder.measurements import Goal, GoalCheck, GoalResult, Measurement
from npuc.quant.ladder.sequence import StepResult, chosen, run_steps
from npuc.quant.mixed_precision.cost_model import CostModel
from npuc.quant.tuning import tune
from npuc.quant.widening import Widening
from npuc.registries import renamed
from npuc.transform.eliminate_dead_code import drop_unused_weights
from npuc.words import counted

MOST_SAMPLES = 512
_LAST_QUICK = 50
"""The rank of the last step that takes seconds: types are chosen after it where a network would be of little use."""
MOST_BYTES = 1 << 30
"""The limit of all samples together, which stay in memory."""


@dataclass(frozen=True)
class PipelineOptions:
    """The steps to run, the device, and an optional accuracy goal."""

    steps: tuple[str, ...] | None = None
    """The names of the steps; None for all, but without mixed precision if a scheme was stated."""
    device: str = "cpu"
    goal: Goal | None = None
    """Run steps until this accuracy goal is met."""
    enough: float = inf
    """Steps end as soon as the validation samples have this many decibels."""
    seed: int = 0
    """The seed of the steps that draw samples at random."""
    points: int = 0
    """The number of further points of the frontier that are measured for a plot."""
    report: Callable[[StepResult | Measurement | GoalCheck | str], None] = lambda event: None
    finished: Callable[[GoalResult], None] = lambda result: None

    @staticmethod
    def names(text: str) -> tuple[str, ...] | None:
        """The steps in a text: `all`, `default`, or names separated by commas; None means all."""
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if not names:
            raise UsageError("no step is named", fix=f"Ask for all, default or some of {_known()}")
        if "all" in names or "default" in names:
            if len(names) > 1:
                raise UsageError(f"'{text}': all and default stand alone")
            return None
        chosen(names)
        return names


def _known() -> str:
    return ", ".join(entry.name for entry in chosen())


def kept_samples(
    graph: Graph,
    source: Source,
    *,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
    step: Callable[[], None] | None = None,
) -> list[Mapping[str, Array]]:
    """The first samples of a source, up to a limit of number and memory."""
    note = warn or (lambda text: None)
    samples: list[Mapping[str, Array]] = []
    held = 0
    for batch in Feeder(graph, source, strict, note, step or (lambda: None)).batches():
        inputs = {name: np.array(array) for name, array in batch.inputs.items()}
        held += sum(array.nbytes for array in inputs.values())
        if len(samples) == MOST_SAMPLES or (samples and held > MOST_BYTES):
            note(
                f"the first {counted(len(samples), 'sample', 'serves', 'serve')} the ladder: more would not fit or help"
            )
            break
        samples.append(inputs)
    return samples


def run_pipeline_steps(
    context: QuantizationContext,
    pipeline_options: PipelineOptions,
    cost_model: CostModel,
    *,
    widen: Widening | bool,
    fixed: bool,
    may_widen: bool = False,
) -> Candidate:
    """Quantize by default, then run the steps; the notes of the network say what was done.

    `widen` is passed to the default quantization. If the types are `fixed`, because a scheme was stated, mixed precision runs
    only if it is named or if there is a goal. `may_widen` allows 16 bits for few layers under per-tensor scales, and 8-bit
    weights for few small layers under fewer bits, as the default does, if the network would be of little use otherwise; they are
    chosen before steps that take long.
    """
    begun = time.perf_counter()
    first = tune(
        context.original,
        context.statistics(context.original),
        context.fit,
        context.scheme_of,
        context.methods,
        widen=widen,
        threads=context.threads,
        output_method=context.output_method,
    )
    sqnr = context.validated_sqnr(first.graph)
    best = start = Candidate(context.original, first.graph, first.table, first.scheme_of, sqnr)
    names = pipeline_options.steps or [
        entry.name
        for entry in chosen()
        if entry.name != MIXED or not fixed or pipeline_options.goal is not None
    ]
    if pipeline_options.goal is None:
        pipeline_options.report(f"default: {start.sqnr:.2f} dB ({time.perf_counter() - begun:.1f} s)")
        run = partial(run_steps, context, report=pipeline_options.report, enough=pipeline_options.enough)
        best = run([name for name in names if name in QUICK], start=start)
        wide = wide_if_useless(best, context, start) if may_widen else None
        if wide is not None:
            pipeline_options.report(wide.notes[-1])
        others = [entry for entry in chosen(names) if entry.name not in QUICK]
        best = run([entry.name for entry in others if entry.rank <= _LAST_QUICK], start=wide or best)
        finer = finer_if_useless(best, context) if may_widen else None
        if finer is not None:
            pipeline_options.report(finer.notes[-1])
        best = run([entry.name for entry in others if entry.rank > _LAST_QUICK], start=finer or best)
        if best.sqnr >= pipeline_options.enough:
            pipeline_options.report(
                f"{best.sqnr:.2f} dB are enough ({pipeline_options.enough:.1f} dB): steps that did not run are left out"
            )
    else:
        log = search_goal(
            context,
            pipeline_options.goal,
            cost_model,
            start,
            names,
            report=pipeline_options.report,
            passed=pipeline_options.report,
            points=pipeline_options.points,
        )
        pipeline_options.finished(log)
        best = log.best.candidate
    drop_unused_weights(best.quantized)
    best.quantized.float_reasons = {**first.graph.float_reasons, **best.quantized.float_reasons}
    best.quantized.notes = list(dict.fromkeys([*first.graph.notes, *best.quantized.notes, *best.notes]))
    return best


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Wish": PipelineOptions})
