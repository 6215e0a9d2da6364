"""Elementwise arithmetic and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule
from npuc.ir import top


def _unary(name: str, kind: Any, **properties: Any) -> None:
    def translate(ctx: TensorflowContext) -> Outcome:
        """One op."""
        return a.unary(ctx.c, ctx.x(), kind, **properties)

    rule(name)(translate)


for _name, _kind in {
    "Abs": top.Abs,
    "Neg": top.Neg,
    "Exp": top.Exp,
    "Log": top.Log,
    "Sqrt": top.Sqrt,
    "Rsqrt": top.Rsqrt,
    "Reciprocal": top.Reciprocal,
    "Inv": top.Reciprocal,
    "Sin": top.Sin,
    "Cos": top.Cos,
    "Tan": top.Tan,
    "Asin": top.Asin,
    "Acos": top.Acos,
    "Atan": top.Atan,
    "Sinh": top.Sinh,
    "Cosh": top.Cosh,
    "Asinh": top.Asinh,
    "Acosh": top.Acosh,
    "Atanh": top.Atanh,
    "Floor": top.Floor,
    "Ceil": top.Ceil,
    "Round": top.Round,
    "Rint": top.Round,
    "Sign": top.Sign,
    "Erf": top.Erf,
    "LogicalNot": top.Not,
    "Relu": top.Relu,
    "Elu": top.Elu,
    "Selu": top.Selu,
    "Sigmoid": top.Sigmoid,
    "Tanh": top.Tanh,
    "Softplus": top.Softplus,
    "Softsign": top.Softsign,
}.items():
    _unary(_name, _kind)
_unary("Relu6", top.Relu, limit=6.0)


@rule("LeakyRelu")
def leaky_relu(ctx: TensorflowContext) -> Outcome:
    """Any slope."""
    return a.unary(ctx.c, ctx.x(), top.LeakyRelu, alpha=ctx.node.real("alpha", 0.2))


@rule("Square")
def square(ctx: TensorflowContext) -> Outcome:
    """x * x"""
    return a.binary(ctx.c, top.Mul, ctx.x(), ctx.x())


@rule("Log1p", "Expm1", "Erfc")
def shifted(ctx: TensorflowContext) -> Outcome:
    """log(1 + x), e^x - 1, 1 - erf(x): without the care for small x that the original takes."""
    x = ctx.x()
    if ctx.node.op == "Log1p":
        return a.unary(ctx.c, a.scaled(ctx.c, x, 1.0, 1.0), top.Log)
    if ctx.node.op == "Expm1":
        return a.scaled(ctx.c, a.unary(ctx.c, x, top.Exp), 1.0, -1.0)
    return a.scaled(ctx.c, a.unary(ctx.c, x, top.Erf), -1.0, 1.0)


def _binary(
    name: str, function: Callable[[ChannelsLastBuilder, LayoutTensor, LayoutTensor], LayoutTensor]
) -> None:
    def translate(ctx: TensorflowContext) -> Outcome:
        """Broadcasts."""
        return function(ctx.c, ctx.x(0), ctx.x(1))

    rule(name)(translate)


def _plain(
    kind: Any, **properties: Any
) -> Callable[[ChannelsLastBuilder, LayoutTensor, LayoutTensor], LayoutTensor]:
    return lambda c, x, y: a.binary(c, kind, x, y, **properties)


def _no_nan(c: ChannelsLastBuilder, x: LayoutTensor, y: LayoutTensor) -> LayoutTensor:
    zero = c.number(0, y)
    return a.where(
        c, a.binary(c, top.Compare, y, zero, mode="equal"), c.number(0, x), a.binary(c, top.Div, x, y)
    )


def _floor_mod(c: ChannelsLastBuilder, x: LayoutTensor, y: LayoutTensor) -> LayoutTensor:
    if not x.dtype.is_float:
        return a.binary(c, top.Mod, x, y)
    return a.binary(c, top.Sub, x, a.binary(c, top.Mul, a.floor_div(c, x, y), y))


for _name, _function in {
    "Add": _plain(top.Add),
    "AddV2": _plain(top.Add),
    "Sub": _plain(top.Sub),
    "Mul": _plain(top.Mul),
    "RealDiv": _plain(top.Div),
    "Div": _plain(top.Div),
    "TruncateDiv": _plain(top.Div),
    "DivNoNan": _no_nan,
    "FloorDiv": a.floor_div,
    "FloorMod": _floor_mod,
    "Maximum": _plain(top.Max),
    "Minimum": _plain(top.Min),
    "Pow": _plain(top.Pow),
    "SquaredDifference": a.squared_difference,
    "Equal": _plain(top.Compare, mode="equal"),
    "NotEqual": a.not_equal,
    "Less": _plain(top.Compare, mode="less"),
    "LessEqual": _plain(top.Compare, mode="less_equal"),
    "Greater": _plain(top.Compare, mode="greater"),
    "GreaterEqual": _plain(top.Compare, mode="greater_equal"),
    "LogicalAnd": _plain(top.Logical, mode="and"),
    "LogicalOr": _plain(top.Logical, mode="or"),
}.items():
    _binary(_name, _function)


@rule("AddN")
def add_n(ctx: TensorflowContext) -> Outcome:
    """Any number of operands."""
    return a.folded(ctx.c, top.Add, ctx.inputs)


@rule("BiasAdd", "BiasAddV1")
def bias_add(ctx: TensorflowContext) -> Outcome:
    """NHWC or NCHW."""
    return a.add_channels(ctx.c, ctx.x(0), ctx.x(1), ctx.channels_first)


@rule("Select", "SelectV2")
def select(ctx: TensorflowContext) -> Outcome:
    """The older form takes a condition for each entry of the first axis."""
    condition, x, y = ctx.x(0), ctx.x(1), ctx.x(2)
    if ctx.node.op == "Select" and condition.rank == 1 and x.rank > 1:
        shape = (condition.shape[0], *(1,) * (x.rank - 1))
        condition = LayoutTensor(ctx.c.emit(top.Reshape, ctx.c.value(condition), shape=shape).y)
    return a.where(ctx.c, condition, x, y)


@rule("ClipByValue")
def clip(ctx: TensorflowContext) -> Outcome:
    """Bounds as tensors or constants."""
    low, high = ctx.x(1), ctx.x(2)
    if low.array is not None and high.array is not None and low.array.size == high.array.size == 1:
        bounds = {"min": float(low.array.reshape(())), "max": float(high.array.reshape(()))}
        return a.unary(ctx.c, ctx.x(0), top.Clip, **bounds)
    return a.binary(ctx.c, top.Min, a.binary(ctx.c, top.Max, ctx.x(0), low), high)


@rule("Cast", "Bitcast")
def cast(ctx: TensorflowContext) -> Outcome:
    """To any element type that npuc knows; a Bitcast only to its own."""
    name = "DstT" if ctx.node.op == "Cast" else "type"
    to = ctx.node.dtype(name).name
    if ctx.node.op == "Bitcast" and to != ctx.x().dtype.name:
        raise ctx.refuse("it looks at the bits of numbers")
    return a.cast(ctx.c, ctx.x(), to)


@rule("ZerosLike", "OnesLike")
def filled_like(ctx: TensorflowContext) -> Outcome:
    """The shape of x, known now."""
    value = 0 if ctx.node.op == "ZerosLike" else 1
    element = ctx.c.constant(np.full((1,) * ctx.x().rank, value, ctx.x().dtype.numpy))
    return LayoutTensor(ctx.c.emit(top.Expand, ctx.c.value(element), shape=ctx.x().shape).y)


@rule("IsNan", "IsInf", "IsFinite")
def finite(ctx: TensorflowContext) -> Outcome:
    """By comparisons: a value that is not itself is no number."""
    c, x = ctx.c, ctx.x()
    if ctx.node.op == "IsNan":
        return a.not_equal(c, x, x)
    size = a.unary(c, x, top.Abs)
    limit = c.constant(np.array(np.inf, x.dtype.numpy))
    mode = "equal" if ctx.node.op == "IsInf" else "less"
    return a.binary(c, top.Compare, size, limit, mode=mode)
