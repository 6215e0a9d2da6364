"""The layers with integer weights of a network, seen from both sides: the float one, and the integer one made of it.

Algorithms that choose integers (learned rounding, GPTQ) read and write them here, inside what the types and the proof
that sums fit allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, npu, result_names, top
from npuc.ir.dtypes import QuantType, dtype_of, quant_of
from npuc.quant.parameters import largest_sum, stored_bias
from npuc.quant.scheme import Scheme

_PAIRS: dict[type[Any], type[Any]] = {top.Conv: npu.Conv, top.Deconv: npu.Deconv, top.MatMul: npu.MatMul}


@dataclass(frozen=True)
class IntegerLayer:
    """One convolution or product with constant weights."""

    name: str
    real: Any
    """The op of the float network."""
    made: Any
    """The op of the integer network."""
    weight: Array
    """Float, in float64."""
    integers: Array
    scale: Array
    """Of the weights, in the shape in which it broadcasts with them."""
    axis: int
    """Of the output channels."""
    lowest: int
    highest: int
    x: QuantType
    bias: Array | None
    """Integers in steps of the sums."""
    real_bias: Array | None
    scheme: Scheme

    @property
    def unit(self) -> Array:
        """What one step of the sum of each output channel is worth."""
        count = self.weight.shape[self.axis]
        return self.x.scale * np.broadcast_to(self.scale.reshape(-1), (count,))


def output_channel_axis(op: object, rank: int) -> int:
    """Where the output channels of a layer with weights are: axis 1 of a convolution, the last axis of a product.

    A product of rank 4 looks like a map, but its channels are not axis 1.
    """
    return rank - 1 if isinstance(op, top.MatMul | npu.MatMul) else 1


def integer_layers(source: Graph, made: Graph, scheme_of: Any) -> list[IntegerLayer]:
    """The layers whose weights one op uses, and which both networks know by one name, in order."""
    real = {result_names(op)[0]: op for op in source.ops if type(op) in _PAIRS}
    found = []
    for op in made.ops:
        if not isinstance(op, npu.Conv | npu.Deconv | npu.MatMul):
            continue
        name = result_names(op)[0]
        twin: Any = real.get(name)
        if twin is None or not isinstance(op, _PAIRS[type(twin)]):
            continue
        layer = _layer(name, twin, op, source, made, scheme_of(twin) or Scheme())
        if layer is not None:
            found.append(layer)
    return found


def _layer(name: str, real: Any, op: Any, source: Graph, made: Graph, scheme: Scheme) -> IntegerLayer | None:
    place = real.b if isinstance(real, top.MatMul) else real.weight
    weight, kind = source.constant(place), quant_of(op.x)
    integers, scale = made.constant(op.weight), made.constant(op.weight_scale)
    bias = None if op.bias is None else made.constant(op.bias)
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
    least, most = dtype_of(scheme.weight).limits
    lowest = -most if scheme.narrow_weights else least
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
    made: Graph, layer: IntegerLayer, integers: Array, bias_change: Array | None = None
) -> bool:
    """Give a layer of an integer network other weights, and a bias moved by so many steps; False if sums may not fit."""
    op = layer.made
    chosen = np.clip(np.rint(integers), layer.lowest, layer.highest)
    bias = layer.bias
    if bias is not None and bias_change is not None:
        bias = stored_bias(bias + np.asarray(bias_change, np.float64), layer.scheme).astype(bias.dtype)
    bits = layer.scheme.sum_bits if bias is None or bias.dtype == np.int32 else layer.scheme.wide_sum_bits
    if largest_sum(chosen.astype(np.int64), bias, layer.x, layer.axis) >= 1 << (bits - 1):
        return False
    new = made.add_weight(f"{layer.name}/weight/chosen", chosen.astype(layer.integers.dtype))
    weight = top.WeightOp.of(new.ref, op.weight.type)
    op.parent.insert_op_before(weight, op)
    op.operands[list(op.operands).index(op.weight)] = weight.output
    if bias is not None and bias_change is not None:
        moved = made.add_weight(f"{layer.name}/bias/chosen", bias)
        op.parent.insert_op_before(moved, op)
        op.operands[list(op.operands).index(op.bias)] = moved.output
    return True
