"""Resampling layers of forks."""

from __future__ import annotations

from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top


def _nearest(ctx: CaffeContext, height: int, width: int) -> Value:
    n, c, *_ = ctx.shape()
    return ctx.emit(
        top.Resize,
        ctx.value(),
        sizes=(n, c, height, width),
        mode="nearest",
        coordinates="asymmetric",
        rounding="floor",
    )


@rule("Interp")
def interp(ctx: CaffeContext) -> Value:
    """Bilinear between corners: by `height` and `width`, `zoom_factor`, `shrink_factor`, or like a second bottom."""
    given = ctx.parameters("interp_param")
    n, c, height, width = ctx.shape()
    begin, end = given.int("pad_beg"), given.int("pad_end")
    x = ctx.value()
    if begin or end:
        if begin > 0 or end > 0:
            raise ctx.invalid("pads of Interp are not positive")
        x = ctx.emit(top.Pad, x, pads=(0, 0, begin, begin, 0, 0, end, end))
        height, width = shape_of(x)[2:]
    sizes = [height, width]
    if ctx.count > 1:
        sizes = list(ctx.shape(1)[2:])
    elif given.has("height") or given.has("width"):
        sizes = [given.int("height"), given.int("width")]
    else:
        shrink, zoom = given.int("shrink_factor", 1), given.int("zoom_factor", 1)
        if shrink < 1 or zoom < 1:
            raise ctx.invalid("factors are at least 1")
        sizes = [(size - 1) // shrink + 1 for size in sizes]
        sizes = [size + (size - 1) * (zoom - 1) for size in sizes]
    return ctx.emit(
        top.Resize, x, sizes=(n, c, *sizes), mode="linear", coordinates="align_corners", rounding="floor"
    )


@rule("Upsample", "NearestUpsample", "NNUpsample")
def upsample(ctx: CaffeContext) -> Value:
    """Nearest: by `scale`, or to `upsample_h` and `upsample_w`; not with places of maxima."""
    given = ctx.parameters("upsample_param")
    if ctx.count > 1:
        raise NoForm("it puts values back to the places of maxima")
    _, _, height, width = ctx.shape()
    scale = given.int("scale", given.int("scale_h", 2))
    other = given.int("scale_w", scale)
    return _nearest(ctx, given.int("upsample_h", height * scale), given.int("upsample_w", width * other))
