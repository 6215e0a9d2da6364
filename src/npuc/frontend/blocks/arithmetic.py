"""Elementwise arithmetic, activations, reductions and matrix products, in whatever layout the operands are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor, to_second
from npuc.ir import Value, top
from npuc.ir.definition import normal_axis


def unary(c: ChannelsLastBuilder, x: LayoutTensor, kind: Any, **properties: Any) -> LayoutTensor:
    """A function of one operand that is one op."""
    return mapped(c, x, lambda value: c.emit(kind, value, **properties).results[0])


def mapped(c: ChannelsLastBuilder, x: LayoutTensor, function: Callable[[Value], Value]) -> LayoutTensor:
    """A function of each element."""
    second = x.is_turned
    return LayoutTensor(function(c.value(x, second)), second)


def together(c: ChannelsLastBuilder, *operands: LayoutTensor) -> tuple[list[Value], bool]:
    """Operands that broadcast together, in one layout, and whether channels are second in it."""
    rank = max(x.rank for x in operands)
    second = rank >= 3 and any(x.is_turned and x.rank == rank for x in operands)
    return [_spread(c, x, rank) if second else c.value(x) for x in operands], second


def _spread(c: ChannelsLastBuilder, x: LayoutTensor, rank: int) -> Value:
    if x.rank == rank:
        return c.value(x, second=True)
    if not x.rank:
        return c.value(x)
    full = (1,) * (rank - x.rank) + x.shape
    if x.array is not None:
        turned = x.array.reshape(full).transpose(to_second(rank))
        return c.value(c.constant(np.ascontiguousarray(turned), x.name))
    reshaped = c.emit(top.Reshape, c.value(x), shape=full).y
    return c.emit(top.Permute, reshaped, order=to_second(rank)).y


def binary(
    c: ChannelsLastBuilder, kind: Any, a: LayoutTensor, b: LayoutTensor, **properties: Any
) -> LayoutTensor:
    """A function of two operands under broadcasting that is one op."""
    (left, right), second = together(c, a, b)
    return LayoutTensor(c.emit(kind, left, right, **properties).results[0], second)


def folded(c: ChannelsLastBuilder, kind: Any, operands: Sequence[LayoutTensor]) -> LayoutTensor:
    """A binary op over a list: ((a . b) . c) ..."""
    if not operands:
        raise InvalidModelError(f"'{c.first}' has no operands")
    total = operands[0]
    for x in operands[1:]:
        total = binary(c, kind, total, x)
    return total


def scaled(c: ChannelsLastBuilder, x: LayoutTensor, factor: float, offset: float = 0.0) -> LayoutTensor:
    """x * factor + offset"""
    if factor != 1.0:
        x = binary(c, top.Mul, x, c.number(factor, x))
    return x if offset == 0.0 else binary(c, top.Add, x, c.number(offset, x))


def cast(c: ChannelsLastBuilder, x: LayoutTensor, to: str) -> LayoutTensor:
    """x in another element type; x itself if it has that type."""
    return x if x.dtype.name == to else unary(c, x, top.Cast, to=to)


def axis_of(x: LayoutTensor, axis: int) -> int:
    """Where an axis of the framework is in the layout that x is held in."""
    axis = normal_axis(axis, x.rank)
    return to_second(x.rank).index(axis) if x.is_turned else axis


def along(
    c: ChannelsLastBuilder, x: LayoutTensor, kind: Any, axis: int = -1, **properties: Any
) -> LayoutTensor:
    """An op along an axis that keeps the shape."""
    second = x.is_turned
    return LayoutTensor(
        c.emit(kind, c.value(x, second), axis=axis_of(x, axis), **properties).results[0], second
    )


def reduce(
    c: ChannelsLastBuilder, x: LayoutTensor, kind: str, axes: Iterable[int], keepdims: bool = False
) -> LayoutTensor:
    """`kind` of the values over some axes."""
    gone = sorted({normal_axis(axis, x.rank) for axis in axes})
    second = x.is_turned
    if second and not keepdims:
        # What is left has to be in the framework's order.
        left = [axis for axis in range(x.rank) if axis not in gone]
        places = [to_second(x.rank).index(axis) for axis in left]
        second = places == sorted(places)
    order = to_second(x.rank) if second else tuple(range(x.rank))
    if not gone:
        return x
    places = sorted(order.index(axis) for axis in gone)
    reduced = c.emit(top.Reduce, c.value(x, second), kind=kind, axes=places, keepdims=keepdims).y
    return LayoutTensor(reduced, second and keepdims)


def matmul(
    c: ChannelsLastBuilder,
    a: LayoutTensor,
    b: LayoutTensor,
    bias: LayoutTensor | None = None,
    *,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
) -> LayoutTensor:
    """a @ b + bias over the last two axes; vectors are rows."""
    left, right = c.value(a), c.value(b)
    if a.rank < 2 or b.rank < 2:
        raise InvalidModelError(f"'{c.first}' multiplies matrices of rank {a.rank} and {b.rank}")
    if adjoint_a:
        left = c.emit(top.Permute, left, order=(*range(a.rank - 2), a.rank - 1, a.rank - 2)).y
    added = None if bias is None else c.value(bias)
    return LayoutTensor(c.emit(top.MatMul, left, right, added, transpose_b=adjoint_b).y)


def add_channels(
    c: ChannelsLastBuilder, x: LayoutTensor, bias: LayoutTensor, channels_first: bool = False
) -> LayoutTensor:
    """x + bias, one number a channel."""
    if channels_first and x.rank > 2:
        shape = (-1, *(1,) * (x.rank - 2))
        if bias.array is not None:
            bias = c.constant(bias.array.reshape(shape), bias.name)
        else:
            full = (bias.shape[0], *(1,) * (x.rank - 2))
            bias = LayoutTensor(c.emit(top.Reshape, c.value(bias), shape=full).y)
    return binary(c, top.Add, x, bias)


def floor_div(c: ChannelsLastBuilder, a: LayoutTensor, b: LayoutTensor) -> LayoutTensor:
    """The quotient, rounded down."""
    if a.dtype.is_float:
        return unary(c, binary(c, top.Div, a, b), top.Floor)
    rest = binary(c, top.Mod, a, b)
    return binary(c, top.Div, binary(c, top.Sub, a, rest), b)


def squared_difference(c: ChannelsLastBuilder, a: LayoutTensor, b: LayoutTensor) -> LayoutTensor:
    """(a - b)^2"""
    difference = binary(c, top.Sub, a, b)
    return binary(c, top.Mul, difference, difference)


def not_equal(c: ChannelsLastBuilder, a: LayoutTensor, b: LayoutTensor) -> LayoutTensor:
    """a != b"""
    return unary(c, binary(c, top.Compare, a, b, mode="equal"), top.Not)


def where(c: ChannelsLastBuilder, condition: LayoutTensor, a: LayoutTensor, b: LayoutTensor) -> LayoutTensor:
    """condition ? a : b"""
    if a.dtype.name == "i1":  # ONNX Runtime chooses between numbers only
        left = binary(c, top.Logical, condition, a, mode="and")
        right = binary(c, top.Logical, unary(c, condition, top.Not), b, mode="and")
        return binary(c, top.Logical, left, right, mode="or")
    (test, yes, no), second = together(c, condition, a, b)
    return LayoutTensor(c.emit(top.Where, test, yes, no).y, second)


def truth(
    c: ChannelsLastBuilder, x: LayoutTensor, kind: str, axes: Iterable[int], keepdims: bool
) -> LayoutTensor:
    """Any or all of booleans."""
    return cast(c, reduce(c, cast(c, x, "i32"), kind, axes, keepdims), "i1")


def arg(
    c: ChannelsLastBuilder, x: LayoutTensor, axis: int, largest: bool, to: str, keepdims: bool = False
) -> LayoutTensor:
    """The first index of the extreme value."""
    indices = c.emit(
        top.ArgReduce, c.value(x), max=largest, axis=normal_axis(axis, x.rank), keepdims=keepdims
    ).y
    return LayoutTensor(indices if to == "i64" else c.emit(top.Cast, indices, to=to).y)
