"""Normalization, scales and biases."""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.frontend.caffe.message import CaffeMessage
from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top


def _normalized(ctx: CaffeContext, parts: list[Array], epsilon: float) -> Value:
    x = ctx.value()
    names = ("scale", "bias", "mean", "variance")
    operands = [ctx.literal(part, name) for part, name in zip(parts, names, strict=True)]
    return ctx.emit(top.BatchNorm, x, *operands, epsilon=epsilon)


@rule("BatchNorm")
def batch_norm(ctx: CaffeContext) -> Value:
    """With the stored statistics and their scale factor, as in every test run."""
    channels = ctx.shape()[1]
    mean, variance = ctx.array(0, (channels,), "bias"), ctx.array(1, (channels,), "variance")
    factor = 1.0
    if ctx.blob_count is None or ctx.blob_count > 2:
        stored = float(ctx.array(2, (1,), "one")[0])
        factor = 0.0 if stored == 0 else 1 / stored
    given = ctx.parameters("batch_norm_param")
    ones = np.ones(channels, np.float32)
    scaled = [(part * np.float32(factor)).astype(np.float32) for part in (mean, variance)]
    return _normalized(ctx, [ones, np.zeros_like(ones), *scaled], given.float("eps", 1e-5))


@rule("BN")
def old_batch_norm(ctx: CaffeContext) -> Value:
    """That of forks: two blobs are scale and bias, four are scale, bias, mean and variance."""
    channels = ctx.shape()[1]
    roles = ("scale", "bias", "bias", "variance")
    count = 2 if ctx.blob_count == 2 else 4
    parts = [ctx.array(i, (channels,), roles[i]) for i in range(count)]
    if count == 2:
        parts += [np.zeros(channels, np.float32), np.ones(channels, np.float32)]
    epsilon = ctx.parameters("bn_param").float("eps", 1e-5) if count == 4 else 0.0
    return _normalized(ctx, parts, epsilon)


def _spread(
    ctx: CaffeContext, given: CaffeMessage, own: tuple[int, ...] | None
) -> tuple[tuple[int, ...], int]:
    """The shape of a factor or summand, and the axis of x where it begins."""
    x = ctx.shape()
    axis = ctx.axis(given.int("axis", 1), end=True)
    if own is not None:
        return own, 0 if not own else axis
    count = given.int("num_axes", 1)
    end = len(x) if count == -1 else axis + count
    if not axis <= end <= len(x):
        raise ctx.invalid(f"{count} axes from axis {axis} on, of {len(x)}")
    return x[axis:end], axis


def _broadcast(ctx: CaffeContext, value: Value, axis: int) -> Value:
    """A tensor that begins at an axis of x, with ones behind it."""
    x, shape = ctx.shape(), shape_of(value)
    if x[axis : axis + len(shape)] != shape:
        raise ctx.invalid(f"{list(shape)} from axis {axis} on does not fit {list(x)}")
    return ctx.reshape(value, (*shape, *(1,) * (len(x) - axis - len(shape))))


@rule("Scale")
def scale(ctx: CaffeContext) -> Value:
    """By a blob or by a second bottom, from `axis` on, with a bias if there is one."""
    given = ctx.parameters("scale_param")
    x = ctx.value()
    shape, axis = _spread(ctx, given, ctx.shape(1) if ctx.count > 1 else None)
    place = 0
    if ctx.count > 1:
        factor: Array | None = None
    else:
        factor, place = ctx.array(0, shape, "scale"), 1
    bias = ctx.array(place, shape, "bias") if given.bool("bias_term") else None
    if factor is not None and axis == 1 and len(shape) == 1 and len(ctx.shape()) > 1:
        zero = np.zeros(shape, np.float32)
        operands = [ctx.literal(factor, "scale"), ctx.literal(zero if bias is None else bias, "bias")]
        return ctx.emit(top.Scale, x, *operands)
    by = ctx.value(1) if factor is None else ctx.literal(factor, "scale")
    y = ctx.emit(top.Mul, x, _broadcast(ctx, by, axis))
    return y if bias is None else ctx.emit(top.Add, y, _broadcast(ctx, ctx.literal(bias, "bias"), axis))


@rule("Bias")
def bias(ctx: CaffeContext) -> Value:
    """A blob or a second bottom, from `axis` on."""
    given = ctx.parameters("bias_param")
    shape, axis = _spread(ctx, given, ctx.shape(1) if ctx.count > 1 else None)
    summand = ctx.value(1) if ctx.count > 1 else ctx.weight(0, shape, "bias")
    return ctx.emit(top.Add, ctx.value(), _broadcast(ctx, summand, axis))


@rule("Axpy")
def axpy(ctx: CaffeContext) -> Value:
    """a * x + y, with one a for each channel."""
    n, c, *rest = ctx.shape(1)
    factor = ctx.reshape(ctx.value(0), (n, c, *(1 for _ in rest)))
    return ctx.emit(top.Add, ctx.emit(top.Mul, ctx.value(1), factor), ctx.value(2))


@rule("MVN")
def mvn(ctx: CaffeContext) -> Value:
    """Zero mean, and unit variance unless `normalize_variance` is false, of each channel or of all."""
    given = ctx.parameters("mvn_param")
    x = ctx.value()
    axes = tuple(range(1 if given.bool("across_channels") else 2, len(ctx.shape())))
    if not axes:
        raise NoForm("it has no axes to normalize over")
    centred = ctx.emit(top.Sub, x, ctx.emit(top.Reduce, x, kind="mean", axes=axes, keepdims=True))
    if not given.bool("normalize_variance", True):
        return centred
    variance = ctx.emit(
        top.Reduce, ctx.emit(top.Mul, centred, centred), kind="mean", axes=axes, keepdims=True
    )
    deviation = ctx.emit(top.Add, ctx.emit(top.Sqrt, variance), ctx.number(given.float("eps", 1e-9)))
    return ctx.emit(top.Div, centred, deviation)


@rule("Normalize", "NormalizeBBox")
def normalize(ctx: CaffeContext) -> Value:
    """SSD's: x by its length over the channels, or over channels and pixels, times a scale."""
    given = ctx.parameters("norm_param")
    x, shape = ctx.value(), ctx.shape()
    axes = tuple(range(1, len(shape))) if given.bool("across_spatial", True) else (1,)
    total = ctx.emit(top.Reduce, x, kind="sum_square", axes=axes, keepdims=True)
    length = ctx.emit(top.Sqrt, ctx.emit(top.Add, total, ctx.number(given.float("eps", 1e-10))))
    y = ctx.emit(top.Div, x, length)
    count = 1 if given.bool("channel_shared", True) else shape[1]
    factor = ctx.array(0, (count,), "scale").reshape(count, *(1,) * (len(shape) - 2))
    return ctx.emit(top.Mul, y, ctx.literal(factor, "scale"))
