"""Arithmetic of two tensors, and averages."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import (
    AddScaling,
    Scaling,
    add_parameters,
    mul_parameters,
    operand_sum_parameters,
)
from npuc.ir import Value, npu, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.ir.npu import NpuOp
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.lowering.scaling import flat, product_span, require_multipliers, require_room
from npuc.quant.parameters import activation_type, output_limits, quantize_array


def add_properties(scaling: AddScaling) -> dict[str, Any]:
    """The numbers of a sum as properties of its op."""
    integers = (scaling.left, scaling.multiplier_a, scaling.shift_a, scaling.multiplier_b, scaling.shift_b)
    return {
        "parameters": (*integers, scaling.multiplier, scaling.shift),
        "factors": (scaling.scale_a, scaling.scale_b) if scaling.kind.has_scale else (),
    }


def _summands(op: Any, context: LoweringContext, y: QuantType) -> tuple[Value, Value]:
    """Both operands as integers; a constant one within what can make a difference.

    A constant that drives every sum beyond the type of the result, such as the -inf of a mask, may be any other that does too:
    limited to it, the constant keeps the finest steps. Scores -4 to 4, a result of -16 to 4: a mask reaches from -20 to 8.
    """
    signs = (1, 1) if isinstance(op, top.Add) else (1, -1)
    operands = []
    for value, sign, other, other_sign in (
        (op.a, signs[0], op.b, signs[1]),
        (op.b, signs[1], op.a, signs[0]),
    ):
        array = context.constant(value)
        if array is None or context.constant(other) is not None or not array.size:
            operands.append(context.integer(value))
            continue
        low, high = _reals(y)
        ends = sorted(other_sign * end for end in _reals(context.type_of(other)))
        least, most = sorted((sign * (low - ends[1]), sign * (high - ends[0])))
        limited = np.clip(array, least, most)
        if float(np.abs(array).max()) <= 2 * float(np.abs(limited).max()):
            # Less than one bit to win.
            operands.append(context.integer(value))
            continue
        scheme = context.scheme(op)
        kind = activation_type(float(limited.min()), float(limited.max()), scheme)
        integers = quantize_array(limited, kind, scheme.constant_rounding, narrow=scheme.narrow_activations)
        operands.append(context.shared_weight(f"{value_name(value)}/limited", integers, kind))
    return operands[0], operands[1]


def _reals(kind: QuantType) -> tuple[float, float]:
    """The least and the largest real number of a type."""
    low, high = (kind.scale * (end - kind.zero_point) for end in kind.dtype.limits)
    return low, high


@lowers(top.Add, top.Sub)
def add(op: Any, context: LoweringContext) -> Value:
    """One rounding, TFLite's three, or one of each operand."""
    scheme, y = context.scheme(op), context.type_of(op.y)
    a, b = _summands(op, context, y)
    types = npu.definition.quantized(a), npu.definition.quantized(b)
    width = 8 * max(t.dtype.itemsize for t in types)
    try:
        scales = types[0].scale, types[1].scale, y.scale
        scaling = (
            operand_sum_parameters(*scales)
            if scheme.rounded_operands
            else add_parameters(scheme.requant, *scales, width=width, **scheme.stage)
        )
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    if scaling.kind.multiplier_bits is None and not (scaling.multiplier_a or scaling.multiplier_b):
        largest = 2.0**width * max(t.scale for t in types) / y.scale
        require_multipliers(Scaling(scaling.kind, np.zeros(1, np.int32)), largest)
    if scheme.requant is Kind.DOUBLE_ROUNDING and scaling.shift < 31:
        raise NoIntegerForm("its result is too fine: TFLite only scales sums down")
    kind: type[NpuOp] = npu.Add if isinstance(op, top.Add) else npu.Sub
    lo, hi = output_limits(y, op.relu, op.relu_limit, narrow=scheme.narrow_activations)
    total: Value = context.emit(
        kind, a, b, to=y, kind=scaling.kind, lo=lo, hi=hi, loc=op.location, **add_properties(scaling)
    ).y
    return total


@lowers(top.Mul)
def mul(op: top.Mul, context: LoweringContext) -> Value:
    """The product of integers is exact; one rounding."""
    scheme, y = context.scheme(op), context.type_of(op.y)
    a, b = context.integer(op.a), context.integer(op.b)
    types = context.type_of(op.a), context.type_of(op.b)
    try:
        scaling = mul_parameters(scheme.requant, types[0].scale, types[1].scale, y.scale, **scheme.stage)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    require_multipliers(scaling, prod(t.scale * 2.0 ** (8 * t.dtype.itemsize) for t in types) / y.scale)
    require_room(scaling, product_span(*types))
    lo, hi = output_limits(y, op.relu, op.relu_limit, narrow=scheme.narrow_activations)
    product: Value = context.emit(
        npu.Mul, a, b, to=y, kind=scheme.requant, lo=lo, hi=hi, loc=op.location, **flat(scaling)
    ).y
    return product


@lowers(top.Max, top.Min)
def choose(op: Any, context: LoweringContext) -> Value:
    """Both operands in the type of the result: the larger integer stands for the larger real."""
    to = context.type_of(op.y)
    a, b = context.joined(op.a, to), context.joined(op.b, to)
    extremum: Value = context.emit(type(op), a, b, loc=op.location).y
    return extremum
