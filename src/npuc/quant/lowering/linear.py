"""Convolution and matrix product: integer weights, an integer bias, one multiplier an output channel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import product_factors, scaling
from npuc.arithmetic.tflite import narrowed, product, rounded_scaling
from npuc.arrays import Array
from npuc.ir import DType, Value, dtype_of, npu, shape_of, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.parameters import bias_fits, largest_sum, output_limits
from npuc.quant.scheme import Scheme


def sum_kind(scheme: Scheme) -> str:
    """The kind of the output stage of sums: TFLite scales its 64-bit sums with one rounding."""
    return Kind.SINGLE_ROUNDING if scheme.requant is Kind.DOUBLE_ROUNDING and scheme.wide else scheme.requant


def output_stage(
    context: LoweringContext, name: str, factors: Array, scheme: Scheme, width: int = 0
) -> list[Value | None]:
    """The constants (multiplier, shift, factor) that scale accumulators by real `factors`.

    A `width` in bits is that of a fully connected layer of TFLite, which rounds once.
    """
    try:
        if width:
            stage = rounded_scaling(factors, width)
        else:
            stage = scaling(scheme.requant, factors, **scheme.stage)
            if sum_kind(scheme) != scheme.requant:
                stage = narrowed(stage)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    columns = {"multiplier": stage.multiplier, "shift": stage.shift, "factor": stage.scale}
    return [None if c is None else context.weight(f"{name}/{what}", c) for what, c in columns.items()]


def weight_type(integers: Array, scheme: Scheme) -> DType:
    """The element type of integer weights: the scheme's, unless a model brought integers of its own type."""
    own, stated = dtype_of(integers.dtype), dtype_of(scheme.weight)
    if stated.numpy != integers.dtype or stated == own:
        return own
    least, most = stated.limits
    fits = not integers.size or (least <= integers.min() and integers.max() <= most)
    return stated if fits else own


def require_room(weight: Array, zero: int, bias: Array | None, x: QuantType, axis: int, bits: int) -> None:
    """No accumulator may overflow: sum |q_w - z_w| * max |q_x - z_x| + |bias| stays below 2^(bits - 1) on every channel."""
    (low, high), (least, most) = dtype_of(weight.dtype).limits, x.dtype.limits
    each = max(high - zero, zero - low) * max(most - x.zero_point, x.zero_point - least)
    biases = 0 if bias is None else int(np.abs(bias.astype(np.int64)).max(initial=0))
    if weight.size // max(weight.shape[axis], 1) * each + biases < 1 << (bits - 1):
        return  # whatever the weights are
    worst = largest_sum(weight.astype(np.int64) - zero, bias, x, axis)
    if worst >= 1 << (bits - 1):
        raise NoIntegerForm(f"its sum can reach {worst}, more than an accumulator of {bits} bits holds")


def require_scaled_room(largest: int, factors: Array) -> None:
    """What TFLite makes of a 64-bit sum has 32 bits before it is saturated."""
    if largest * float(np.max(factors, initial=0.0)) >= 2.0**31:
        raise NoIntegerForm("its scaled sum can leave 32 bits: its result is too fine")


def _linear(
    op: Any,
    context: LoweringContext,
    kind: type[npu.OutputStage],
    axis: int,
    scheme: Scheme,
    **properties: Any,
) -> Value:
    """Shared by all ops with constant weights; `axis` is the output-channel axis of the weight."""
    name, source = value_name(op.results[0]), op.operands[0]
    x, y = context.type_of(source), context.type_of(op.results[0])
    if op.bias is not None and context.constant(op.bias) is None:
        raise NoIntegerForm("its bias is computed at run time")
    # Coarser weights rather than a multiplier of 0, or a shift that there is not.
    least = scheme.least_factor * y.scale / x.scale
    integers, scales, zero = context.quantized_weight(op.operands[1], axis, scheme, op.bias, x.scale, least)
    bias = None if op.bias is None else context.quantized_bias(op.bias, x.scale, scales, scheme)
    if bias is not None and not bias_fits(bias, scheme):
        raise NoIntegerForm("its bias has more bits than a bias may have")
    try:
        require_room(integers, zero, bias, x, axis, scheme.accumulator_bits)
    except NoIntegerForm as error:
        if scheme.wide or not scheme.has_wide_sums:
            raise
        require_room(integers, zero, bias, x, axis, scheme.wide_sum_bits)
        context.remarks.append(f"{name} needs a wide accumulator: {error}")
        bias = None if bias is None else bias.astype(np.int64)
    factors = product_factors(scheme.requant, x.scale, scales, y.scale)
    rounds_once = kind is npu.MatMul and scheme.requant is Kind.DOUBLE_ROUNDING
    if not rounds_once and scheme.requant is Kind.DOUBLE_ROUNDING and x.dtype.name == "ui8":
        factors = np.array([product(x.scale, float(scale)) / y.scale for scale in scales])
    if scheme.requant is Kind.DOUBLE_ROUNDING and scheme.wide:
        worst = largest_sum(integers.astype(np.int64) - zero, bias, x, axis)
        require_scaled_room(worst, factors)
    stage = output_stage(context, name, factors, scheme, 8 * y.dtype.itemsize if rounds_once else 0)
    lo, hi = output_limits(y, op.relu, op.relu_limit, narrow=scheme.narrow_activations)
    result: Value = context.emit(
        kind,
        context.integer(source),
        context.weight(f"{name}/weight", integers, dtype=weight_type(integers, scheme)),
        None if bias is None else context.weight(f"{name}/bias", bias),
        *stage,
        context.weight(f"{name}/weight_scale", scales.astype(np.float32)),
        to=y,
        kind=Kind.SINGLE_ROUNDING if rounds_once else sum_kind(scheme),
        lo=lo,
        hi=hi,
        weight_zero_point=zero,
        loc=op.location,
        **properties,
    ).y
    return result


