"""Layers with weights. In the file, the bias comes first, then the batch normalization, then the weights."""

from __future__ import annotations

from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.frontend.darknet.registry import DarknetContext, rule
from npuc.frontend.darknet.rules.activation import activate
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top

_EPSILON = 1e-6
_MAX_WINDOWS = 1 << 24


def _statistics(ctx: DarknetContext, channels: int) -> list[Array]:
    return [ctx.array((channels,), role) for role in ("scale", "bias", "variance")]


def _normalized(ctx: DarknetContext, x: Value, bias: Array, parts: list[Array]) -> Value:
    scale, mean, variance = parts
    operands = [
        ctx.literal(array, name)
        for name, array in (("scale", scale), ("bias", bias), ("mean", mean), ("variance", variance))
    ]
    return ctx.emit(top.BatchNorm, x, *operands, epsilon=_EPSILON)


@rule("convolutional", "deconvolutional")
def convolutional(ctx: DarknetContext) -> Value:
    """Groups, dilation, batch normalization, all activations; no binary weights, no shared ones, no antialiasing."""
    section = ctx.section
    for key in ("binary", "xnor", "antialiasing", "share_index"):
        if section.int(key):
            raise NoForm(f"'{key}' is not known")
    _, channels, _, _ = ctx.shape()
    filters, size = section.int("filters", 1, 1), section.int("size", 1, 1, 4096)
    stride = section.int("stride", 1, 1)
    strides = (section.int("stride_y", stride, 1), section.int("stride_x", stride, 1))
    dilation = section.int("dilation", 1, 1)
    group = section.int("groups", 1, 1)
    padding = size // 2 if section.int("pad") else section.int("padding", 0, 0)
    if channels % group or filters % group:
        raise ctx.invalid(f"{channels} channels to {filters} in {group} groups")
    transposed = ctx.layer.kind == "deconvolutional"
    bias = ctx.array((filters,), "bias")
    normalize = bool(section.int("batch_normalize"))
    parts = _statistics(ctx, filters) if normalize else []
    shape = (
        (channels, filters // group, size, size) if transposed else (filters, channels // group, size, size)
    )
    weight = ctx.weight(shape, "weight")
    added = None if normalize else ctx.literal(bias, "bias")
    common = {
        "strides": strides,
        "pads": (padding * dilation,) * 4,
        "dilations": (dilation, dilation),
        "group": group,
    }
    if transposed:
        y = ctx.emit(top.Deconv, ctx.value(), weight, added, output_padding=(0, 0), **common)
    else:
        y = ctx.emit(top.Conv, ctx.value(), weight, added, **common)
    if normalize:
        y = _normalized(ctx, y, bias, parts)
    return activate(ctx, y)


@rule("connected")
def connected(ctx: DarknetContext) -> Value:
    """All inputs to `output` numbers, with batch normalization and all activations."""
    n, *rest = ctx.shape()
    inputs, outputs = prod(rest), ctx.section.int("output", 1, 1)
    bias = ctx.array((outputs,), "bias")
    turned = ctx.weights.transposed
    weight = ctx.weight((inputs, outputs) if turned else (outputs, inputs), "weight")
    normalize = bool(ctx.section.int("batch_normalize"))
    parts = _statistics(ctx, outputs) if normalize else []
    added = None if normalize else ctx.literal(bias, "bias")
    flat = ctx.reshape(ctx.value(), (n, inputs))
    y = ctx.emit(top.MatMul, flat, weight, added, transpose_b=not turned)
    y = ctx.reshape(y, (n, outputs, 1, 1))
    if normalize:
        y = _normalized(ctx, y, bias, parts)
    return activate(ctx, y)


@rule("batchnorm")
def batchnorm(ctx: DarknetContext) -> Value:
    """Bias, scale, mean and variance, in that order in the file."""
    channels = ctx.shape()[1]
    bias = ctx.array((channels,), "bias")
    return _normalized(ctx, ctx.value(), bias, _statistics(ctx, channels))


@rule("local")
def local(ctx: DarknetContext) -> Value:
    """A convolution with weights of its own for every place, as a matrix product for each; odd sizes where padded."""
    section = ctx.section
    n, channels = ctx.shape()[:2]
    filters, size, stride = (
        section.int("filters", 1, 1),
        section.int("size", 1, 1),
        section.int("stride", 1, 1),
    )
    pad = size // 2 if section.int("pad") else 0
    x = ctx.value()
    if pad:
        x = ctx.emit(top.Pad, x, pads=(0, 0, pad, pad, 0, 0, pad, pad))
    rows, columns = shape_of(x)[2:]
    if size > min(rows, columns) or (pad and size % 2 == 0):
        raise ctx.invalid(f"windows of {size} in {rows} x {columns}")
    ys = np.arange(0, rows - size + 1, stride)
    xs = np.arange(0, columns - size + 1, stride)
    places, inner = len(ys) * len(xs), channels * size * size
    if places * inner > _MAX_WINDOWS:
        raise NoForm(f"{places} windows of {inner} elements are too many")
    bias = ctx.array((filters * places,), "bias")
    weight = ctx.array((places, filters, inner), "weight")
    window = np.arange(channels)[:, None, None] * rows * columns + (
        np.arange(size)[:, None] * columns + np.arange(size)
    )
    corner = (ys[:, None] * columns + xs).reshape(-1, 1)
    indices = ctx.literal((corner + window.reshape(1, -1)).astype(np.int64), "windows")
    patches = ctx.emit(top.Gather, ctx.reshape(x, (n, channels * rows * columns)), indices, axis=1)
    by_place = ctx.reshape(patches, (n, places, 1, inner))
    turned = ctx.literal(np.ascontiguousarray(weight.transpose(0, 2, 1))[None], "weight")
    y = ctx.reshape(ctx.emit(top.MatMul, by_place, turned, None), (n, places, filters))
    y = ctx.reshape(ctx.emit(top.Permute, y, order=(0, 2, 1)), (n, filters, len(ys), len(xs)))
    added = ctx.literal(bias.reshape(filters, len(ys), len(xs)), "bias")
    return activate(ctx, ctx.emit(top.Add, y, added))
