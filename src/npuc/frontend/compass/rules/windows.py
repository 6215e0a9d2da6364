"""Layers with weights, and windows that slide over images."""

from __future__ import annotations

import numpy as np

from npuc.frontend.compass.registry import CompassContext, rule
from npuc.frontend.compass.rules.activations import activate
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top


def _window(ctx: CompassContext) -> dict[str, tuple[int, ...]]:
    """Strides, pads and dilations, rows before columns."""
    return {
        "strides": (ctx.integer("stride_y", 1), ctx.integer("stride_x", 1)),
        "pads": tuple(ctx.integer(f"pad_{side}", 0) for side in ("top", "left", "bottom", "right")),
        "dilations": (ctx.integer("dilation_y", 1), ctx.integer("dilation_x", 1)),
    }


def _finished(ctx: CompassContext, y: Value) -> Value:
    """The result with its activation, and its channels last; only slopes are in that order."""
    method = ctx.word("with_activation")
    if method == "PRELU":
        return activate(ctx, ctx.channels_last(y), method)
    return ctx.channels_last(activate(ctx, y, method))


@rule("Convolution", "DepthwiseConv")
def convolution(ctx: CompassContext) -> Value:
    """Of images, in groups or depthwise, with an activation behind it; weights are constant."""
    x = ctx.image()
    weights = ctx.weights()
    if weights.ndim != 4:
        raise ctx.invalid(f"its weights have rank {weights.ndim}")
    depthwise = ctx.layer.kind == "DepthwiseConv"
    # Output channels x rows x columns x channels of a group.
    turned = np.ascontiguousarray(weights.transpose(0, 3, 1, 2))
    group = shape_of(x)[1] if depthwise else ctx.integer("group", 1)
    y = ctx.emit(
        top.Conv, x, ctx.literal(turned, "weights"), ctx.biases(len(turned)), group=group, **_window(ctx)
    )
    return _finished(ctx, y)


@rule("ConvTranspose")
def transposed(ctx: CompassContext) -> Value:
    """Of images; weights are constant."""
    x = ctx.image()
    group = ctx.integer("group", 1)
    weights = ctx.weights()
    if weights.ndim != 4 or group < 1 or shape_of(x)[1] % group:
        raise ctx.invalid("its weights do not fit its input")
    outputs, rows, columns, inputs = weights.shape
    turned = weights.reshape(group, -1, rows, columns, inputs).transpose(0, 4, 1, 2, 3)
    turned = np.ascontiguousarray(turned).reshape(group * inputs, -1, rows, columns)
    padding = (ctx.integer("output_padding_y", 0), ctx.integer("output_padding_x", 0))
    y = ctx.emit(
        top.Deconv,
        x,
        ctx.literal(turned, "weights"),
        ctx.biases(outputs),
        group=group,
        output_padding=padding,
        **_window(ctx),
    )
    return _finished(ctx, y)


@rule("FullyConnected")
def fully_connected(ctx: CompassContext) -> Value:
    """Rows times constant weights, which are outputs x inputs, with an activation behind it."""
    x = ctx.value()
    weights = ctx.weights()
    if weights.ndim != 2 or len(shape_of(x)) < 2:
        raise ctx.invalid(f"its weights have rank {weights.ndim}")
    # In the order of the product: constants that are read straight are quantized by column.
    turned = np.ascontiguousarray(weights.T)
    y = ctx.emit(top.MatMul, x, ctx.literal(turned, "weights"), ctx.biases(len(weights)))
    return activate(ctx, y, ctx.word("with_activation"))


@rule("Pooling")
def pooling(ctx: CompassContext) -> Value:
    """MAX and AVG of images."""
    x, method = ctx.image(), ctx.word("method")
    properties = {
        "kernel": (ctx.integer("kernel_y"), ctx.integer("kernel_x")),
        "ceil_mode": ctx.flag("ceil_mode"),
        **_window(ctx),
    }
    if method == "MAX":
        y = ctx.emit(top.MaxPool, x, **properties)
    elif method == "AVG":
        y = ctx.emit(top.AvgPool, x, count_include_pad=ctx.flag("count_include_pad"), **properties)
    else:
        raise NoForm(f"its method '{method[:20]}' is not known")
    return ctx.channels_last(y)


