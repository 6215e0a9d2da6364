"""Activation functions."""

from __future__ import annotations

from math import inf

import numpy as np

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import dtype_of, shape_of, top

_SIMPLE = {
    "aten.relu": top.Relu,
    "aten.sigmoid": top.Sigmoid,
    "aten.tanh": top.Tanh,
    "aten.silu": top.SiLU,
    "aten.hardswish": top.HardSwish,
    "aten.mish": top.Mish,
    "aten.selu": top.Selu,
}


@rule(*_SIMPLE)
def simple(ctx: TorchContext) -> Outcome:
    """One value, one result."""
    return ctx.emit(_SIMPLE[ctx.op], ctx.value("self", ctx.result_dtype)).y


@rule("aten.relu6")
def relu6(ctx: TorchContext) -> Outcome:
    """A relu with a limit."""
    return ctx.emit(top.Relu, ctx.value("self"), limit=6.0).y


@rule("aten.hardtanh")
def hardtanh(ctx: TorchContext) -> Outcome:
    """Limited on both sides."""
    least, most = ctx.number("min_val"), ctx.number("max_val")
    if least == 0.0 and most > 0.0:
        return ctx.emit(top.Relu, ctx.value("self"), limit=most).y
    return ctx.emit(top.Clip, ctx.value("self"), min=least, max=most).y


@rule("aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.clip")
def clamp(ctx: TorchContext) -> Outcome:
    """Limits as numbers, or as tensors."""
    x, dtype = ctx.value("self", ctx.result_dtype), ctx.result_dtype
    plain = all(not ctx.has(key) or isinstance(ctx.meaning(key), int | float) for key in ("min", "max"))
    if plain and dtype.is_float:
        least = ctx.number("min") if ctx.has("min") else -inf
        most = ctx.number("max") if ctx.has("max") else inf
        if least == 0.0 and most == inf:
            return ctx.emit(top.Relu, x).y
        return ctx.emit(top.Clip, x, min=least, max=most).y
    if ctx.has("min"):
        x = ctx.emit(top.Max, x, ctx.value("min", dtype)).y
    if ctx.has("max"):
        x = ctx.emit(top.Min, x, ctx.value("max", dtype)).y
    return x


@rule("aten.leaky_relu")
def leaky_relu(ctx: TorchContext) -> Outcome:
    """A slope below zero."""
    return ctx.emit(top.LeakyRelu, ctx.value("self"), alpha=ctx.number("negative_slope")).y


@rule("aten.rrelu", "aten.rrelu_with_noise", limits="as in inference: the mean of both slopes")
def rrelu(ctx: TorchContext) -> Outcome:
    """A random slope, which in inference is the mean."""
    return ctx.emit(top.LeakyRelu, ctx.value("self"), alpha=(ctx.number("lower") + ctx.number("upper")) / 2).y


@rule("aten.prelu", "aten._prelu_kernel")
def prelu(ctx: TorchContext) -> Outcome:
    """One slope, or one a channel (axis 1)."""
    x, slope = ctx.value("self"), ctx.value("weight")
    rank, count = len(shape_of(x)), int(np.prod(shape_of(slope)))
    if len(shape_of(slope)) <= 1:
        shape = (1,) * rank if count == 1 or rank < 2 else (1, count, *(1,) * (rank - 2))
        slope = ctx.reshape(slope, shape)
    return ctx.emit(top.PRelu, x, slope).y


@rule("aten.elu")
def elu(ctx: TorchContext) -> Outcome:
    """alpha * (e^x - 1) below zero."""
    if ctx.number("scale") != 1 or ctx.number("input_scale") != 1:
        if abs(ctx.number("scale") - 1.0507009873554805) < 1e-6:
            return ctx.emit(top.Selu, ctx.value("self")).y
        raise NoTopForm("it scales its input or its result")
    return ctx.emit(top.Elu, ctx.value("self"), alpha=ctx.number("alpha")).y


@rule("aten.celu")
def celu(ctx: TorchContext) -> Outcome:
    """Continuously differentiable elu."""
    return ctx.emit(top.Celu, ctx.value("self"), alpha=ctx.number("alpha")).y


@rule("aten.hardsigmoid")
def hardsigmoid(ctx: TorchContext) -> Outcome:
    """x / 6 + 1/2, limited."""
    return ctx.emit(top.HardSigmoid, ctx.value("self"), alpha=1 / 6, beta=0.5).y


@rule("aten.gelu")
def gelu(ctx: TorchContext) -> Outcome:
    """Exact, or by tanh."""
    return ctx.emit(top.Gelu, ctx.value("self"), tanh=ctx.text("approximate") == "tanh").y


@rule("aten.softplus", limits="beta other than 1 takes two ops more; the threshold is not copied")
def softplus(ctx: TorchContext) -> Outcome:
    """log(1 + e^(beta x)) / beta; beyond its threshold torch returns x, which is the same to 1e-8."""
    x, beta = ctx.value("self"), ctx.number("beta")
    if beta == 1.0:
        return ctx.emit(top.Softplus, x).y
    scale = ctx.literal(np.array(beta, np.float32), "beta")
    y = ctx.emit(top.Softplus, ctx.emit(top.Mul, x, scale).y).y
    return ctx.emit(top.Mul, y, ctx.literal(np.array(1 / beta, np.float32), "1/beta")).y


@rule("aten.softsign")
def softsign(ctx: TorchContext) -> Outcome:
    """x / (1 + |x|)"""
    return ctx.emit(top.Softsign, ctx.value("self")).y


@rule("aten.logsigmoid", "aten.log_sigmoid")
def log_sigmoid(ctx: TorchContext) -> Outcome:
    """-softplus(-x)"""
    y = ctx.emit(top.Softplus, ctx.emit(top.Neg, ctx.value("self")).y).y
    return ctx.emit(top.Neg, y).y


@rule("aten.threshold", limits="a value other than 0 becomes a select")
def threshold(ctx: TorchContext) -> Outcome:
    """x above a threshold, else a value."""
    x, limit, value = ctx.value("self"), ctx.number("threshold"), ctx.number("value")
    if value == 0.0 and limit >= 0.0:
        return ctx.emit(top.Relu, x).y if limit == 0.0 else ctx.emit(top.ThresholdedRelu, x, alpha=limit).y
    above = ctx.emit(top.Compare, x, ctx.value(limit, dtype_of("f32")), mode="greater").y
    return ctx.emit(top.Where, above, x, ctx.value(value, dtype_of("f32"))).y


@rule("aten.glu")
def glu(ctx: TorchContext) -> Outcome:
    """One half, gated by the other."""
    x = ctx.value("self")
    shape = shape_of(x)
    axis = ctx.axis("dim", len(shape))
    half = shape[axis] // 2
    parts = ctx.emit(top.Split, x, axis=axis, sizes=(half, half)).parts
    return ctx.emit(top.Mul, parts[0], ctx.emit(top.Sigmoid, parts[1]).y).y


@rule("aten.softmax", "aten._softmax", "aten.log_softmax", "aten._log_softmax", "aten._safe_softmax")
def softmax(ctx: TorchContext) -> Outcome:
    """Along an axis."""
    kind = top.LogSoftmax if "log" in ctx.op else top.Softmax
    x = ctx.value("self", ctx.result_dtype)
    return ctx.emit(kind, x, axis=ctx.axis("dim", len(shape_of(x)))).y
