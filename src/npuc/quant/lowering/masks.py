"""Comparisons, boolean arithmetic and choices: booleans are the integers 0 and 1, of scale 1.

    compare(a, b)     the sign of a - b by a table; the difference may saturate, its sign stays
    and, or, not      the product, the larger, 1 minus it
    where(m, a, b)    m * a + (1 - m) * b with a and b in the type of the result: every product is exact

Integers are compared that the NPU has made; what compares floats of the CPU stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.requantization import add_parameters, mul_parameters
from npuc.arrays import Array
from npuc.ir import Value, dtype_of, npu, shape_of, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.elementwise import add_properties
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.lowering.scaling import flat
from npuc.quant.lowering.tables import table_codes
from npuc.quant.parameters import output_limits
from npuc.quant.type_assignment import integers_of

_MODES: dict[str, Callable[[Array, int], Array]] = {
    "equal": lambda code, other: code == other,
    "less": lambda code, other: code < other,
    "less_equal": lambda code, other: code <= other,
    "greater": lambda code, other: code > other,
    "greater_equal": lambda code, other: code >= other,
}
_MIRRORED = {
    "equal": "equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
"""a <mode> b is b <mirrored mode> a."""


def _truth(op: Any, context: Any) -> QuantType:
    """The type of booleans: those of an op's scheme, with a scale of 1."""
    return QuantType.of(context.scheme(op).activation, 1.0, 0)


def _truth_types(op: Any, context: Any) -> list[QuantType | None]:
    return [_truth(op, context)]


def _sum(
    kind: type[npu.Add] | type[npu.Sub], op: Any, context: LoweringContext, a: Value, b: Value, **names: Any
) -> Value:
    """A sum or difference of integers of equal scales, which needs no rounding."""
    scheme, to = context.scheme(op), names.pop("to")
    types = [npu.definition.quantized(value) for value in (a, b)]
    try:
        scaling = add_parameters(
            scheme.requant,
            types[0].scale,
            types[1].scale,
            to.scale,
            width=8 * max(each.dtype.itemsize for each in types),
            **scheme.stage,
        )
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    lo, hi = output_limits(to, narrow=scheme.narrow_activations)
    total: Value = context.emit(
        kind, a, b, to=to, kind=scheme.requant, lo=lo, hi=hi, **names, **add_properties(scaling)
    ).y
    return total


def _product(
    op: Any, context: LoweringContext, mask: Value, value: Value, to: QuantType, **names: Any
) -> Value:
    """Integers where a mask is 1, and zero elsewhere."""
    scheme = context.scheme(op)
    try:
        scaling = mul_parameters(scheme.requant, 1.0, to.scale, to.scale, **scheme.stage)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    lo, hi = output_limits(to, narrow=scheme.narrow_activations)
    product: Value = context.emit(
        npu.Mul, mask, value, to=to, kind=scheme.requant, lo=lo, hi=hi, **names, **flat(scaling)
    ).y
    return product


def _opposite(op: Any, context: LoweringContext, mask: Value, truth: QuantType, **names: Any) -> Value:
    """1 - mask."""
    ones = context.shared_weight("true", np.ones((1,) * len(shape_of(mask)), truth.dtype.numpy), truth)
    return _sum(npu.Sub, op, context, ones, mask, to=truth, **names)


@lowers(top.Compare, types=_truth_types)
def compare(op: top.Compare, context: LoweringContext) -> Value:
    """By the sign of the difference; with one number, by a table alone."""
    truth = _truth(op, context)
    constants = [context.constant(value) for value in (op.a, op.b)]
    integers = [context.is_integer(value) for value in (op.a, op.b)]
    if not any(integers) or not all(i or c is not None for i, c in zip(integers, constants, strict=True)):
        raise NoIntegerForm("what it compares is float")
    if truth.dtype.itemsize != 1:
        raise NoIntegerForm("it jumps, and a table for 16 bits is interpolated")
    for value, mode, constant in ((op.a, op.mode, constants[1]), (op.b, _MIRRORED[op.mode], constants[0])):
        if constant is not None and constant.size == 1 and shape_of(value) == shape_of(op.y):
            kind, number = context.type_of(value), float(constant.reshape(-1)[0])
            code = int(np.clip(np.rint(number / kind.scale) + kind.zero_point, -(1 << 31), 1 << 31))
            return _looked_up(op, context, context.integer(value), mode, code)
    types = [context.type_of(value) for value in (op.a, op.b)]
    middle = 0 if truth.dtype.limits[0] < 0 else 128
    to = QuantType.of(truth.dtype, min(kind.scale for kind in types), middle)
    name = context.derived(op.y, "difference")
    difference = _sum(npu.Sub, op, context, context.integer(op.a), context.integer(op.b), to=to, name=name)
    return _looked_up(op, context, difference, op.mode, middle)


