"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuc.frontend.blocks.windows import Pairs, convolution, depthwise, pool, transposed
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule
from npuc.ir import top


def _spatial(ctx: TensorflowContext, name: str, rank: int) -> tuple[int, ...]:
    """The entries of an attribute that belong to spatial axes; those of batch and channels must be 1."""
    numbers = ctx.node.integers(name) or (1,) * rank
    if len(numbers) != rank:
        raise ctx.wrong(f"its '{name}' has {len(numbers)} entries for rank {rank}")
    inner, outer = (
        (numbers[2:], numbers[:2]) if ctx.channels_first else (numbers[1:-1], (numbers[0], numbers[-1]))
    )
    if set(outer) != {1}:
        raise ctx.refuse(f"its '{name}' moves over batch or channels")
    return inner


def _padding(ctx: TensorflowContext, rank: int) -> str | Pairs:
    padding = ctx.node.text("padding")
    if padding != "EXPLICIT":
        return padding
    numbers = ctx.node.integers("explicit_paddings")
    if len(numbers) != 2 * rank:
        raise ctx.wrong(f"it has {len(numbers)} paddings for rank {rank}")
    pairs: Sequence[tuple[int, int]] = list(zip(numbers[::2], numbers[1::2], strict=True))
    return pairs[2:] if ctx.channels_first else pairs[1:-1]


def _window(ctx: TensorflowContext, x: LayoutTensor) -> dict[str, Any]:
    return {
        "strides": _spatial(ctx, "strides", x.rank),
        "padding": _padding(ctx, x.rank),
        "dilations": _spatial(ctx, "dilations", x.rank),
        "channels_first": ctx.channels_first,
    }


@rule("Conv2D", "Conv3D")
def conv(ctx: TensorflowContext) -> Outcome:
    """NHWC or NCHW, SAME, VALID or explicit padding, groups, dilations."""
    return convolution(ctx.c, ctx.x(0), ctx.x(1), None, **_window(ctx, ctx.x(0)))


@rule("DepthwiseConv2dNative")
def depthwise_conv(ctx: TensorflowContext) -> Outcome:
    """NHWC or NCHW, SAME, VALID or explicit padding, dilations."""
    return depthwise(ctx.c, ctx.x(0), ctx.x(1), None, **_window(ctx, ctx.x(0)))


@rule("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def conv_transpose(ctx: TensorflowContext) -> Outcome:
    """size of the result (constant), kernel, x: a transposed convolution."""
    x = ctx.x(2)
    size = ctx.integers(0, "size")
    if len(size) != x.rank and len(size) != x.rank - 2:
        raise ctx.wrong(f"its size has {len(size)} entries for rank {x.rank}")
    if len(size) == x.rank:
        size = size[2:] if ctx.channels_first else size[1:-1]
    return transposed(ctx.c, x, ctx.x(1), None, size=size, **_window(ctx, x))


@rule("MaxPool", "MaxPool3D", "AvgPool", "AvgPool3D")
def pooled(ctx: TensorflowContext) -> Outcome:
    """NHWC or NCHW, SAME, VALID or (MaxPool) explicit padding; a mean is over real positions."""
    x = ctx.x(0)
    kind = top.MaxPool if ctx.node.op.startswith("Max") else top.AvgPool
    return pool(
        ctx.c,
        x,
        kind,
        window=_spatial(ctx, "ksize", x.rank),
        strides=_spatial(ctx, "strides", x.rank),
        padding=_padding(ctx, x.rank),
        channels_first=ctx.channels_first,
    )


@rule("MaxPoolV2")
def max_pool_v2(ctx: TensorflowContext) -> Outcome:
    """As MaxPool, with a constant window and strides as inputs."""
    x = ctx.x(0)
    window, strides = ctx.integers(1, "window"), ctx.integers(2, "strides")
    inner = slice(2, None) if ctx.channels_first else slice(1, -1)
    return pool(
        ctx.c,
        x,
        top.MaxPool,
        window=window[inner],
        strides=strides[inner],
        padding=_padding(ctx, x.rank),
        channels_first=ctx.channels_first,
    )
