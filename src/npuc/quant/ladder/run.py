"""Running the ladder: its options, its samples, and the sequence of steps or the search for a goal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from npuc.quant.ladder.fallback import default_steps, wide_if_useless
from npuc.quant.ladder.finer_weights import finer_if_useless
from npuc.quant.ladder.goal import MIXED, search_goal
from npuc.quant.ladder.measurements import Goal, GoalCheck, GoalResult, Measurement
from npuc.quant.ladder.sequence import StepResult, chosen, is_ahead, run_steps
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.mixed_precision.cost_model import CostModel
from npuc.quant.tuning import KEPT, Tuned, tune
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
    plain_of: LayerSchemes | None = None,
) -> Candidate:
    """Quantize by default, then run the steps; the notes of the network say what was done.

    `widen` is passed to the default quantization. If the types are `fixed`, because a scheme was stated, mixed precision runs
    only if it is named or if there is a goal. `may_widen` allows 16 bits for few layers under per-tensor scales, and 8-bit
    weights for few small layers under fewer bits, as the default does, if the network would be of little use otherwise; they are
    chosen before steps that take long.
    """
    report = pipeline_options.report if pipeline_options.goal is None else _silent
    first, start, default = _default(
        context, cost_model, report, widen=widen, may_widen=may_widen, plain_of=plain_of
    )
    names = pipeline_options.steps or [
        entry.name
        for entry in chosen()
        if entry.name != MIXED or not fixed or pipeline_options.goal is not None
    ]
    if pipeline_options.goal is None:
        best = _best_of_steps(context, names, start, default, pipeline_options, may_widen=may_widen)
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
            default=default,
        )
        pipeline_options.finished(log)
        best = log.best.candidate
    drop_unused_weights(best.quantized)
    best.quantized.float_reasons = {**first.graph.float_reasons, **best.quantized.float_reasons}
    best.quantized.notes = list(dict.fromkeys([*first.graph.notes, *best.quantized.notes, *best.notes]))
    return best


def _silent(text: str) -> None:
    """For a search that reports its measurements itself."""


def _default(
    context: QuantizationContext,
    cost_model: CostModel,
    report: Callable[[str], None],
    *,
    widen: Widening | bool,
    may_widen: bool,
    plain_of: LayerSchemes | None,
) -> tuple[Tuned, Candidate, Candidate]:
    """What the default makes of the samples: the tuned network, also as a candidate, and the candidate after its quick steps.

    The latter is the same one if it needs none.
    """
    begun = time.perf_counter()
    kept, others = context.samples[:KEPT], context.samples[KEPT:]
    tuned = tune(
        context.original,
        context.statistics(context.original),
        kept,
        context.scheme_of,
        context.methods,
        widen=widen,
        threads=context.threads,
        others=lambda: others,
        plain_of=plain_of,
        output_method=context.output_method,
    )
    start = Candidate(
        context.original, tuned.graph, tuned.table, tuned.scheme_of, context.validated_sqnr(tuned.graph)
    )
    report(f"default: {start.sqnr:.2f} dB ({time.perf_counter() - begun:.1f} s)")
    better = default_steps(
        context.original,
        tuned,
        kept,
        lambda: others,
        context.scheme_of,
        context.methods,
        context.threads,
        target=context.target,
        cost_model=cost_model if may_widen else None,
    )
    if better is None:
        return tuned, start, start
    default = replace(better[0], sqnr=context.validated_sqnr(better[0].quantized))
    report(f"default with its quick steps: {default.sqnr:.2f} dB ({time.perf_counter() - begun:.1f} s)")
    return tuned, start, default


def _best_of_steps(
    context: QuantizationContext,
    names: Sequence[str],
    start: Candidate,
    default: Candidate,
    options: PipelineOptions,
    *,
    may_widen: bool,
) -> Candidate:
    """The best network after the steps, which is never behind `default` on the validation samples.

    Quick steps begin at `start`, the default without its own ones. Each is kept for what it gains at its place in the order, and
    the way of the default can still end further ahead, so both race before the steps that take long, which improve the winner;
    and again at the end.
    """
    if default.sqnr >= options.enough:
        options.report(_enough(default, options))
        return default
    run = partial(run_steps, context, report=options.report, enough=options.enough)
    best = run([name for name in names if name in QUICK], start=start)
    wide = wide_if_useless(best, context, start) if may_widen else None
    if wide is not None:
        options.report(wide.notes[-1])
    others = [entry for entry in chosen(names) if entry.name not in QUICK]
    best = run([entry.name for entry in others if entry.rank <= _LAST_QUICK], start=wide or best)
    finer = finer_if_useless(best, context) if may_widen else None
    if finer is not None:
        options.report(finer.notes[-1])
    best = _ahead(finer or best, default, context, options)
    best = run([entry.name for entry in others if entry.rank > _LAST_QUICK], start=best)
    if best.sqnr >= options.enough:
        options.report(_enough(best, options))
    return _ahead(best, default, context, options)


def _enough(best: Candidate, options: PipelineOptions) -> str:
    return f"{best.sqnr:.2f} dB are enough ({options.enough:.1f} dB): steps that did not run are left out"


def _ahead(
    best: Candidate, default: Candidate, context: QuantizationContext, options: PipelineOptions
) -> Candidate:
    """The network of the steps if it is ahead of the default, else the default; which one, is reported."""
    if best.quantized is default.quantized or is_ahead(best, default, context):
        return best
    note = (
        f"the default is taken: {default.sqnr:.2f} dB and {context.worst(default):.2f} dB at worst on the validation samples, "
        f"with the steps so far {best.sqnr:.2f} dB and {context.worst(best):.2f} dB at worst"
    )
    options.report(note)
    return replace(default, notes=(*default.notes, note))


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Wish": PipelineOptions})
