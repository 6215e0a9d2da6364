"""Scales of weights that somebody states, such as those that another tool has trained, in place of those of the maxima."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import QuantizationError, UnknownTensorError
from npuc.ir import Graph, top
from npuc.quant.adaquant.lowering import LearnedLayer
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.tensor_classes import weight_axis


def stated_layers(
    graph: Graph, scales: Mapping[str, Array], scheme_of: LayerSchemes
) -> dict[Any, LearnedLayer]:
    """The layers of a float network whose weights have stated scales, by their ops, for `lower_learned`.

    `scales` has one number, or one for each output channel, by the name of a layer's result. Layers that stay float have none.
    """
    layers = {}
    for name, stated in scales.items():
        value = graph.find(name)
        op: Any = None if value is None else value.owner
        if not isinstance(op, top.Conv | top.Deconv | top.MatMul):
            raise UnknownTensorError(f"there is no layer '{name}' with weights")
        weight, scheme = graph.constant(op.operands[1]), scheme_of(op)
        if weight is None:
            raise UnknownTensorError(f"the weights of layer '{name}' are no constants")
        if scheme is None or not scheme.needs_ranges:
            continue
        layers[op] = LearnedLayer(
            np.asarray(weight, np.float64), _fitted(name, op, weight, stated, scheme.per_channel), None
        )
    return layers


def _fitted(name: str, op: Any, weight: Array, stated: Array, per_channel: bool) -> Array:
    """As many scales as the scheme of the layer has."""
    scales = np.asarray(stated, np.float64).reshape(-1)
    axis = weight_axis(op, weight)
    assert axis is not None
    count = weight.shape[axis]
    if not np.all(np.isfinite(scales) & (scales > 0)):
        raise QuantizationError(f"a scale of the weights of '{name}' is not above 0")
    if scales.size not in (1, count):
        raise QuantizationError(f"'{name}' has {count} output channels, and {scales.size} scales are stated")
    if per_channel:
        fitted: Array = np.broadcast_to(scales, (count,))
        return fitted
    if np.unique(scales).size > 1:
        raise QuantizationError(
            f"'{name}' has one scale for all weights, and {scales.size} different ones are stated",
            fix="Use a scheme with per_channel: true",
        )
    return scales[:1]
