"""Darknet's activations, which are keys of other layers as well as layers."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from npuc.frontend.darknet.registry import DarknetContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top
from npuc.ir.definition import TopOp


def _loggy(ctx: DarknetContext, x: Value) -> Value:
    double = ctx.emit(top.Mul, ctx.emit(top.Sigmoid, x), ctx.number(2.0))
    return ctx.emit(top.Sub, double, ctx.number(1.0))


def _ramp(ctx: DarknetContext, x: Value) -> Value:
    return ctx.emit(top.Add, ctx.emit(top.Relu, x, limit=0.0), ctx.emit(top.Mul, x, ctx.number(0.1)))


def _hard_mish(ctx: DarknetContext, x: Value) -> Value:
    """x above 0, x * (x + 2) / 2 above -2, else 0: that is x * min(2, max(0, x + 2)) / 2."""
    gate = ctx.emit(top.Clip, ctx.emit(top.Add, x, ctx.number(2.0)), min=0.0, max=2.0)
    return ctx.emit(top.Mul, ctx.emit(top.Mul, x, gate), ctx.number(0.5))


def _normalized(ctx: DarknetContext, x: Value, exponential: bool) -> Value:
    """Over the channels of a pixel; Darknet's own constant keeps it from dividing by zero."""
    if exponential:
        return ctx.emit(top.Softmax, x, axis=1)
    positive = ctx.emit(top.Relu, x, limit=0.0)
    total = ctx.emit(top.Reduce, positive, kind="sum", axes=(1,), keepdims=True)
    return ctx.emit(top.Div, positive, ctx.emit(top.Add, total, ctx.number(1e-4)))


def activate(ctx: DarknetContext, x: Value, default: str = "logistic") -> Value:
    """The activation that a section names."""
    name = ctx.section.text("activation", default)
    if name in _PLAIN:
        op, properties = _PLAIN[name]
        return ctx.emit(op, x, **properties)
    if name in _COMPOSED:
        return _COMPOSED[name](ctx, x)
    if name == "linear":
        return x
    raise NoForm(f"its activation '{name[:40]}' is not known")


_PLAIN: dict[str, tuple[type[TopOp], dict[str, Any]]] = {
    "relu": (top.Relu, {"limit": 0.0}),
    "relu6": (top.Relu, {"limit": 6.0}),
    "leaky": (top.LeakyRelu, {"alpha": 0.1}),
    "relie": (top.LeakyRelu, {"alpha": 0.01}),
    "logistic": (top.Sigmoid, {}),
    "tanh": (top.Tanh, {}),
    "elu": (top.Elu, {"alpha": 1.0}),
    "selu": (top.Selu, {}),
    "mish": (top.Mish, {}),
    "swish": (top.SiLU, {}),
    "gelu": (top.Gelu, {"tanh": True}),
    "hardtan": (top.Clip, {"min": -1.0, "max": 1.0}),
    "hard_swish": (top.HardSwish, {}),
    "hardswish": (top.HardSwish, {}),
    "hswish": (top.HardSwish, {}),
    "hard_sigmoid": (top.HardSigmoid, {"alpha": 1 / 6, "beta": 0.5}),
}
_COMPOSED: dict[str, Callable[[DarknetContext, Value], Value]] = {
    "loggy": _loggy,
    "ramp": _ramp,
    "hard_mish": _hard_mish,
    "normalize_channels": lambda ctx, x: _normalized(ctx, x, False),
    "normalize_channels_softmax": lambda ctx, x: _normalized(ctx, x, True),
}
ACTIVATIONS = ("linear", *_PLAIN, *_COMPOSED)


@rule("activation")
def activation(ctx: DarknetContext) -> Value:
    """Any of the activations."""
    return activate(ctx, ctx.value(), "linear")


@rule("logistic")
def logistic(ctx: DarknetContext) -> Value:
    """1 / (1 + e^-x)."""
    return ctx.emit(top.Sigmoid, ctx.value())


@rule("softmax")
def softmax(ctx: DarknetContext) -> Value:
    """Over all elements of each of `groups` parts, with `temperature`; not over a tree."""
    if ctx.section.has("tree"):
        raise NoForm("its classes are a tree")
    n, *rest = ctx.shape()
    x = ctx.value()
    temperature, groups = ctx.section.float("temperature", 1.0), ctx.section.int("groups", 1, 1)
    if temperature != 1:
        x = ctx.emit(top.Mul, x, ctx.number(1 / temperature))
    if groups == 1 and all(size == 1 for size in rest[1:]):
        return ctx.emit(top.Softmax, x, axis=1)
    count = prod(rest)
    if count % groups:
        raise ctx.invalid(f"{count} values in {groups} groups")
    parts = ctx.reshape(x, (n, groups, count // groups))
    return ctx.reshape(ctx.emit(top.Softmax, parts, axis=2), shape_of(x))
