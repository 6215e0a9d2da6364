"""How much each layer matters: what its rounding alone costs at the outputs of the network.

The figures are those of `npuc analyze`: everything is float but the result and the weights of one layer, and the outputs are
compared with exact ones. A layer that is bad by itself may matter little, if what follows forgives it, and the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npuc.flow import quantize_network, ranges_from, schemes_of
from npuc.ir import value_name
from npuc.quant.analysis.measurements import decibels
from npuc.quant.analysis.measuring import rounded_tensors
from npuc.quant.layers import integer_layers
from npuc.quant.mixed_precision.sensitivity import Probe, rounded_weights, tensor_types
from npuc.quant.mixed_precision.units import Unit
from npuc.studio.maps import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npuc.arrays import Array
    from npuc.calib.sources import Source
    from npuc.ir import Graph

SAMPLES = 8
"""Of a file with more; the network runs on each once for every layer."""
_AT_ONCE = 8
"""Tensors that are measured with one export of the network."""


def sensitivities(
    source: Graph, integer: Graph, samples: Sequence[Mapping[str, Array]], threads: int = 1
) -> list[dict[str, Any]]:
    """For each tensor that is rounded, the decibels of the outputs if it and the weights behind it are all that is."""
    types = tensor_types(integer)
    probe = Probe.of(source, samples, threads)
    values = rounded_tensors(source, types)
    noises: dict[str, float] = {}
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        alone = [Unit((value,), (value,), (), (), ()) for value in part]
        noises |= zip(map(value_name, part), probe.tensors(alone, types), strict=True)
    for layer in integer_layers(source, integer, schemes_of(source)):
        noise = probe.weights(layer.float_op, rounded_weights(layer))
        noises[layer.name] = noises.get(layer.name, 0.0) + noise
    return [{"name": name, "sensitivity": plain(round(decibels(noise), 2))} for name, noise in noises.items()]


def with_eight_bits(source: Graph, data: Source) -> Graph:
    """The network in plain int8, with ranges of the data: what a float network alone is probed with."""
    ranges = ranges_from(source, data, schemes_of(source), "max")
    return quantize_network(source, ranges).graph
