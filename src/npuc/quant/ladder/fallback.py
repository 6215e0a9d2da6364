"""The quick steps of the ladder, unasked, where one scale for all channels spoils a network.

With a scale each channel, ranges and biases are nearly always enough. With one scale a tensor, channels of very different
sizes leave the small ones few steps, and a network can lose its meaning; making the channels alike is a matter of
seconds. A network that is poor for another reason is left to `npuc analyze` and the ladder.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuc.ir import Graph
from npuc.quant.ladder.context import Candidate, QuantizationContext, Sample, SchemeOf
from npuc.quant.ladder.sequence import run_steps
from npuc.quant.layers import integer_layers
from npuc.quant.tuning import GOOD, Tuned
from npuc.transform.eliminate_dead_code import drop_unused_weights

STEPS = ("equalize", "smooth", "ranges")
_LEAST_SAMPLES = 8
"""Fewer say too little about which network is better."""


def needs_fallback(graph: Graph, tuned: Tuned, samples: Sequence[Sample]) -> bool:
    """Whether the outputs are far from float, and weights with one scale a tensor may be why."""
    found = None if tuned.figures is None else tuned.figures.worst_slice
    if found is None or found[1] >= GOOD or len(samples) < _LEAST_SAMPLES:
        return False
    layers = integer_layers(graph, tuned.graph, tuned.scheme_of)
    return any(not layer.scheme.per_channel for layer in layers)


def fallback(
    graph: Graph,
    tuned: Tuned,
    samples: Sequence[Sample],
    scheme_of: SchemeOf,
    methods: Sequence[str],
    threads: int = 1,
) -> Candidate | None:
    """The network after the quick steps; None if they are of no use to it. Its notes say what was done."""
    context = QuantizationContext(graph, samples, scheme_of, methods, threads)
    start = Candidate(graph, tuned.graph, tuned.table, tuned.scheme_of, context.judged(tuned.graph))
    best = run_steps(context, STEPS, start=start)
    if best is start:
        return None
    drop_unused_weights(best.made)
    gain = (
        f"per-tensor scales left {start.sqnr:.1f} dB; with the quick steps of the ladder {best.sqnr:.1f} dB"
    )
    best.made.notes = list(dict.fromkeys([*best.made.notes, gain, *best.notes]))
    return best
