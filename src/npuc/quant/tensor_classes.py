"""Quantization of some classes of tensors only: weights, activations or biases, while layers compute in float.

With weights alone, a model is small and its activations are exact (weight-only quantization). With one class at a time, it can
be seen which of them costs accuracy. No machine computes with such a mixture: layers are float ops on the CPU whose operands
were rounded to integers, but for weights alone on a target with short floats (`npuc.quant.from_target.fitted`).

    weights      stored as integers; scale * q in float32 is what the layer multiplies by
    activations  each result, and each input of the network, is rounded to the integers of its range
    bias         rounded to steps of the input scale times the weight scale
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npuc.arrays import Array
from npuc.ir import Value, npu, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType, mlir_type
from npuc.quant.lowering.registry import keeps_type
from npuc.quant.parameters import quantize_affine_weight, quantize_bias, quantize_weight
from npuc.quant.scheme import TENSOR_CLASSES, Scheme

if TYPE_CHECKING:
    from npuc.quant.integer_values import IntegerValues


def weight_axis(op: TopOp, weight: Array) -> int | None:
    """The axis of output channels of a layer's constant weights; None if the op has none."""
    if isinstance(op, top.Conv):
        return 0
    if isinstance(op, top.Deconv):
        return 1
    if isinstance(op, top.MatMul):
        return weight.ndim - (2 if op.transpose_b else 1)
    return None


def quantized_operands(
    op: TopOp, operands: list[Value], context: IntegerValues, scheme: Scheme
) -> list[Value]:
    """The float operands of an op, of which those of the scheme's classes are what integers stand for."""
    operands = list(operands)
    if "activations" in scheme.classes:
        inputs = set(context.source.block.args)
        for index, value in enumerate(op.operands):
            if value in inputs and value_name(value) in context.ranges:
                operands[index] = rounded(value, operands[index], context, scheme)
    weight = context.constant(op.operands[1]) if len(op.operands) > 1 else None
    axis = None if weight is None else weight_axis(op, weight)
    if weight is None or axis is None or not np.isfinite(weight).all():
        return operands
    if isinstance(op, top.Deconv) and op.group > 1 and scheme.per_channel:
        scheme = replace(scheme, per_channel=False)
    integers, scales, zero = weights_as_integers(weight, axis, scheme)
    if "weights" in scheme.classes:
        operands[1] = _dequantized(op.operands[1], integers, scales, zero, axis, context)
    bias = getattr(op, "bias", None)
    array = None if bias is None else context.constant(bias)
    if "bias" in scheme.classes and bias is not None and array is not None and np.isfinite(array).all():
        step = context.ranged_type(op.operands[0], scheme).scale
        exact = quantize_bias(array, step, scales, scheme).astype(np.float64) * (step * scales)
        operands[list(op.operands).index(bias)] = context.shared_weight(
            f"{value_name(bias)}/rounded", exact.astype(np.float32)
        )
    return operands


def weights_as_integers(weight: Array, axis: int, scheme: Scheme) -> tuple[Array, Array, int]:
    """Integer weights, their scales (one, or one a channel) and their zero point."""
    if scheme.weight_scales == "affine":
        return quantize_affine_weight(weight, scheme)
    return (*quantize_weight(weight, axis, scheme), 0)


def dequantized_weights(weight: Array, axis: int, scheme: Scheme) -> Array:
    """The float32 numbers that the integers of a scheme stand for.

    >>> dequantized_weights(np.float32([[-1, 0.3, 1]]), 0, Scheme(weight="i4")).round(3).tolist()
    [[-1.0, 0.286, 1.0]]
    """
    integers, scales, zero = weights_as_integers(weight, axis, scheme)
    spread = _spread(scales, axis, weight.ndim)
    real: Array = (integers.astype(np.int32) - zero).astype(np.float32) * spread
    return real


def _spread(scales: Array, axis: int, rank: int) -> Array:
    shape = [-1 if i == axis and scales.size > 1 else 1 for i in range(rank)]
    return scales.astype(np.float32).reshape(shape)


def _dequantized(
    value: Value, integers: Array, scales: Array, zero: int, axis: int, context: IntegerValues
) -> Value:
    """Integer weights, and the product with their scales."""
    name = value_name(value)
    per_tensor = scales.size == 1
    if integers.dtype.itemsize == 1 and integers.dtype.kind != "u":
        integers = integers.astype(np.int8)  # the CPU has no shorter elements
    kind = QuantType.of(integers.dtype, float(np.float32(scales[0])) if per_tensor else 1.0, zero)
    stored = context.weight(f"{name}/quantized", integers, kind)
    real: Value = context.emit(npu.Dequantize, stored, to=mlir_type("f32"), name=f"{name}/steps").y
    if per_tensor:
        return real
    factors = context.weight(f"{name}/scale", _spread(scales, axis, integers.ndim))
    product: Value = context.emit(top.Mul, real, factors, name=f"{name}/real").y
    return product


def quantized_results(
    op: TopOp, results: Sequence[Value], context: IntegerValues, scheme: Scheme
) -> Sequence[Value]:
    """The float results of an op, rounded to the integers of their ranges if activations are quantized."""
    if "activations" not in scheme.classes or keeps_type(op):
        return results
    return [
        rounded(old, new, context, scheme) if value_name(old) in context.ranges else new
        for old, new in zip(op.results, results, strict=True)
    ]


def rounded(old: Value, new: Value, context: IntegerValues, scheme: Scheme) -> Value:
    """A float value as the reals that the integers of its range stand for."""
    kind = context.ranged_type(old, scheme)
    integers = context.rounded(old, new, kind)
    real: Value = context.emit(
        npu.Dequantize, integers, to=mlir_type("f32"), name=context.derived(old, "rounded")
    ).y
    return real


def words(scheme: Scheme) -> str:
    """Why layers of a scheme compute in float.

    >>> words(Scheme(classes=("weights", "bias")))
    'of its tensors weights and bias alone are quantized, so that it computes in float'
    """
    named = " and ".join(name for name in TENSOR_CLASSES if name in scheme.classes)
    return f"of its tensors {named} alone are quantized, so that it computes in float"
