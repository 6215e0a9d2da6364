"""Convolution and matrix product: integer weights with a scale a channel, integer biases in the scale of the accumulator."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import DType, dtype_of
from npuc.arrays import Array
from npuc.export.qdq.form import QdqForm, no_form
from npuc.export.qdq.limits import limits_of
from npuc.export.qdq.registry import expresses
from npuc.ir import Value, layer_name, npu, shape_of, top, value_name
from npuc.ir.dtypes import QuantType, element_of, quant_of
from npuc.ir.dtypes import dtype_of as element_dtype

_CONTAINERS = ("i4", "i8", "i16")
"""ONNX's signed integers for weights, the narrowest first."""
_INT32 = np.iinfo(np.int32)


@expresses(npu.Conv, npu.Deconv)
def convolution(op: npu.Conv | npu.Deconv, form: QdqForm) -> None:
    """Conv or ConvTranspose, with its relu."""
    transposed = isinstance(op, npu.Deconv)
    window: dict[str, Any] = {"output_padding": op.output_padding} if isinstance(op, npu.Deconv) else {}
    for name in ("strides", "pads", "dilations", "group"):
        window[name] = getattr(op, name)
    _linear(op, form, top.Deconv if transposed else top.Conv, 1 if transposed else 0, window)


@expresses(npu.MatMul)
def matmul(op: npu.MatMul, form: QdqForm) -> None:
    """MatMul or Gemm, with its relu."""
    _linear(op, form, top.MatMul, 0 if op.transpose_b else 1, {"transpose_b": op.transpose_b})


def _linear(op: Any, form: QdqForm, kind: Any, axis: int, properties: dict[str, Any]) -> None:
    x, limits = form.real(op.x), limits_of(op)
    if quant_of(op.weight) is not None:
        weight, bias = form.real(op.weight), None
    else:
        scales = weight_scales(op, form)
        weight = dequantized_weight(op, form, axis, scales)
        bias = dequantized_bias(op, form, scales)
    if kind is top.MatMul and bias is not None and len(shape_of(op.x)) != 2:
        _rows(op, form, weight, bias, properties)
        return
    y = form.emit(kind, x, weight, bias, loc=op.location, **properties, **limits.relu).y
    form.finish(op, y, fused=limits.is_relu)


def _rows(op: npu.MatMul, form: QdqForm, weight: Value, bias: Value, properties: dict[str, Any]) -> None:
    """A product with a bias of more or fewer than two axes, as one of matrices: only that is a Gemm, which has a bias.

    As a MatMul and an Add, ONNX Runtime would compute it with floats, or (1.31, int8) refuse what its optimizer makes of it.
    """
    limits, name, shape = limits_of(op), value_name(op.y), shape_of(op.x)
    x, y = quant_of(op.x), op.to
    assert x is not None and isinstance(y, QuantType)
    rows = form.emit(top.Reshape, form.real(op.x), shape=(prod(shape[:-1]), shape[-1]), name=f"{name}/rows").y
    rows = form.dequantized(form.quantized(rows, x, f"{name}/rows_quantized"), x, f"{name}/rows_dequantized")
    product = form.emit(
        top.MatMul,
        rows,
        weight,
        bias,
        name=f"{name}/product",
        layer=layer_name(op),
        **properties,
        **limits.relu,
    ).y
    product = form.bounded(op, product, limits.is_relu, f"{name}/product")
    integers = form.quantized(product, y, f"{name}/product_quantized")
    again = form.dequantized(integers, y, f"{name}/product_dequantized")
    form.quantize(op.y, form.emit(top.Reshape, again, shape=shape_of(op.y), loc=op.location).y)


def weight_scales(op: Any, form: QdqForm) -> Array:
    """The scales of the weights, one or one an output channel: as stated, or as the multipliers have them."""
    stated = form.constant(op.weight_scale)
    if stated is not None:
        return stated.astype(np.float32).reshape(-1)
    x = quant_of(op.x)
    assert x is not None
    factors, multipliers, shifts = (form.constant(value) for value in (op.factor, op.multiplier, op.shift))
    if op.kind.has_scale:
        assert factors is not None
        real = factors.astype(np.float64)
    else:
        assert shifts is not None
        whole = np.ones(1) if multipliers is None or not op.kind.has_multiplier else multipliers
        real = whole.astype(np.float64) * 2.0 ** -shifts.astype(np.float64)
    scales: Array = (real * op.to.scale / x.scale).astype(np.float32).reshape(-1)
    return scales


def container(dtype: DType) -> DType:
    """The type of ONNX that holds integers of a type: i3 lies in int4, i12 in int16."""
    if dtype.name.startswith("u"):
        return dtype.carrier
    return next(dtype_of(name) for name in _CONTAINERS if dtype_of(name).bits >= dtype.bits)


def dequantized_weight(op: Any, form: QdqForm, axis: int, scales: Array) -> Value:
    """DequantizeLinear of the integer weights."""
    integers = form.constant(op.weight)
    assert integers is not None
    if scales.size not in (1, integers.shape[axis]):
        raise no_form(
            op, f"its weights have {scales.size} scales for {integers.shape[axis]} channels of a group"
        )
    held = container(element_dtype(element_of(op.weight)))
    name = value_name(op.y)
    shape = () if scales.size == 1 else (scales.size,)
    zero = np.full(shape, op.weight_zero_point).astype(held.numpy)
    weight: Value = form.emit(
        top.Dequantize,
        form.weight(f"{name}/weight_quantized", integers.astype(held.numpy)),
        form.weight(f"{name}/weight_scale", scales.reshape(shape)),
        form.weight(f"{name}/weight_zero_point", zero),
        axis=axis,
        name=f"{name}/weight",
    ).y
    return weight


def dequantized_bias(op: Any, form: QdqForm, scales: Array) -> Value | None:
    """DequantizeLinear of the integer biases; the reals themselves where int32 does not hold the integers."""
    integers, x = form.constant(op.bias), quant_of(op.x)
    if integers is None:
        return None
    assert x is not None
    name = value_name(op.y)
    if integers.min(initial=0) < _INT32.min or integers.max(initial=0) > _INT32.max:
        reals = integers.astype(np.float64) * (x.scale * scales.astype(np.float64))
        return form.weight(f"{name}/bias", reals.astype(np.float32))
    shape = () if scales.size == 1 else (scales.size,)
    bias: Value = form.emit(
        top.Dequantize,
        form.weight(f"{name}/bias_quantized", integers.astype(np.int32)),
        form.weight(f"{name}/bias_scale", (np.float32(x.scale) * scales).reshape(shape)),
        form.weight(f"{name}/bias_zero_point", np.zeros(shape, np.int32)),
        axis=0,
        name=f"{name}/bias",
    ).y
    return bias
