"""Elementwise arithmetic, of one operand and of two: in whatever layout the operands are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuc.errors import InvalidModelError
from npuc.frontend.layout import LayoutTensor, to_second
from npuc.frontend.tflite.activation import activated, fused_relu
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.scope import TfliteContext
from npuc.ir import Value, dtype_of, shape_of, top
from npuc.ir.definition import TopOp


def together(ctx: TfliteContext, *indices: int, nchw: bool | None = None) -> tuple[list[Value], bool]:
    """Operands that broadcast together, in one layout, by default one that they have; whether channels are second."""
    if nchw is None:
        nchw = ctx.turned(*indices) and max(ctx.rank(index) for index in indices) == 4
    return [_operand(ctx, index, nchw) for index in indices], nchw


def _operand(ctx: TfliteContext, index: int, nchw: bool) -> Value:
    shape = ctx.shape(index)
    if not nchw or not shape:
        return ctx.real(index)
    if len(shape) == 4:
        return ctx.real(index, nchw=True)
    full = (1,) * (4 - len(shape)) + shape
    if ctx.weight(index) is not None:
        return ctx.constant(index, lambda array: array.reshape(full).transpose(to_second(4)))
    value = ctx.emit(top.Reshape, ctx.value(index), shape=full).y
    return ctx.reals(ctx.emit(top.Permute, value, order=to_second(4)).y, index)


def _arithmetic(name: str, kind: type[TopOp], options: str, fuses: bool) -> None:
    def translate(ctx: TfliteContext) -> Outcome:
        chosen = ctx.options(options)
        (a, b), nchw = together(ctx, 0, 1)
        properties = fused_relu(chosen) if fuses and dtype_of(a.type).is_float else {}
        y = ctx.emit(kind, a, b, **properties).results[0]
        return LayoutTensor(activated(ctx, y, chosen, fuses=bool(properties)), nchw)

    rule(name)(translate)


_arithmetic("ADD", top.Add, "AddOptions", True)
_arithmetic("SUB", top.Sub, "SubOptions", True)
_arithmetic("MUL", top.Mul, "MulOptions", True)
_arithmetic("DIV", top.Div, "DivOptions", False)


def _binary(name: str, function: Callable[[TfliteContext, Value, Value], Value]) -> None:
    def translate(ctx: TfliteContext) -> Outcome:
        (a, b), nchw = together(ctx, 0, 1)
        return LayoutTensor(function(ctx, a, b), nchw)

    rule(name)(translate)


def _plain(kind: Any, **properties: Any) -> Callable[[TfliteContext, Value, Value], Value]:
    return lambda ctx, a, b: ctx.emit(kind, a, b, **properties).results[0]


def _floor_div(ctx: TfliteContext, a: Value, b: Value) -> Value:
    if dtype_of(a.type).is_float:
        return ctx.emit(top.Floor, ctx.emit(top.Div, a, b).y).y
    rest = ctx.emit(top.Mod, a, b).y
    return ctx.emit(top.Div, ctx.emit(top.Sub, a, rest).y, b).y


def _floor_mod(ctx: TfliteContext, a: Value, b: Value) -> Value:
    if not dtype_of(a.type).is_float:
        return ctx.emit(top.Mod, a, b).y
    whole = ctx.emit(top.Mul, _floor_div(ctx, a, b), b).y
    return ctx.emit(top.Sub, a, whole).y


def _squared_difference(ctx: TfliteContext, a: Value, b: Value) -> Value:
    difference = ctx.emit(top.Sub, a, b).y
    return ctx.emit(top.Mul, difference, difference).y


def _not_equal(ctx: TfliteContext, a: Value, b: Value) -> Value:
    return ctx.emit(top.Not, ctx.emit(top.Compare, a, b, mode="equal").y).y


_binary("MAXIMUM", _plain(top.Max))
_binary("MINIMUM", _plain(top.Min))
_binary("POW", _plain(top.Pow))
_binary("FLOOR_DIV", _floor_div)
_binary("FLOOR_MOD", _floor_mod)
_binary("SQUARED_DIFFERENCE", _squared_difference)
_binary("EQUAL", _plain(top.Compare, mode="equal"))
_binary("NOT_EQUAL", _not_equal)
_binary("LESS", _plain(top.Compare, mode="less"))
_binary("LESS_EQUAL", _plain(top.Compare, mode="less_equal"))
_binary("GREATER", _plain(top.Compare, mode="greater"))
_binary("GREATER_EQUAL", _plain(top.Compare, mode="greater_equal"))
_binary("LOGICAL_AND", _plain(top.Logical, mode="and"))
_binary("LOGICAL_OR", _plain(top.Logical, mode="or"))


@rule("ADD_N")
def add_n(ctx: TfliteContext) -> Outcome:
    """The sum of all operands."""
    values, nchw = together(ctx, *range(len(ctx.op.inputs)))
    total = values[0]
    for value in values[1:]:
        total = ctx.emit(top.Add, total, value).y
    return LayoutTensor(total, nchw)


@rule("SELECT", "SELECT_V2")
def select(ctx: TfliteContext) -> Outcome:
    """condition ? a : b; the older form takes a condition for each entry of the first axis."""
    if ctx.op.name == "SELECT" and ctx.rank(0) == 1 and ctx.rank(1) > 1:
        shape = (ctx.shape(0)[0], *(1,) * (ctx.rank(1) - 1))
        condition = ctx.emit(top.Reshape, ctx.value(0), shape=shape).y
        return ctx.emit(top.Where, condition, ctx.real(1), ctx.real(2)).y
    (condition, a, b), nchw = together(ctx, 0, 1, 2)
    return LayoutTensor(ctx.emit(top.Where, condition, a, b).y, nchw)


def unary(name: str, function: Callable[[TfliteContext, Value], Value]) -> None:
    """Register a function of one operand."""

    def translate(ctx: TfliteContext) -> Outcome:
        nchw = ctx.turned(0)
        return LayoutTensor(function(ctx, ctx.real(0, nchw)), nchw)

    rule(name)(translate)


def plain(kind: Any, **properties: Any) -> Callable[[TfliteContext, Value], Value]:
    """A function of one operand that is one op."""
    return lambda ctx, x: ctx.emit(kind, x, **properties).results[0]


for _name, _kind in {
    "ABS": top.Abs,
    "NEG": top.Neg,
    "EXP": top.Exp,
    "LOG": top.Log,
    "SQRT": top.Sqrt,
    "RSQRT": top.Rsqrt,
    "SIN": top.Sin,
    "COS": top.Cos,
    "FLOOR": top.Floor,
    "CEIL": top.Ceil,
    "ROUND": top.Round,
    "SIGN": top.Sign,
    "LOGICAL_NOT": top.Not,
}.items():
    unary(_name, plain(_kind))
unary("SQUARE", lambda ctx, x: ctx.emit(top.Mul, x, x).y)


@rule("CAST")
def cast(ctx: TfliteContext) -> Outcome:
    """To the type of the output; quantized integers are cast as the integers that they are."""
    nchw = ctx.turned(0)
    to = ctx.output().dtype.name
    value = ctx.value(0, nchw)
    if dtype_of(value.type).name == to:
        shape = shape_of(value)
        return LayoutTensor(ctx.emit(top.Reshape, value, shape=shape).y, nchw)
    if ctx.output().is_quantized and to == "f32":
        raise InvalidModelError(f"{ctx.label}: a float result cannot be quantized")
    return LayoutTensor(ctx.emit(top.Cast, value, to=to).y, nchw)
