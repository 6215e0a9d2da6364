"""The fallback: the quick steps of the ladder, run by default if per-tensor scales or few bits degrade a network too much.

With per-channel scales, ranges and biases are nearly always enough. With per-tensor scales, channels of small magnitude get
few steps beside large ones, and a network can become useless; equalizing the channels and choosing positions of powers of two
together takes seconds. Where that is not enough, the few layers that hurt most get 16 bits. Weights of fewer than 8 bits are
rounded together (`gptq`), which takes seconds as well, and a few small layers get 8 bits where that is not enough. A network
that is inaccurate for another reason is left to `npuc analyze` and the ladder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from npuc.ir import Graph
from npuc.quant.ladder.context import Candidate, QuantizationContext, Sample
from npuc.quant.ladder.finer_weights import finer_if_useless, has_few_bits
from npuc.quant.ladder.sequence import StepResult, run_steps
from npuc.quant.ladder.wide_layers import USELESS, with_wide_layers
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import integer_layers
from npuc.quant.tuning import GOOD, Tuned
from npuc.quant.validation import is_no_worse
from npuc.quant.widening import GAIN
from npuc.transform.eliminate_dead_code import drop_unused_weights

if TYPE_CHECKING:
    from npuc.compare import OutputFigures
    from npuc.quant.mixed_precision.cost_model import CostModel
    from npuc.target import Target

STEPS = ("equalize", "smooth")
LAST_STEPS = ("ranges", "positions")
FEW_BITS_STEPS = ("gptq",)
"""The steps for weights of fewer than 8 bits."""
HOPELESS = 5.0
"""With fewer decibels, ranges alone do not make a network useful: types are chosen first, as ranges of 16 bits need not be
narrow. Otherwise ranges come first, because they cost no cycles."""
_LEAST_SAMPLES = 8
"""Fewer samples are not enough to tell which network is better."""


def needs_fallback(graph: Graph, tuned: Tuned, samples: Sequence[Sample]) -> str | None:
    """Why the outputs are far from float, if the quick steps may help: `per-tensor scales` or `weights of few bits`."""
    worst = None if tuned.figures is None else tuned.figures.worst_slice
    if worst is None or worst[1] >= GOOD or len(samples) < _LEAST_SAMPLES:
        return None
    layers = integer_layers(graph, tuned.graph, tuned.scheme_of)
    if any(not layer.scheme.per_channel for layer in layers):
        return "per-tensor scales"
    return "weights of few bits" if any(map(has_few_bits, layers)) else None


def wide_if_useless(
    best: Candidate, context: QuantizationContext, start: Candidate | None = None
) -> Candidate | None:
    """The network with 16 bits for few layers, if per-tensor scales leave it of little use and that helps; None otherwise.

    What the quick steps gained over `start` may be in the way: equalization through functions changes the float network a little,
    and no number of bits makes up for that. So where they left it hopeless, 16 bits are given to `start`, and only if that is not
    better to what the steps made of it.
    """
    layers = integer_layers(best.source, best.quantized, best.scheme_of)
    if best.sqnr >= USELESS or all(layer.scheme.per_channel for layer in layers):
        return None
    if start is not None and start is not best and best.sqnr < HOPELESS:
        wide = with_wide_layers(start, context)
        if wide is not None and wide.sqnr >= best.sqnr + GAIN:
            return wide
    return with_wide_layers(best, context)


def default_steps(
    graph: Graph,
    tuned: Tuned,
    samples: Sequence[Sample],
    others: Callable[[], Iterable[Sample]],
    scheme_of: LayerSchemes,
    methods: Sequence[str],
    threads: int = 1,
    *,
    target: Target | None = None,
    cost_model: CostModel | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> tuple[Candidate, OutputFigures] | None:
    """What the default makes of a tuned network by quick steps, and its figures on the kept samples.

    None if it needs none, if they do not improve it, or if plain ranges are closer to float on all calibration data, of which
    `others` returns those that were not kept.
    """
    cause = needs_fallback(graph, tuned, samples)
    if cause is None or tuned.validator is None:
        return None
    note(f"{cause} leave the outputs at {tuned.sqnr:.1f} dB: the quick steps of the ladder follow")
    better = fallback(
        graph, tuned, samples, scheme_of, methods, threads, target=target, cost_model=cost_model
    )
    if better is None:
        return None
    figures = tuned.validator.figures(better.quantized)
    (more,) = tuned.validator.figures_of([better.quantized], others())
    if tuned.plain is not None and not is_no_worse(figures.plus(more), tuned.plain):
        tuned.graph.notes.append(
            "the quick steps are left out: plain ranges are closer on all calibration data"
        )
        return None
    return better, figures


def fallback(
    graph: Graph,
    tuned: Tuned,
    samples: Sequence[Sample],
    scheme_of: LayerSchemes,
    methods: Sequence[str],
    threads: int = 1,
    *,
    target: Target | None = None,
    cost_model: CostModel | None = None,
) -> Candidate | None:
    """The network after the quick steps, with notes on what was done; None if they do not improve it.

    With a cost model, layers may get 16 bits, or weights 8, if the network is of little use otherwise.
    """
    context = QuantizationContext(
        graph, samples, scheme_of, methods, threads, target=target, cost_model=cost_model, patient=False
    )
    start = Candidate(graph, tuned.graph, tuned.table, tuned.scheme_of, context.validated_sqnr(tuned.graph))
    layers = integer_layers(graph, tuned.graph, tuned.scheme_of)
    results: list[StepResult] = []
    best, cause = start, "weights of few bits"
    if any(not layer.scheme.per_channel for layer in layers):
        best, cause = _per_tensor(start, context, results), "per-tensor scales"
    if any(map(has_few_bits, layers)):
        best = run_steps(context, FEW_BITS_STEPS, start=best, report=results.append)
        best = finer_if_useless(best, context) or best
    if best is start:
        return None
    drop_unused_weights(best.quantized)
    gain = f"{cause} left {start.sqnr:.1f} dB; with the quick steps of the ladder {best.sqnr:.1f} dB"
    missing = [f"the step {result.name} was left out: {result.reason}" for result in results if result.reason]
    best.quantized.notes = list(dict.fromkeys([*best.quantized.notes, gain, *best.notes, *missing]))
    return best


def _per_tensor(start: Candidate, context: QuantizationContext, results: list[StepResult]) -> Candidate:
    """The network after the steps for per-tensor scales, and with 16 bits for few layers where they do not suffice."""
    best = run_steps(context, STEPS, start=start, report=results.append)
    wide = wide_if_useless(best, context, start) if best.sqnr < HOPELESS else None
    best = run_steps(context, LAST_STEPS, start=wide or best, report=results.append)
    if wide is None and best.sqnr < USELESS:
        best = with_wide_layers(best, context) or best
    return best
