"""Functions of single elements."""

from __future__ import annotations

from math import log

from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.ir import Value, top


def affine(ctx: CaffeContext, x: Value, scale: float, shift: float) -> Value:
    """scale * x + shift."""
    if scale != 1:
        x = ctx.emit(top.Mul, x, ctx.number(scale))
    return ctx.emit(top.Add, x, ctx.number(shift)) if shift else x


@rule("ReLU")
def relu(ctx: CaffeContext) -> Value:
    """With `negative_slope`."""
    slope = ctx.parameters("relu_param").float("negative_slope")
    return (
        ctx.emit(top.LeakyRelu, ctx.value(), alpha=slope)
        if slope
        else ctx.emit(top.Relu, ctx.value(), limit=0.0)
    )


@rule("ReLU6")
def relu6(ctx: CaffeContext) -> Value:
    """min(max(x, 0), 6)."""
    return ctx.emit(top.Relu, ctx.value(), limit=6.0)


@rule("PReLU")
def prelu(ctx: CaffeContext) -> Value:
    """One slope for each channel, or one for all."""
    x = ctx.shape()
    shared = ctx.parameters("prelu_param").bool("channel_shared")
    slope = ctx.array(0, (1,) if shared else (x[1],), "bias")
    return ctx.emit(top.PRelu, ctx.value(), ctx.literal(slope.reshape(-1, *(1,) * (len(x) - 2)), "slope"))


@rule("ELU")
def elu(ctx: CaffeContext) -> Value:
    """With `alpha`."""
    return ctx.emit(top.Elu, ctx.value(), alpha=ctx.parameters("elu_param").float("alpha", 1.0))


@rule("Sigmoid")
def sigmoid(ctx: CaffeContext) -> Value:
    """1 / (1 + e^-x)."""
    return ctx.emit(top.Sigmoid, ctx.value())


@rule("TanH")
def tanh(ctx: CaffeContext) -> Value:
    """The hyperbolic tangent."""
    return ctx.emit(top.Tanh, ctx.value())


@rule("AbsVal")
def absolute(ctx: CaffeContext) -> Value:
    """|x|."""
    return ctx.emit(top.Abs, ctx.value())


@rule("BNLL")
def bnll(ctx: CaffeContext) -> Value:
    """log(1 + e^x)."""
    return ctx.emit(top.Softplus, ctx.value())


@rule("Mish")
def mish(ctx: CaffeContext) -> Value:
    """x * tanh(log(1 + e^x))."""
    return ctx.emit(top.Mish, ctx.value())


@rule("Swish")
def swish(ctx: CaffeContext) -> Value:
    """x * sigmoid(beta * x)."""
    beta = ctx.parameters("swish_param").float("beta", 1.0)
    if beta == 1:
        return ctx.emit(top.SiLU, ctx.value())
    return ctx.emit(top.Mul, ctx.value(), ctx.emit(top.Sigmoid, affine(ctx, ctx.value(), beta, 0)))


@rule("HSwish", "HardSwish", "Hswish")
def hard_swish(ctx: CaffeContext) -> Value:
    """x * min(max(x + 3, 0), 6) / 6."""
    return ctx.emit(top.HardSwish, ctx.value())


@rule("HSigmoid", "HardSigmoid", "Hsigmoid")
def hard_sigmoid(ctx: CaffeContext) -> Value:
    """min(max(alpha * x + beta, 0), 1), by default with 1/6 and 1/2."""
    given = ctx.parameters("hard_sigmoid_param")
    alpha, beta = given.float("alpha", 1 / 6), given.float("beta", 0.5)
    return ctx.emit(top.HardSigmoid, ctx.value(), alpha=alpha, beta=beta)


@rule("Power")
def power(ctx: CaffeContext) -> Value:
    """(shift + scale * x)^power."""
    given = ctx.parameters("power_param")
    exponent = given.float("power", 1.0)
    x = affine(ctx, ctx.value(), given.float("scale", 1.0), given.float("shift"))
    return x if exponent == 1 else ctx.emit(top.Pow, x, ctx.number(exponent))


@rule("Exp")
def exp(ctx: CaffeContext) -> Value:
    """base^(shift + scale * x); base -1 is e."""
    given = ctx.parameters("exp_param")
    base, scale, shift = given.float("base", -1.0), given.float("scale", 1.0), given.float("shift")
    if base != -1 and base <= 0:
        raise ctx.invalid(f"the base {base}")
    factor = 1.0 if base == -1 else log(base)
    return ctx.emit(top.Exp, affine(ctx, ctx.value(), scale * factor, shift * factor))


@rule("Log")
def logarithm(ctx: CaffeContext) -> Value:
    """log(shift + scale * x) to a base; base -1 is e."""
    given = ctx.parameters("log_param")
    base = given.float("base", -1.0)
    if base != -1 and (base <= 0 or base == 1):
        raise ctx.invalid(f"the base {base}")
    y = ctx.emit(top.Log, affine(ctx, ctx.value(), given.float("scale", 1.0), given.float("shift")))
    return y if base == -1 else ctx.emit(top.Mul, y, ctx.number(1 / log(base)))


@rule("Threshold")
def threshold(ctx: CaffeContext) -> Value:
    """1 where x > threshold, else 0."""
    limit = ctx.number(ctx.parameters("threshold_param").float("threshold"))
    return ctx.emit(top.Cast, ctx.emit(top.Compare, ctx.value(), limit, mode="greater"), to="f32")


@rule("Clip")
def clip(ctx: CaffeContext) -> Value:
    """x between `min` and `max`."""
    given = ctx.parameters("clip_param")
    return ctx.emit(top.Clip, ctx.value(), min=given.float("min"), max=given.float("max"))


@rule("Softmax")
def softmax(ctx: CaffeContext) -> Value:
    """Along `axis`; a SoftmaxWithLoss of a training file becomes one, too."""
    return ctx.emit(top.Softmax, ctx.value(), axis=ctx.axis(ctx.parameters("softmax_param").int("axis", 1)))


@rule("LogSoftmax")
def log_softmax(ctx: CaffeContext) -> Value:
    """Along `axis`."""
    axis = ctx.axis(ctx.parameters("softmax_param").int("axis", 1))
    return ctx.emit(top.LogSoftmax, ctx.value(), axis=axis)
