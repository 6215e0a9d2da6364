"""16 bits for the few layers that make a network useless under a scheme, at a price in cycles that is stated.

With powers of two and one scale a tensor, a handful of layers, most often the first ones, can drown all that follows:
channels of small magnitude get no steps beside large ones, and a function such as silu between two layers keeps them from
being equalized. Both the weights and the tensors of such layers need more bits. The choice is that of mixed precision (noise
per unit, cycles by the cost model, the frontier of both), but layers count as well as cycles: of the frontier, the quietest
point with few enough layers is taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from npuc.ir import result_names, top, value_name
from npuc.quant.joining import joining_ops, with_joins_in_float
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.mixed_precision.frontier import frontier
from npuc.quant.mixed_precision.mixing import Mixer, Pick
from npuc.quant.mixed_precision.variants import OWN, WIDE, Variant
from npuc.quant.widening import GAIN, cost_in_words
from npuc.words import counted

USELESS = 10.0
"""With fewer decibels on average over the slices, a network is of little use."""
MOST_LAYERS = 0.2
"""The largest share of layers that get 16 bits."""
_VARIANTS = (OWN, WIDE, Variant("i16", "i16"))
_PROBED = 2
"""The number of samples for measuring noise: the layers that are looked for stand out by far."""
_MOST_BYTES = 256 << 20
"""The constants of the largest network whose layers are measured: each is run with a copy of them."""
_POINTS = 2000
"""The number of choices of types that are compared."""
_NAMED = 4


def with_wide_layers(best: Candidate, context: QuantizationContext) -> Candidate | None:
    """The network with 16 bits for at most a fifth of its layers; None if that gains too little, or is not possible.

    If it is of little use still, layers are chosen again with the concats of outputs in float, where each part has a scale of its
    own: small parts, such as scores beside boxes, may have no steps of a common power of two, and no bits elsewhere help them.
    Those concats stay in float only if a common scale would lose much.
    """
    wide = _noted(_widened(best, context), best, context)
    joins = joining_ops(best.source, best.scheme_of)
    if not joins or (wide is not None and wide.sqnr >= USELESS):
        return wide
    floats = with_joins_in_float(best.scheme_of, joins)
    apart = _widened(context.from_table(best.source, best.table, floats, best.notes), context)
    if apart is None:
        return wide
    schemes = LayerSchemes({**apart.scheme_of.by_op, **{op: best.scheme_of(op) for op in joins}})
    joined = context.from_table(apart.source, apart.table, schemes, apart.notes)
    rival = max([joined, *([wide] if wide is not None else [])], key=context.score)
    before, after = _worst_slice(rival, context), _worst_slice(apart, context)
    if after < before + GAIN:
        return wide if rival is wide else _noted(joined, best, context)
    names = ", ".join(f"'{value_name(op.results[0])}'" for op in joins if isinstance(op, top.Concat))
    note = (
        f"parts of {names} differ too much for one scale, so they are joined in float on the CPU: with one scale the worst slice "
        f"would have {before:.1f} dB instead of {after:.1f}; --no-widen leaves that out"
    )
    return _noted(apart, best, context, note)


def _noted(
    wide: Candidate | None, best: Candidate, context: QuantizationContext, *more: str
) -> Candidate | None:
    """A network with notes on what was done to `best`; None if it does not gain much."""
    if wide is None or wide.sqnr < best.sqnr + GAIN:
        return None
    return replace(wide, notes=(*best.notes, _words(best, wide, context), *more))


def _worst_slice(candidate: Candidate, context: QuantizationContext) -> float:
    lowest = context.figures(candidate.quantized).worst_slice
    return candidate.sqnr if lowest is None else lowest[1]


def _widened(best: Candidate, context: QuantizationContext) -> Candidate | None:
    """The network with 16 bits for its noisiest layers; None if there is nothing to choose."""
    if context.cost_model is None or not _counts(best.scheme_of)[1] or _bytes(best) > _MOST_BYTES:
        return None
    mixer = Mixer(best, context, context.cost_model, variants=_VARIANTS, probed=_PROBED)
    picks = _quietest(mixer)
    return mixer.candidate(picks) if picks else None


def _quietest(mixer: Mixer) -> list[Pick]:
    """The choice with the least noise and few enough layers.

    Layers and cycles are both scarce: a fifth of the layers weighs as much as twice the cycles.
    """
    most = MOST_LAYERS * _counts(mixer.best.scheme_of)[1]
    units = [
        [
            replace(option, cost=option.cost / max(1.0, mixer.base_cost) + len(_wide_ops(option.pick)) / most)
            for option in unit
        ]
        for unit in mixer.frontier.units
    ]
    by_layers = frontier(units, _POINTS)
    for point in reversed(range(len(by_layers))):
        picks = [pick for pick in by_layers.picks(point) if not pick.is_own]
        if _share(mixer.schemes(picks)) <= MOST_LAYERS:
            return picks
    return []


def _wide_ops(pick: Pick) -> set[Any]:
    return pick.unit.ops if pick.activation == "i16" else set()


def _bytes(best: Candidate) -> int:
    return sum(weight.nbytes for weight in best.source.weights.values())


def _share(scheme_of: LayerSchemes) -> float:
    wide, all_layers = _counts(scheme_of)
    return len(wide) / max(1, all_layers)


def _counts(scheme_of: LayerSchemes) -> tuple[list[str], int]:
    """The names of the layers with 16 bits, and the number of all integer layers."""
    schemes = {op: scheme for op, scheme in scheme_of.by_op.items() if scheme is not None and op.results}
    return [result_names(op)[0] for op, scheme in schemes.items() if scheme.has_wide_activations], len(
        schemes
    )


def _words(best: Candidate, wide: Candidate, context: QuantizationContext) -> str:
    """What was done, and what it costs."""
    assert context.cost_model is not None
    names, count = _counts(wide.scheme_of)
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    cycles = cost_in_words(context.cost_model, best.quantized, wide.quantized)
    return (
        f"{best.sqnr:.1f} dB would be of little use: 16 bits for {len(names)} of {counted(count, 'layer')} ({listed}) give "
        f"{wide.sqnr:.1f} dB, {cycles}; --no-widen leaves them out"
    )