@lowers(top.Conv)
def conv(op: top.Conv, context: LoweringContext) -> Value:
    """Convolution."""
    if len(op.strides) != 2:
        raise NoIntegerForm(f"it has {len(op.strides)} spatial axes, not 2")
    window = {"strides": op.strides, "pads": op.pads, "dilations": op.dilations, "group": op.group}
    return _linear(op, context, npu.Conv, 0, context.scheme(op), **window)


@lowers(top.Deconv)
def deconv(op: top.Deconv, context: LoweringContext) -> Value:
    """Transposed convolution."""
    if len(op.strides) != 2:
        raise NoIntegerForm(f"it has {len(op.strides)} spatial axes, not 2")
    window = {"strides": op.strides, "pads": op.pads, "dilations": op.dilations, "group": op.group}
    scheme = context.scheme(op)
    if op.group > 1:
        # Axis 1 of the weight is the channels of one group: a scale for each would serve channels of all groups.
        scheme = replace(scheme, per_channel=False)
    return _linear(op, context, npu.Deconv, 1, scheme, output_padding=op.output_padding, **window)


@lowers(top.MatMul)
def matmul(op: top.MatMul, context: LoweringContext) -> Value:
    """With a constant matrix, or of two activations."""
    weight = context.constant(op.b)
    if weight is not None and weight.ndim == 2:
        axis = 0 if op.transpose_b else 1
        return _linear(op, context, npu.MatMul, axis, context.scheme(op), transpose_b=op.transpose_b)
    if op.bias is not None:
        raise NoIntegerForm("it has a bias, and both operands are activations")
    scheme, name = context.scheme(op), value_name(op.results[0])
    a, b, y = context.integer(op.a), context.integer(op.b), context.type_of(op.results[0])
    x, w = context.type_of(op.a), context.type_of(op.b)
    inner = shape_of(op.a)[-1]
    reach = [max(t.dtype.limits[1] - t.zero_point, t.zero_point - t.dtype.limits[0]) for t in (x, w)]
    bits = scheme.wide_sum_bits if scheme.has_wide_sums else scheme.sum_bits
    if reach[0] * reach[1] * inner >= 1 << (bits - 1):
        raise NoIntegerForm(f"its sum of {inner} products can overflow an accumulator of {bits} bits")
    scale = product(x.scale, w.scale) if scheme.requant is Kind.DOUBLE_ROUNDING else x.scale * w.scale
    if scheme.requant is Kind.DOUBLE_ROUNDING and scheme.wide:
        require_scaled_room(reach[0] * reach[1] * inner, np.array([scale / y.scale]))
    factor = scale / y.scale
    if scheme.requant.has_scale:
        factor = float(product_factors(scheme.requant, x.scale, w.scale, y.scale))
    stage = output_stage(context, name, np.array([factor]), scheme)
    lo, hi = output_limits(y, op.relu, op.relu_limit, narrow=scheme.narrow_activations)
    result: Value = context.emit(
        npu.MatMul,
        a,
        b,
        None,
        *stage,
        None,
        to=y,
        kind=sum_kind(scheme),
        lo=lo,
        hi=hi,
        loc=op.location,
        transpose_b=op.transpose_b,
    ).y
    return result
