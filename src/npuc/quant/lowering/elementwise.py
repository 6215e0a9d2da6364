"""Arithmetic of two tensors, and averages."""

from __future__ import annotations

from math import prod
from typing import Any

from npuc.ir import Value, npu, top
from npuc.ir.npu import NpuOp
from npuc.quant.arithmetic import AddScaling, add_parameters, mul_parameters, pool_parameters
from npuc.quant.lower import Context, flat
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.parameters import relu_limits


def _add_properties(found: AddScaling) -> dict[str, Any]:
    integers = (found.left, found.multiplier_a, found.shift_a, found.multiplier_b, found.shift_b)
    return {
        "parameters": (*integers, found.multiplier, found.shift),
        "factors": (found.scale_a, found.scale_b) if found.kind == "float" else (),
    }


@lowers(top.Add, top.Sub)
def add(op: Any, context: Context) -> Value:
    """One rounding, or TFLite's three."""
    scheme, y = context.scheme(op), context.type_of(op.y)
    a, b = context.integer(op.a), context.integer(op.b)
    types = context.type_of(op.a), context.type_of(op.b)
    width = 8 * max(t.dtype.itemsize for t in types)
    try:
        found = add_parameters(
            scheme.requant, types[0].scale, types[1].scale, y.scale, scheme.multiplier_bits, width=width
        )
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    kind: type[NpuOp] = npu.Add if isinstance(op, top.Add) else npu.Sub
    lo, hi = relu_limits(y, op.relu, op.relu_limit)
    made: Value = context.emit(
        kind, a, b, to=y, kind=scheme.requant, lo=lo, hi=hi, loc=op.location, **_add_properties(found)
    ).y
    return made


@lowers(top.Mul)
def mul(op: top.Mul, context: Context) -> Value:
    """The product of integers is exact; one rounding."""
    scheme, y = context.scheme(op), context.type_of(op.y)
    a, b = context.integer(op.a), context.integer(op.b)
    scales = context.type_of(op.a).scale, context.type_of(op.b).scale
    try:
        found = mul_parameters(scheme.requant, *scales, y.scale, scheme.multiplier_bits)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    lo, hi = relu_limits(y, op.relu, op.relu_limit)
    made: Value = context.emit(
        npu.Mul, a, b, to=y, kind=scheme.requant, lo=lo, hi=hi, loc=op.location, **flat(found)
    ).y
    return made


@lowers(top.AvgPool)
def avg_pool(op: top.AvgPool, context: Context) -> Value:
    """The sum of a window times 1 / count, with a multiplier for every count that occurs."""
    scheme, y = context.scheme(op), context.type_of(op.y)
    if len(op.kernel) != 2 or set(op.dilations) != {1}:
        raise NoIntegerForm("it is not a plain window of two axes")
    x = context.type_of(op.x)
    value = context.integer(op.x)
    if scheme.requant == "double" and x != y:
        value, x = context.integer(op.x, y), y
    count = prod(op.kernel)
    partial = any(op.pads) or op.ceil_mode
    counts = list(range(1, count + 1)) if partial and not op.count_include_pad else [count]
    if len(counts) > 4096:
        raise NoIntegerForm(f"a padded window of {count} positions has too many counts")
    try:
        found = pool_parameters(scheme.requant, x.scale, y.scale, counts, scheme.multiplier_bits)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    lo, hi = y.dtype.limits
    properties = {} if scheme.requant == "double" else flat(found)
    made: Value = context.emit(
        npu.AvgPool,
        value,
        to=y,
        kind=found.kind,
        lo=lo,
        hi=hi,
        kernel=op.kernel,
        strides=op.strides,
        pads=op.pads,
        ceil_mode=op.ceil_mode,
        count_include_pad=op.count_include_pad,
        loc=op.location,
        **properties,
    ).y
    return made
