"""Activation functions that stand alone, and those along the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.frontend.layout import LayoutTensor, axis_in
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.rules.elementwise import plain, together, unary
from npuc.frontend.tflite.scope import TfliteContext
from npuc.ir import Value, top

unary("RELU", plain(top.Relu))
unary("RELU6", plain(top.Relu, limit=6.0))
unary("RELU_0_TO_1", plain(top.Relu, limit=1.0))
unary("RELU_N1_TO_1", plain(top.Clip, min=-1.0, max=1.0))
unary("LOGISTIC", plain(top.Sigmoid))
unary("TANH", plain(top.Tanh))
unary("HARD_SWISH", plain(top.HardSwish))
unary("ELU", plain(top.Elu))


def _leaky_relu(ctx: TfliteContext, x: Value) -> Value:
    return ctx.emit(top.LeakyRelu, x, alpha=float(ctx.needed("LeakyReluOptions").number("Alpha"))).y


def _gelu(ctx: TfliteContext, x: Value) -> Value:
    options = ctx.options("GeluOptions")
    return ctx.emit(top.Gelu, x, tanh=options is not None and bool(options.number("Approximate"))).y


unary("LEAKY_RELU", _leaky_relu)
unary("GELU", _gelu)


@rule("PRELU")
def prelu(ctx: TfliteContext) -> Outcome:
    """A slope that broadcasts to x; in images it is one a channel, so that those come second."""
    (x, slope), nchw = together(ctx, 0, 1, nchw=ctx.rank(0) == 4)
    return LayoutTensor(ctx.emit(top.PRelu, x, slope).y, nchw)


def _along_last(kind: Any, ctx: TfliteContext, beta: float = 1.0) -> Outcome:
    nchw = ctx.turned(0)
    x = ctx.real(0, nchw)
    if beta != 1.0:
        x = ctx.emit(top.Mul, x, ctx.literal(np.array(beta, np.float32), "beta")).y
    return LayoutTensor(ctx.emit(kind, x, axis=axis_in(ctx.rank(0) - 1, nchw)).y, nchw)


@rule("SOFTMAX")
def softmax(ctx: TfliteContext) -> Outcome:
    """Along the last axis, of beta * x."""
    return _along_last(top.Softmax, ctx, float(ctx.needed("SoftmaxOptions").number("Beta")))


@rule("LOG_SOFTMAX")
def log_softmax(ctx: TfliteContext) -> Outcome:
    """Along the last axis."""
    return _along_last(top.LogSoftmax, ctx)


@rule("L2_NORMALIZATION")
def l2_normalization(ctx: TfliteContext) -> Outcome:
    """Along the last axis; the float kernel bounds the sum of squares from below by 1e-6, the integer one does not."""
    nchw = ctx.turned(0)
    axis = axis_in(ctx.rank(0) - 1, nchw)
    epsilon = 0.0 if ctx.is_integer else 1e-3
    return LayoutTensor(ctx.emit(top.L2Norm, ctx.real(0, nchw), axis=axis, epsilon=epsilon).y, nchw)


@rule("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(ctx: TfliteContext) -> Outcome:
    """Over a window of channels; TFLite's alpha is not divided by the size."""
    options = ctx.needed("LocalResponseNormalizationOptions")
    size = 2 * int(options.number("Radius")) + 1
    y = ctx.emit(
        top.LRN,
        ctx.real(0, nchw=True),
        size=size,
        alpha=float(options.number("Alpha")) * size,
        beta=float(options.number("Beta")),
        bias=float(options.number("Bias")),
    ).y
    return LayoutTensor(y, True)
