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

from npuc.ir import result_names
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
    """The network with 16 bits for at most a fifth of its layers; None if that gains too little, or is not possible."""
    if context.cost_model is None or not _counts(best.scheme_of)[1] or _bytes(best) > _MOST_BYTES:
        return None
    mixer = Mixer(best, context, context.cost_model, variants=_VARIANTS, probed=_PROBED)
    picks = _quietest(mixer)
    if not picks:
        return None
    wide = mixer.candidate(picks)
    if wide.sqnr < best.sqnr + GAIN:
        return None
    return replace(wide, notes=(*best.notes, _words(best, wide, context)))


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
