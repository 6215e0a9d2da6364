"""Pooling, and normalization over neighbours."""

from __future__ import annotations

from npuc.frontend.darknet.registry import DarknetContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, top


def _window(ctx: DarknetContext) -> dict[str, tuple[int, ...]]:
    """Darknet pads by size - 1 in all, the smaller half before, and stops when windows are used up."""
    section = ctx.section
    if section.int("maxpool_depth") or section.int("antialiasing"):
        raise NoForm("pooling over channels, or with antialiasing, is not known")
    stride = section.int("stride", 1, 1)
    strides = (section.int("stride_y", stride, 1), section.int("stride_x", stride, 1))
    size = section.int("size", stride, 1, 4096)
    padding = section.int("padding", size - 1, 0, 4096)
    before, after = padding // 2, []
    for length, step in zip(ctx.shape()[2:], strides, strict=True):
        if length + padding < size:
            raise ctx.invalid(f"windows of {size} in {length} + {padding}")
        count = (length + padding - size) // step + 1
        after.append(max(0, (count - 1) * step + size - before - length))
    return {
        "kernel": (size, size),
        "strides": strides,
        "pads": (before, before, *after),
        "dilations": (1, 1),
    }


@rule("maxpool")
def maxpool(ctx: DarknetContext) -> Value:
    """With Darknet's padding; not over channels."""
    return ctx.emit(top.MaxPool, ctx.value(), **_window(ctx))


@rule("local_avgpool")
def local_avgpool(ctx: DarknetContext) -> Value:
    """The mean of the real elements of a window."""
    return ctx.emit(top.AvgPool, ctx.value(), **_window(ctx), count_include_pad=False)


@rule("avgpool")
def avgpool(ctx: DarknetContext) -> Value:
    """The mean of each channel."""
    size = ctx.shape()[2:]
    return ctx.emit(
        top.AvgPool, ctx.value(), kernel=size, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)
    )


@rule("normalization")
def normalization(ctx: DarknetContext) -> Value:
    """Over `size` neighbouring channels (an odd number), with `alpha`, `beta` and `kappa`."""
    section = ctx.section
    size = section.int("size", 5, 1, 4096)
    if size % 2 == 0:
        raise NoForm(f"a size of {size} has no middle")
    alpha = section.float("alpha", 0.0001) * size
    beta, bias = section.float("beta", 0.75), section.float("kappa", 1.0)
    return ctx.emit(top.LRN, ctx.value(), size=size, alpha=alpha, beta=beta, bias=bias)


@rule("l2norm")
def l2norm(ctx: DarknetContext) -> Value:
    """Every pixel by its length over the channels."""
    return ctx.emit(top.L2Norm, ctx.value(), axis=1, epsilon=0.0)
