"""The layers with integer weights, each as a pair of its float op and its integer op.

Algorithms that choose integers (learned rounding, GPTQ) read and write them here, within the limits of the types and of the
accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Weight, npu, result_names, top
from npuc.ir.dtypes import QuantType, dtype_of, quant_of
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.parameters import largest_sum, stored_bias
from npuc.quant.scheme import Scheme

_PAIRS: dict[type[Any], type[Any]] = {top.Conv: npu.Conv, top.Deconv: npu.Deconv, top.MatMul: npu.MatMul}


@dataclass(frozen=True)
class IntegerLayer:
    """One convolution or product with constant weights."""

    name: str
    float_op: Any
    """The op of the float network."""
    integer_op: Any
    """The op of the integer network."""
    weight: Array
    """The float weights, in float64."""
    integers: Array
    scale: Array
    """The scales of the weights, in a shape that broadcasts with them."""
    axis: int
    """The axis of the output channels."""
    lowest: int
    highest: int
    x: QuantType
    bias: Array | None
    """The integer bias, in steps of the accumulator."""
    real_bias: Array | None
    scheme: Scheme

    @property
    def pruned(self) -> Array | None:
        """Which weights are zeros that have to stay zero, where a quarter or more of the weights are: they were pruned."""
        zeros: Array = self.weight == 0
        return zeros if 4 * np.count_nonzero(zeros) >= zeros.size else None

    @property
    def unit(self) -> Array:
        """The real value of one step of the accumulator of each output channel."""
        count = self.weight.shape[self.axis]
        return self.x.scale * np.broadcast_to(self.scale.reshape(-1), (count,))


def output_channel_axis(op: object, rank: int) -> int:
    """The axis of the output channels of a layer with weights: axis 1 of a convolution, the last axis of a matmul.

    A matmul of rank 4 has the shape of a feature map, but its channels are not axis 1.
    """
    return rank - 1 if isinstance(op, top.MatMul | npu.MatMul) else 1


def integer_layers(source: Graph, quantized: Graph, scheme_of: LayerSchemes) -> list[IntegerLayer]:
    """The layers of an integer network in order, if their weights are used once and the float layer has the same name."""
    float_ops = {result_names(op)[0]: op for op in source.ops if type(op) in _PAIRS}
    layers = []
    for op in quantized.ops:
        if not isinstance(op, npu.Conv | npu.Deconv | npu.MatMul):
            continue
        name = result_names(op)[0]
        twin: Any = float_ops.get(name)
        if twin is None or not isinstance(op, _PAIRS[type(twin)]):
            continue
        layer = _layer(name, twin, op, source, quantized, scheme_of(twin) or Scheme())
        if layer is not None:
            layers.append(layer)
    return layers


def _layer(
    name: str, real: Any, op: Any, source: Graph, quantized: Graph, scheme: Scheme
) -> IntegerLayer | None:
    place = real.b if isinstance(real, top.MatMul) else real.weight
    weight, kind = source.constant(place), quant_of(op.x)
    integers, scale = quantized.constant(op.weight), quantized.constant(op.weight_scale)
    bias = None if op.bias is None else quantized.constant(op.bias)
    if weight is None or integers is None or scale is None or kind is None or op.weight_zero_point:
        return None
    if integers.shape != weight.shape or not place.has_one_use() or (op.bias is not None and bias is None):
        return None
    axis = {top.Conv: 0, top.Deconv: 1}.get(type(real), weight.ndim - 1)
    if isinstance(real, top.MatMul) and real.transpose_b:
        axis = weight.ndim - 2
    shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
    spread = scale.astype(np.float64).reshape(shape if scale.size > 1 else [1] * weight.ndim)
    if scale.size not in (1, weight.shape[axis]):
        return None
    lowest, most = scheme.weight_limits
    exact = None if real.bias is None else source.constant(real.bias)
    return IntegerLayer(
        name,
        real,
        op,
        weight.astype(np.float64),
        integers,
        spread,
        axis,
        lowest,
        most,
        kind,
        bias,
        exact,
        scheme,
    )


def replace_integers(
    quantized: Graph, layer: IntegerLayer, integers: Array, bias_change: Array | None = None
) -> bool:
    """Replace the weights of a layer, and shift its bias by `bias_change` steps; False if the sums might not fit."""
    op = layer.integer_op
    chosen = np.clip(np.rint(integers), layer.lowest, layer.highest)
    if layer.pruned is not None:
        chosen = np.where(layer.pruned, 0, chosen)
    bias = layer.bias
    if bias is not None and bias_change is not None:
        bias = stored_bias(bias + np.asarray(bias_change, np.float64), layer.scheme).astype(bias.dtype)
    bits = layer.scheme.sum_bits if bias is None or bias.dtype == np.int32 else layer.scheme.wide_sum_bits
    if largest_sum(chosen.astype(np.int64), bias, layer.x, layer.axis) >= 1 << (bits - 1):
        return False
    integers_now = chosen.astype(layer.integers.dtype)
    kept = Weight(dtype_of(op.weight.type), integers_now.shape, integers_now)
    new = quantized.add_weight(f"{layer.name}/weight/chosen", kept)
    weight = top.WeightOp.of(new.ref, op.weight.type)
    op.parent.insert_op_before(weight, op)
    op.operands[list(op.operands).index(op.weight)] = weight.output
    if bias is not None and bias_change is not None:
        moved = quantized.add_weight(f"{layer.name}/bias/chosen", bias)
        op.parent.insert_op_before(moved, op)
        op.operands[list(op.operands).index(op.bias)] = moved.output
    return True
