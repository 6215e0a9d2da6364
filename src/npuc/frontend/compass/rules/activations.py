"""Activations, which are layers as well as keys of other layers, and other functions of one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuc.frontend.compass.registry import CompassContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, dtype_of, shape_of, top
from npuc.ir.definition import TopOp

PLAIN: dict[str, tuple[type[TopOp], dict[str, Any]]] = {
    "RELU": (top.Relu, {"limit": 0.0}),
    "RELU6": (top.Relu, {"limit": 6.0}),
    "SIGMOID": (top.Sigmoid, {}),
    "TANH": (top.Tanh, {}),
    "SILU": (top.SiLU, {}),
    "HARDSWISH": (top.HardSwish, {}),
    "MISH": (top.Mish, {}),
    "SOFTPLUS": (top.Softplus, {}),
    "SOFTSIGN": (top.Softsign, {}),
}
"""Methods without parameters."""
FUNCTIONS: dict[str, type[TopOp]] = {
    "Abs": top.Abs,
    "Acos": top.Acos,
    "Acosh": top.Acosh,
    "Asin": top.Asin,
    "Asinh": top.Asinh,
    "Atan": top.Atan,
    "Atanh": top.Atanh,
    "Ceil": top.Ceil,
    "Cosh": top.Cosh,
    "Cosine": top.Cos,
    "Erf": top.Erf,
    "Exp": top.Exp,
    "Floor": top.Floor,
    "Log": top.Log,
    "Negative": top.Neg,
    "Reciprocal": top.Reciprocal,
    "Round": top.Round,
    "Rsqrt": top.Rsqrt,
    "Sign": top.Sign,
    "Sine": top.Sin,
    "Sinh": top.Sinh,
    "Sqrt": top.Sqrt,
    "Tan": top.Tan,
}
"""Layers that are a function of one value."""


def activate(ctx: CompassContext, x: Value, method: str) -> Value:
    """The activation of a method; its parameters are keys of the same block."""
    if method in PLAIN:
        op, properties = PLAIN[method]
        return ctx.emit(op, x, **properties)
    if method in ("", "NONE"):
        return x
    if method not in _WITH_PARAMETERS:
        raise NoForm(f"its activation '{method[:40]}' is not known")
    return _WITH_PARAMETERS[method](ctx, x)


def _leaky(ctx: CompassContext, x: Value) -> Value:
    return ctx.emit(top.LeakyRelu, x, alpha=ctx.real("negative_slope_value", 0.01))


def _prelu(ctx: CompassContext, x: Value) -> Value:
    slope = np.asarray(ctx.constant("negative_slope"), np.float32)
    return ctx.emit(top.PRelu, x, ctx.literal(slope.reshape(slope.shape or (1,)), "slope"))


def _clip(ctx: CompassContext, x: Value) -> Value:
    return ctx.emit(top.Clip, x, min=ctx.real("clip_min"), max=ctx.real("clip_max"))


def _gelu(ctx: CompassContext, x: Value) -> Value:
    return ctx.emit(top.Gelu, x, tanh=ctx.word("approximate", "NONE") == "TANH")


def _swish(ctx: CompassContext, x: Value) -> Value:
    gate = ctx.emit(top.Sigmoid, ctx.emit(top.Mul, x, ctx.number(ctx.real("alpha", 1.0))))
    return ctx.emit(top.Mul, x, gate)


def _hard_sigmoid(ctx: CompassContext, x: Value) -> Value:
    if (ctx.real("clip_min", 0.0), ctx.real("clip_max", 1.0)) != (0.0, 1.0):
        raise NoForm("its limits are not 0 and 1")
    return ctx.emit(top.HardSigmoid, x, alpha=ctx.real("alpha", 0.2), beta=ctx.real("beta", 0.5))


_WITH_PARAMETERS: dict[str, Callable[[CompassContext, Value], Value]] = {
    "LEAKYRELU": _leaky,
    "PRELU": _prelu,
    "CLIP": _clip,
    "GELU": _gelu,
    "SWISH": _swish,
    "HARDSIGMOID": _hard_sigmoid,
    "ELU": lambda ctx, x: ctx.emit(top.Elu, x, alpha=ctx.real("alpha", 1.0)),
    "CELU": lambda ctx, x: ctx.emit(top.Celu, x, alpha=ctx.real("alpha", 1.0)),
    "SELU": lambda ctx, x: ctx.emit(top.Selu, x, alpha=ctx.real("alpha"), gamma=ctx.real("gamma")),
    "THRESHOLDEDRELU": lambda ctx, x: ctx.emit(top.ThresholdedRelu, x, alpha=ctx.real("alpha", 1.0)),
}


@rule("Activation")
def activation(ctx: CompassContext) -> Value:
    """All methods but SHRINK and TANH_ABS."""
    method = ctx.word("method")
    if method == "PRELU":  # its slopes are those of the last axis
        return activate(ctx, ctx.value(), method)
    return ctx.by_elements([ctx.value()], lambda values: activate(ctx, values[0], method))


@rule("Input")
def network_input(ctx: CompassContext) -> Value:
    """Real numbers; those of a quantized text are rounded to its integers, and integers without a scale become reals."""
    if not dtype_of(ctx.value().type).is_float:
        return ctx.emit(top.Cast, ctx.value(), to="f32")
    return ctx.emit(top.Reshape, ctx.value(), shape=ctx.shape())


@rule(*FUNCTIONS)
def function(ctx: CompassContext) -> Value:
    """Element by element."""
    return ctx.by_elements([ctx.value()], lambda values: ctx.emit(FUNCTIONS[ctx.layer.kind], values[0]))


@rule("Square")
def square(ctx: CompassContext) -> Value:
    """x * x."""
    return ctx.by_elements([ctx.value()], lambda values: ctx.emit(top.Mul, values[0], values[0]))


@rule("Softmax", "LogSoftmax")
def softmax(ctx: CompassContext) -> Value:
    """Along one axis."""
    op = top.Softmax if ctx.layer.kind == "Softmax" else top.LogSoftmax
    return ctx.emit(op, ctx.value(), axis=ctx.axis_of())


@rule("Cast")
def cast(ctx: CompassContext) -> Value:
    """To the type that `to_dtype` names; between float types it is nothing."""
    to = ctx.word("to_dtype").lower()
    if to.startswith("float"):
        return ctx.emit(top.Reshape, ctx.value(), shape=shape_of(ctx.value()))
    raise NoForm(f"it makes {to[:20]} of real numbers")
