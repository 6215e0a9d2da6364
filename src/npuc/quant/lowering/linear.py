"""Convolution and matrix product: integer weights, an integer bias, one multiplier an output channel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npuc.ir import Value, npu, shape_of, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.arithmetic import scaling
from npuc.quant.lower import Context
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.parameters import relu_limits
from npuc.quant.scheme import Scheme

Array = np.ndarray[Any, Any]
WIDE = 48
"""Bits of the accumulator for sums that 32 bits do not hold."""


def output_stage(context: Context, name: str, factors: Array, scheme: Scheme) -> list[Value | None]:
    """The constants (multiplier, shift, factor) that scale accumulators by real `factors`."""
    try:
        found = scaling(scheme.requant, factors, scheme.multiplier_bits)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    columns = {"multiplier": found.multiplier, "shift": found.shift, "factor": found.scale}
    return [None if c is None else context.weight(f"{name}/{what}", c) for what, c in columns.items()]


def require_room(weight: Array, bias: Array | None, x: QuantType, axis: int, bits: int) -> None:
    """No accumulator may overflow: sum |q_w| * max |q_x - z_x| + |bias| stays below 2^(bits - 1) on every channel."""
    least, most = x.dtype.limits
    reach = max(most - x.zero_point, x.zero_point - least)
    others = tuple(i for i in range(weight.ndim) if i != axis)
    worst = np.abs(weight.astype(np.int64)).sum(axis=others).astype(object) * reach
    if bias is not None and bias.size:
        # A grouped transposed convolution has a bias for each channel of each group.
        sizes = np.abs(bias.astype(object))
        worst = worst + (sizes if sizes.shape == worst.shape else sizes.max())
    if max(worst, default=0) >= 1 << (bits - 1):
        raise NoIntegerForm(f"its sum can reach {max(worst)}, more than an accumulator of {bits} bits holds")


def _linear(
    op: Any,
    context: Context,
    kind: type[npu.OutputStage],
    axis: int,
    scheme: Scheme,
    **properties: Any,
) -> Value:
    """Shared by all ops with constant weights; `axis` is the output-channel axis of the weight."""
    name, source = value_name(op.results[0]), op.operands[0]
    x, y = context.type_of(source), context.type_of(op.results[0])
    bits = scheme.accumulator_bits
    if op.bias is not None and context.constant(op.bias) is None:
        raise NoIntegerForm("its bias is computed at run time")
    integers, scales, zero = context.quantized_weight(op.operands[1], axis, scheme, op.bias, x.scale)
    bias = None if op.bias is None else context.quantized_bias(op.bias, x.scale, scales, bits)
    centred = integers.astype(np.int64) - zero
    try:
        require_room(centred, bias, x, axis, bits)
    except NoIntegerForm as error:
        if not context.wide_sums or scheme.requant == "double":
            raise
        require_room(centred, bias, x, axis, WIDE)
        context.remarks.append(f"{name} needs a wide accumulator: {error}")
        bias = None if bias is None else bias.astype(np.int64)
    stage = output_stage(context, name, x.scale * scales / y.scale, scheme)
    lo, hi = relu_limits(y, op.relu, op.relu_limit)
    made: Value = context.emit(
        kind,
        context.integer(source),
        context.weight(f"{name}/weight", integers),
        None if bias is None else context.weight(f"{name}/bias", bias),
        *stage,
        context.weight(f"{name}/weight_scale", scales.astype(np.float32)),
        to=y,
        kind=scheme.requant,
        lo=lo,
        hi=hi,
        weight_zero_point=zero,
        loc=op.location,
        **properties,
    ).y
    return made


@lowers(top.Conv)
def conv(op: top.Conv, context: Context) -> Value:
    """Convolution."""
    if len(op.strides) != 2:
        raise NoIntegerForm(f"it has {len(op.strides)} spatial axes, not 2")
    window = {"strides": op.strides, "pads": op.pads, "dilations": op.dilations, "group": op.group}
    return _linear(op, context, npu.Conv, 0, context.scheme(op), **window)


@lowers(top.Deconv)
def deconv(op: top.Deconv, context: Context) -> Value:
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
def matmul(op: top.MatMul, context: Context) -> Value:
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
    if reach[0] * reach[1] * inner >= 1 << (scheme.accumulator_bits - 1):
        raise NoIntegerForm(
            f"its sum of {inner} products can overflow an accumulator of {scheme.accumulator_bits} bits"
        )
    stage = output_stage(context, name, np.array([x.scale * w.scale / y.scale]), scheme)
    lo, hi = relu_limits(y, op.relu, op.relu_limit)
    made: Value = context.emit(
        npu.MatMul,
        a,
        b,
        None,
        *stage,
        None,
        to=y,
        kind=scheme.requant,
        lo=lo,
        hi=hi,
        loc=op.location,
        transpose_b=op.transpose_b,
    ).y
    return made
