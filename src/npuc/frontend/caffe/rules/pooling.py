"""Pooling, and what is made of it."""

from __future__ import annotations

from npuc.arrays import ceil_div
from npuc.frontend.caffe.message import CaffeMessage
from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.frontend.caffe.rules.convolution import spatial
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top


def _rounds_up(given: CaffeMessage) -> bool:
    """Caffe rounds sizes up; forks say otherwise in two ways."""
    if given.has("ceil_mode"):
        return given.bool("ceil_mode")
    return given.enum("round_mode", ("CEIL", "FLOOR"), "CEIL") == "CEIL"


def average(
    ctx: CaffeContext,
    x: Value,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pad: tuple[int, ...],
    up: bool,
) -> Value:
    """A mean over the window inside the padded image: padding counts, what lies beyond it does not."""
    size = shape_of(x)[2:]
    sizes = zip(size, kernel, strides, pad, strict=True)
    beyond = up and any((n + 2 * p - k) % s for n, k, s, p in sizes)
    if beyond and any(pad):
        x = ctx.emit(top.Pad, x, pads=(0, 0, *pad, 0, 0, *pad))
        # A last window that starts in the padding does not count.
        ends = [
            min(0, s * ((n + p - 1) // s) + k - n - 2 * p) if s * ceil_div(n + 2 * p - k, s) >= n + p else 0
            for n, k, s, p in zip(size, kernel, strides, pad, strict=True)
        ]
        if any(ends):
            x = ctx.emit(top.Pad, x, pads=(0, 0, *(0 for _ in ends), 0, 0, *ends))
        pad = tuple(0 for _ in pad)
    return ctx.emit(
        top.AvgPool,
        x,
        kernel=kernel,
        strides=strides,
        pads=(*pad, *pad),
        dilations=(1,) * len(kernel),
        ceil_mode=beyond,
        count_include_pad=any(pad),
    )


@rule("Pooling")
def pooling(ctx: CaffeContext) -> Value:
    """MAX and AVE; sizes round up as Caffe's do, unless `round_mode` or `ceil_mode` says otherwise; one top."""
    given = ctx.parameters("pooling_param")
    x = ctx.value()
    size = ctx.shape()[2:]
    rank = len(size)
    if len(ctx.layer.outputs) > 1:
        raise NoForm("it gives the places of the maxima, too")
    kind = given.enum("pool", ("MAX", "AVE", "STOCHASTIC"), "MAX")
    if kind == "STOCHASTIC":
        raise NoForm("it pools at random")
    kernel = size if given.bool("global_pooling") else spatial(ctx, given, "kernel_size", rank, None)
    strides = spatial(ctx, given, "stride", rank, 1)
    pad = spatial(ctx, given, "pad", rank, 0)
    if any(p >= k for p, k in zip(pad, kernel, strict=True)):
        raise ctx.invalid(f"a padding of {list(pad)} around windows of {list(kernel)}")
    up = _rounds_up(given)
    if kind == "AVE":
        return average(ctx, x, kernel, strides, pad, up)
    return ctx.emit(
        top.MaxPool,
        x,
        kernel=kernel,
        strides=strides,
        pads=(*pad, *pad),
        dilations=(1,) * rank,
        ceil_mode=up
        and any((n + 2 * p - k) % s for n, k, s, p in zip(size, kernel, strides, pad, strict=True)),
    )


@rule("LRN")
def lrn(ctx: CaffeContext) -> Value:
    """Across channels and within a channel."""
    given = ctx.parameters("lrn_param")
    size, alpha, beta = given.int("local_size", 5), given.float("alpha", 1.0), given.float("beta", 0.75)
    x = ctx.value()
    if size < 1 or size % 2 == 0:
        raise ctx.invalid(f"a local_size of {size}")
    if (
        given.enum("norm_region", ("ACROSS_CHANNELS", "WITHIN_CHANNEL"), "ACROSS_CHANNELS")
        == "ACROSS_CHANNELS"
    ):
        return ctx.emit(top.LRN, x, size=size, alpha=alpha, beta=beta, bias=given.float("k", 1.0))
    half = (size - 1) // 2
    rank = len(ctx.shape()) - 2
    squares = ctx.emit(top.Mul, x, x)
    mean = average(ctx, squares, (size,) * rank, (1,) * rank, (half,) * rank, True)
    scale = ctx.emit(top.Add, ctx.emit(top.Mul, mean, ctx.number(alpha)), ctx.number(1.0))
    return ctx.emit(top.Mul, x, ctx.emit(top.Pow, scale, ctx.number(-beta)))


@rule("ROIPooling")
def roi_pooling(ctx: CaffeContext) -> Value:
    """On the CPU, as ONNX's MaxRoiPool."""
    from npuc.ir import tensor_type

    given = ctx.parameters("roi_pooling_param")
    x, rois = ctx.shape(0), ctx.shape(1)
    height, width = given.int("pooled_h"), given.int("pooled_w")
    boxes = ctx.reshape(ctx.value(1), (rois[0], rois[1]))
    return ctx.onnx(
        "MaxRoiPool",
        [ctx.value(0), boxes],
        [tensor_type((rois[0], x[1], height, width), "f32")],
        "regions of interest have no form in top",
        pooled_shape=[height, width],
        spatial_scale=given.float("spatial_scale", 1.0),
    )[0]