@rule("BatchNorm")
def batch_norm(ctx: CompassContext) -> Value:
    """A factor and a term for each channel, which are on the last axis."""
    rank = len(ctx.shape())
    if ctx.axis_of() != rank - 1:
        raise NoForm("its channels are not on the last axis")
    y = ctx.emit(top.Mul, ctx.value(), ctx.literal(ctx.weights().reshape(-1), "weights"))
    return ctx.emit(top.Add, y, ctx.biases(shape_of(y)[-1]))


@rule("Resize", "Interp")
def resize(ctx: CompassContext) -> Value:
    """NEAREST and BILINEAR of images."""
    x = ctx.image()
    method = ctx.word("method")
    modes = {"NEAREST": "nearest", "BILINEAR": "linear", "BICUBIC": "cubic"}
    if method not in modes:
        raise NoForm(f"its method '{method[:20]}' is not known")
    size = _stated_size(ctx)
    y = ctx.emit(
        top.Resize,
        x,
        sizes=(*shape_of(x)[:2], *size),
        mode=modes[method],
        coordinates=ctx.word("mode", "HALF_PIXEL").lower(),
        rounding=ctx.word("nearest_mode", "ROUND_PREFER_FLOOR").lower(),
        exclude_outside=ctx.flag("exclude_outside"),
        antialias=ctx.flag("antialias"),
    )
    return ctx.channels_last(y)


def _stated_size(ctx: CompassContext) -> tuple[int, int]:
    nested = ctx.nested("layer_top_shape")
    shape = [int(str(side)) for side in nested[0]]
    if len(shape) != 4:
        raise ctx.invalid(f"its result has rank {len(shape)}")
    return shape[1], shape[2]


@rule("LRN")
def local_response(ctx: CompassContext) -> Value:
    """Across channels."""
    if ctx.word("method", "ACROSS_CHANNELS") not in ("ACROSS_CHANNELS", "ACROSS"):
        raise NoForm("it normalizes within channels")
    y = ctx.emit(
        top.LRN,
        ctx.image(),
        size=ctx.integer("size"),
        alpha=ctx.real("alpha"),
        beta=ctx.real("beta"),
        bias=ctx.real("bias", 1.0),
    )
    return ctx.channels_last(y)


@rule("DepthToSpace", "SpaceToDepth")
def depth_and_space(ctx: CompassContext) -> Value:
    """Square blocks."""
    block = ctx.integer("block_size_x")
    if block != ctx.integer("block_size_y", block):
        raise NoForm("its block is not square")
    x = ctx.image()
    if ctx.layer.kind == "SpaceToDepth":
        return ctx.channels_last(ctx.emit(top.SpaceToDepth, x, block=block))
    return ctx.channels_last(ctx.emit(top.DepthToSpace, x, block=block, mode=ctx.word("mode", "DCR")))


@rule("ChannelShuffle")
def channel_shuffle(ctx: CompassContext) -> Value:
    """Into one result."""
    if ctx.integer("splits", 1) != 1:
        raise NoForm("its result is split")
    return ctx.channels_last(ctx.emit(top.ShuffleChannel, ctx.image(), group=ctx.integer("group")))


@rule("InstanceNorm")
def instance_norm(ctx: CompassContext) -> Value:
    """Of images."""
    x = ctx.image()
    scale = ctx.literal(ctx.weights().reshape(-1), "weights")
    y = ctx.emit(top.InstanceNorm, x, scale, ctx.biases(shape_of(x)[1]), epsilon=ctx.real("epsilon", 1e-5))
    return ctx.channels_last(y)
