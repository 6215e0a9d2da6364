"""Weights clipped to ranges that somebody stated, before they are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import UnknownTensorError
from npuc.ir import Graph, top
from npuc.quant.tensor_classes import weight_axis


def clip_weights(graph: Graph, ranges: Mapping[str, tuple[float | Array, float | Array]]) -> Graph:
    """The float network with the weights of some layers clipped to stated ranges: their integers then reach just as far.

    `ranges` has the least and the greatest weight by the name of a layer's result, one number each, or one for each output
    channel. Nothing is stretched: a range beyond the weights changes nothing.
    """
    clipped = graph.copy()
    for name, (low, high) in ranges.items():
        value = clipped.find(name)
        op: Any = None if value is None else value.owner
        if not isinstance(op, top.Conv | top.Deconv | top.MatMul):
            raise UnknownTensorError(f"there is no layer '{name}' with weights")
        operand = op.operands[1]
        weight = clipped.constant(operand)
        if weight is None:
            raise UnknownTensorError(f"the weights of layer '{name}' are no constants")
        axis = weight_axis(op, weight)
        assert axis is not None
        sides = [-1 if i == axis else 1 for i in range(weight.ndim)]
        bounds = [np.asarray(bound, weight.dtype) for bound in (low, high)]
        bounds = [bound.reshape(sides) if bound.size > 1 else bound.reshape(()) for bound in bounds]
        replaced = clipped.add_weight(f"{name}/weight/clipped", np.clip(weight, *bounds).astype(weight.dtype))
        clipped.block.insert_op_before(replaced, op)
        op.operands[1] = replaced.output
    return clipped
