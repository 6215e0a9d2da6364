"""Convolution and its transpose."""

from __future__ import annotations

import numpy as np

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import Value, dtype_of, shape_of, top
from npuc.ir.top.window import same_pads


def _batched(ctx: TorchContext, x: Value, rank: int) -> Value:
    """An input without a batch axis gets one."""
    return x if len(shape_of(x)) == rank else ctx.reshape(x, (1, *shape_of(x)))


@rule("aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.convolution", "aten._convolution")
def conv(ctx: TorchContext) -> Outcome:
    """One to three spatial axes, grouped, dilated, transposed; pads may be 'same' or 'valid'."""
    f32 = dtype_of("f32")
    weight = ctx.value("weight", f32)
    rank = len(shape_of(weight))
    x = _batched(ctx, ctx.value("input", f32), rank)
    spatial = rank - 2
    bias = ctx.optional("bias", f32)
    if ctx.flag("transposed"):
        y = _transposed(ctx, x, weight, bias, ctx.ints("output_padding", spatial))
    else:
        strides, dilations = ctx.ints("stride", spatial), ctx.ints("dilation", spatial)
        if isinstance(ctx.args["padding"], str):
            kernel = shape_of(weight)[2:]
            same = same_pads(shape_of(x)[2:], kernel, strides, dilations, upper=True)
            pads = same if ctx.args["padding"] == "same" else (0,) * 2 * spatial
        else:
            pads = ctx.ints("padding", spatial) * 2
        group = ctx.integer("groups")
        y = ctx.emit(
            top.Conv, x, weight, bias, strides=strides, pads=pads, dilations=dilations, group=group
        ).y
    return ctx.reshape(y, ctx.result_shape)


def _transposed(
    ctx: TorchContext, x: Value, weight: Value, bias: Value | None, output_padding: tuple[int, ...]
) -> Value:
    spatial = len(shape_of(weight)) - 2
    strides, dilations = ctx.ints("stride", spatial), ctx.ints("dilation", spatial)
    if any(extra >= max(s, d) for extra, s, d in zip(output_padding, strides, dilations, strict=True)):
        raise NoTopForm("its output padding is larger than its stride")
    return ctx.emit(
        top.Deconv,
        x,
        weight,
        bias,
        strides=strides,
        pads=ctx.ints("padding", spatial) * 2,
        dilations=dilations,
        group=ctx.integer("groups"),
        output_padding=output_padding,
    ).y


@rule("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
def conv_transpose(ctx: TorchContext) -> Outcome:
    """The weight is inputs x outputs / groups x kernel."""
    f32 = dtype_of("f32")
    weight = ctx.value("weight", f32)
    rank = len(shape_of(weight))
    x = _batched(ctx, ctx.value("input", f32), rank)
    y = _transposed(ctx, x, weight, ctx.optional("bias", f32), ctx.ints("output_padding", rank - 2))
    return ctx.reshape(y, ctx.result_shape)


@rule("aten.im2col", limits="as a convolution with one-hot weights, if the kernel has up to 64 positions")
def im2col(ctx: TorchContext) -> Outcome:
    """Patches as columns (nn.Unfold): a depthwise convolution that picks each position of the window."""
    x = ctx.value("self")
    if len(shape_of(x)) != 4:
        raise NoTopForm("its input has no batch axis")
    batch, channels = shape_of(x)[:2]
    kernel = ctx.ints("kernel_size", 2)
    count = kernel[0] * kernel[1]
    if count > 64:
        raise NoTopForm(f"its window has {count} positions")
    weight = np.tile(np.eye(count, dtype=np.float32).reshape(count, 1, *kernel), (channels, 1, 1, 1))
    y = ctx.emit(
        top.Conv,
        x,
        ctx.literal(weight, "picks"),
        None,
        strides=ctx.ints("stride", 2),
        pads=ctx.ints("padding", 2) * 2,
        dilations=ctx.ints("dilation", 2),
        group=channels,
    ).y
    return ctx.reshape(y, (batch, channels * count, int(np.prod(shape_of(y)[2:]))))
