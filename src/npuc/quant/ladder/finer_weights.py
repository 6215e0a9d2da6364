"""8-bit weights for the few small layers that make a network useless under a scheme of fewer bits.

A first convolution has 27 inputs a sum, a depthwise one 9: rounding errors of so few weights of 4 bits hardly cancel, and all
that follows computes with them. Such layers hold a few per cent of the weights, so 8 bits for them cost next to nothing. The
layers are chosen by the noise that their weights make at the outputs, for each weight that would get 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.quant.ladder.wide_layers import USELESS
from npuc.quant.layers import IntegerLayer, integer_layers
from npuc.quant.mixed_precision.mixing import Mixer, Pick
from npuc.quant.mixed_precision.sensitivity import Probe, rounded_weights
from npuc.quant.mixed_precision.units import key
from npuc.quant.mixed_precision.variants import OWN, Variant, is_possible
from npuc.quant.validation import spread
from npuc.quant.widening import cost_in_words
from npuc.words import counted

MOST_WEIGHTS = 0.05
"""The largest share of the weights that get 8 bits."""
_BYTES = Variant("own", "i8")
_PROBED = 4
"""The number of samples for measuring noise: the layers that are looked for stand out by far."""
_GAIN = 1.0
"""The decibels that have to be gained."""
_NAMED = 4


def has_few_bits(layer: IntegerLayer) -> bool:
    """Whether the weights of a layer have fewer than 8 bits."""
    return layer.scheme.has_few_bit_weights


def finer_if_useless(best: Candidate, context: QuantizationContext) -> Candidate | None:
    """The network with 8-bit weights for few layers, if fewer bits leave it of little use and that helps; None otherwise."""
    layers = integer_layers(best.source, best.quantized, best.scheme_of)
    able = [
        layer for layer in layers if has_few_bits(layer) and is_possible(layer.scheme, _BYTES, context.target)
    ]
    if best.sqnr >= USELESS or context.cost_model is None or not able:
        return None
    samples = [context.fit[index] for index in spread(len(context.fit), _PROBED)]
    probe = Probe.of(best.source, samples, context.threads)
    noise = {layer.name: probe.weights(layer.float_op, rounded_weights(layer)) for layer in able}
    chosen = noisiest(noise, {layer.name: layer.weight.size for layer in able}, _total(layers))
    mixer = Mixer(best, context, context.cost_model, variants=(OWN, _BYTES))
    picks = [
        Pick(unit, "own", tuple((key(op), "i8") for op in unit.weighted if key(op) in chosen))
        for unit in mixer.units
    ]
    finer = mixer.candidate([pick for pick in picks if not pick.is_own])
    if finer.sqnr < best.sqnr + _GAIN:
        return None
    return replace(finer, notes=(*best.notes, _words(best, finer, chosen, layers, context)))


def noisiest(noise: Mapping[str, float], sizes: Mapping[str, int], total: int) -> list[str]:
    """The layers with the most noise for each of their weights, together with at most `MOST_WEIGHTS` of all weights.

    >>> noisiest({"first": 0.1, "depthwise": 0.04, "dense": 0.2}, {"first": 27, "depthwise": 9, "dense": 900}, 936)
    ['depthwise', 'first']
    """
    chosen, room = [], MOST_WEIGHTS * total
    for name in sorted(noise, key=lambda name: -noise[name] / sizes[name]):
        if sizes[name] <= room:
            chosen.append(name)
            room -= sizes[name]
    return chosen


def _total(layers: Sequence[IntegerLayer]) -> int:
    return sum(layer.weight.size for layer in layers)


def _words(
    best: Candidate,
    finer: Candidate,
    chosen: Sequence[str],
    layers: Sequence[IntegerLayer],
    context: QuantizationContext,
) -> str:
    """What was done, and what it costs."""
    assert context.cost_model is not None
    more = f" and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else ""
    share = sum(layer.weight.size for layer in layers if layer.name in chosen) / _total(layers)
    cycles = cost_in_words(context.cost_model, best.quantized, finer.quantized)
    return (
        f"{best.sqnr:.1f} dB would be of little use: 8-bit weights for {len(chosen)} of {counted(len(layers), 'layer')} "
        f"({', '.join(chosen[:_NAMED])}{more}), {100 * share:.1f} % of all weights, give {finer.sqnr:.1f} dB, {cycles}; "
        "--no-widen leaves them out"
    )
