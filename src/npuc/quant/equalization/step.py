"""Two steps of the ladder: `equalize` (cross-layer equalization) and `smooth` (migration from activations to weights).

The best factors cannot be derived from the weights alone: with per-channel scales, weights need no equalization, but
activations do. So several candidates are quantized and compared on the validation samples. With per-tensor scales of weights,
`equalize` also tries to go through functions that nearly commute with a factor (`through_functions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from npuc.arrays import Array
from npuc.engine import float_engine
from npuc.ir import Graph, value_name
from npuc.quant.equalization.absorption import absorb_biases
from npuc.quant.equalization.groups import EqualizationGroup, find_groups
from npuc.quant.equalization.scaling import apply_factors, balanced, read_range, weight_factors, within_limit
from npuc.quant.equalization.through_functions import OperandValues, with_corrected_means
from npuc.quant.ladder.context import Candidate, QuantizationContext, carried
from npuc.quant.ladder.sequence import step
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.layers import integer_layers
from npuc.words import counted

_SAMPLES = 16
"""The number of samples from which the magnitudes of activations are taken."""
_ROUNDS = 20
"""The largest number of sweeps over the groups; a chain converges in a few."""
_SETTLED = 1e-3
_TOLERANCES = (2.0, 32.0)
"""How much of rounding's error equalization through a function may add, in that error."""
_LOOKED_AT = 4
"""The number of samples whose values say how far a function lets its channels be scaled."""
_ALPHAS = (0.3, 0.5, 0.7, 0.85)


@step("equalize", "cross-layer equalization of weights over chains and sums, with bias absorption", 20)
class Equalize:
    """Weights of neighbouring layers get the same ranges, channel by channel."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The equalized network with and without absorbed biases, or through functions, whichever is best."""
        candidates = [*_exact(best, context), *_approximate(best, context)]
        return context.best_of(candidates) if len(candidates) > 1 else next(iter(candidates), None)


def _exact(best: Candidate, context: QuantizationContext) -> Iterator[Candidate]:
    """Equalized networks that compute the same."""
    groups = find_groups(best.source)
    if not groups:
        return
    sizes = activation_sizes(best.source, groups, context.fit[:_SAMPLES], context.threads)
    equal, _ = equalized(best.source, [sizes[group] for group in groups])
    words = f"equalized {counted(len(groups), 'group')} of layers"
    yield context.requantized(equal, _schemes(best, equal), (*best.notes, words))
    absorbed, count = absorb_biases(equal, context.fit[:_SAMPLES], context.threads)
    if count:
        words = f"{words}, absorbed the biases of {count}"
        yield context.requantized(absorbed, _schemes(best, absorbed), (*best.notes, words))


def _approximate(best: Candidate, context: QuantizationContext) -> Iterator[Candidate]:
    """Networks equalized through functions, which compute nearly the same; only where weights have per-tensor scales."""
    layers = integer_layers(best.source, best.quantized, best.scheme_of)
    if all(layer.scheme.per_channel for layer in layers):
        return
    groups = find_groups(best.source, nearly=True)
    through = sum(bool(group.functions) for group in groups)
    if not through:
        return
    sizes = activation_sizes(best.source, groups, context.fit[:_SAMPLES], context.threads)
    values = OperandValues(best.source, groups, context.fit[:_LOOKED_AT], context.threads)
    for tolerance in _TOLERANCES:
        bounds = [values.bounds(group, tolerance) for group in groups]
        equal, factors = equalized(best.source, [sizes[group] for group in groups], bounds)
        equal = with_corrected_means(equal, best.source, groups, factors, values)
        words = (
            f"equalized {counted(len(groups), 'group')} of layers, {through} of them through silu or hard-swish, which "
            f"adds {tolerance:g} times the error of rounding or less"
        )
        yield context.requantized(equal, _schemes(best, equal), (*best.notes, words))


@step("smooth", "migration of outlier channels from activations to the weights that read them", 40)
class Smooth:
    """Large activation channels are divided, and the weights that read them multiplied."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """The best of a few migration strengths."""
        groups = find_groups(best.source)
        if not groups:
            return None
        sizes = activation_sizes(best.source, groups, context.fit[:_SAMPLES], context.threads)
        trials = []
        for alpha in _ALPHAS:
            factors = {}
            for group in groups:
                factor = balanced(sizes[group], read_range(group, best.source), alpha)
                factors[group] = within_limit(group, factor, sizes[group])
            source = apply_factors(best.source, factors)
            notes = (*best.notes, f"migrated {counted(len(groups), 'group')} of layers with alpha {alpha:g}")
            trials.append(context.requantized(source, _schemes(best, source), notes))
        return context.best_of(trials)


def _schemes(best: Candidate, source: Graph) -> LayerSchemes:
    return carried(best.scheme_of, best.source, source)


def equalized(
    graph: Graph, sizes: Sequence[Array], bounds: Sequence[tuple[Array, Array]] | None = None
) -> tuple[Graph, list[Array]]:
    """The network with equal weight ranges on both sides of every group, as far as chains and limits allow; also the factors.

    `sizes` are the largest activations of each channel, per group. With `bounds`, the least and largest factors, groups extend
    through functions that nearly commute.
    """
    new, now = graph, list(sizes)
    total = [np.ones_like(size) for size in sizes]
    for _ in range(_ROUNDS):
        moved = 0.0
        # Every second group at a time: neighbours share weights, which would otherwise be scaled twice.
        for part in (0, 1):
            chosen: dict[EqualizationGroup, Array] = {}
            for index, group in enumerate(find_groups(new, nearly=bounds is not None)):
                if index % 2 == part:
                    factor = within_limit(group, weight_factors(group, new), now[index])
                    if bounds is not None:
                        factor = np.clip(total[index] * factor, *bounds[index]) / total[index]
                    chosen[group] = factor
                    now[index], total[index] = now[index] / factor, total[index] * factor
                    moved = max(moved, float(np.abs(np.log(factor)).max()))
            new = apply_factors(new, chosen) if chosen else new
        if moved < _SETTLED:
            break
    return new, total


def activation_sizes(
    graph: Graph, groups: Sequence[EqualizationGroup], samples: Sequence[Mapping[str, Array]], threads: int
) -> dict[EqualizationGroup, Array]:
    """The largest magnitude of each channel over all tensors of a group."""
    named = {group: [value_name(value) for value in group.values if value_name(value)] for group in groups}
    fetch = list(dict.fromkeys(name for names in named.values() for name in names))
    engine = float_engine(graph, fetch=fetch, threads=threads)
    sizes = {group: np.zeros(group.channels) for group in groups}
    for sample in samples:
        values = engine.run(sample)
        for group, names in named.items():
            for name in names:
                array = np.abs(np.asarray(values[name], np.float64))
                axes = tuple(i for i in range(array.ndim) if i != group.axis)
                sizes[group] = np.maximum(sizes[group], array.max(axis=axes))
    return sizes