def _looked_up(op: top.Compare, context: LoweringContext, x: Value, mode: str, code: int) -> Value:
    """1 for the integers that stand to a code as the comparison says."""
    truth = _truth(op, context)
    codes = table_codes(npu.definition.quantized(x), context.scheme(op), continuous=False)
    entries = _MODES[mode](codes, code).astype(truth.dtype.numpy)
    looked_up: Value = context.emit(
        npu.Table,
        x,
        context.weight(f"{value_name(op.y)}/table", entries),
        to=truth,
        function=mode,
        loc=op.location,
    ).y
    return looked_up


def _no_reals(op: Any) -> Sequence[Value]:
    return ()


def _require_integers(context: LoweringContext, *values: Value) -> None:
    if not any(context.is_integer(value) for value in values):
        raise NoIntegerForm("its booleans are made by the CPU")


@lowers(top.Not, types=_truth_types, reals=_no_reals)
def opposite(op: top.Not, context: LoweringContext) -> Value:
    """1 - x."""
    _require_integers(context, op.x)
    truth = _truth(op, context)
    return _opposite(op, context, context.mask(op.x, truth), truth, loc=op.location)


@lowers(top.Logical, types=_truth_types, reals=_no_reals)
def logical(op: top.Logical, context: LoweringContext) -> Value:
    """The product, the larger, or the larger less the product."""
    _require_integers(context, op.a, op.b)
    truth = _truth(op, context)
    a, b = context.mask(op.a, truth), context.mask(op.b, truth)
    if op.mode == "and":
        return _product(op, context, a, b, truth, loc=op.location)
    if op.mode == "or":
        either: Value = context.emit(top.Max, a, b, loc=op.location).y
        return either
    either = context.emit(top.Max, a, b, name=context.derived(op.y, "either")).y
    both = _product(op, context, a, b, truth, name=context.derived(op.y, "both"))
    return _sum(npu.Sub, op, context, either, both, to=truth, loc=op.location)


def _reals_of_cast(op: top.Cast) -> Sequence[Value]:
    is_integer = dtype_of(op.x.type).name == "i1" or integers_of(op.y) is not None
    return () if is_integer else (op.x,)


@lowers(top.Cast, reals=_reals_of_cast)
def number(op: top.Cast, context: LoweringContext) -> Value:
    """0.0 and 1.0 of booleans; the integers of an input (pixels, samples of sound) as they are, with a scale of 1."""
    if integers_of(op.y) is not None:
        given: Value = context.emit(
            npu.Reinterpret, context.real(op.x), to=context.type_of(op.y), loc=op.location
        ).y
        return given
    if dtype_of(op.x.type).name != "i1":
        raise NoIntegerForm("it converts numbers")
    _require_integers(context, op.x)
    mask = context.mask(op.x, _truth(op, context))
    return context.requantized(mask, context.type_of(op.y), value_name(op.y))


@lowers(top.Where, reals=lambda op: (op.a, op.b))
def where(op: top.Where, context: LoweringContext) -> Value:
    """Both sides in the type of the result, each times its mask; their sum has one of them everywhere."""
    y = context.type_of(op.y)
    truth = QuantType.of(y.dtype, 1.0, 0)
    condition = context.constant(op.condition)
    sides: list[tuple[Value | None, Value]] = []
    for value, chosen in ((op.a, True), (op.b, False)):
        side = context.joined(value, y)
        array = context.constant(value)
        blank = array is not None and not array.any()
        if condition is not None:
            held = np.asarray(condition == chosen, truth.dtype.numpy)
            mask = context.shared_weight(f"{value_name(op.y)}/{'chosen' if chosen else 'other'}", held, truth)
        elif chosen or not blank:
            mask = context.mask(op.condition, truth)
            if not chosen:
                mask = _opposite(op, context, mask, truth, name=context.derived(op.y, "other"))
        sides.append((None if blank else mask, side))
    needed = [(mask, side) for mask, side in sides if mask is not None]
    if not needed:
        raise NoIntegerForm("both of its sides are zero")
    if len(needed) == 1 and _covers(needed[0], op):
        return _product(op, context, *needed[0], y, loc=op.location)
    products = [
        side if mask is None else _product(op, context, mask, side, y, name=context.derived(op.y, what))
        for (mask, side), what in zip(sides, ("first", "second"), strict=True)
    ]
    return _sum(npu.Add, op, context, *products, to=y, loc=op.location)


def _covers(operands: Sequence[Value], op: top.Where) -> bool:
    """Whether a mask and a side have, together, the shape of the result."""
    return prod(np.broadcast_shapes(*(shape_of(value) for value in operands))) == prod(shape_of(op.y))
