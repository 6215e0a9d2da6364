"""Images resized."""

from __future__ import annotations

from typing import Any

from npuc.frontend.blocks.movement import resize
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule


def _coordinates(ctx: TensorflowContext) -> str:
    corners, centres = ctx.node.flag("align_corners"), ctx.node.flag("half_pixel_centers")
    if corners and centres:
        raise ctx.refuse("it aligns both corners and centres of pixels")
    return "align_corners" if corners else "half_pixel" if centres else "asymmetric"


def _size(ctx: TensorflowContext) -> tuple[int, ...]:
    size = ctx.integers(1, "size")
    if ctx.x(0).rank != 4 or len(size) != 2:
        raise ctx.wrong("it does not resize the height and width of an image")
    return size


@rule("ResizeBilinear")
def bilinear(ctx: TensorflowContext) -> Outcome:
    """A constant size; corners or centres may be aligned."""
    return resize(ctx.c, ctx.x(0), _size(ctx), "linear", _coordinates(ctx))


@rule("ResizeNearestNeighbor")
def nearest(ctx: TensorflowContext) -> Outcome:
    """A constant size; corners or centres may be aligned."""
    coordinates = _coordinates(ctx)
    rounding = "round_prefer_ceil" if coordinates == "align_corners" else "floor"
    if coordinates == "half_pixel":
        # TensorFlow takes the pixel that the centre falls into.
        coordinates, rounding = "half_pixel", "round_prefer_ceil"
    return resize(ctx.c, ctx.x(0), _size(ctx), "nearest", coordinates, rounding)


@rule("ResizeBicubic")
def bicubic(ctx: TensorflowContext) -> Outcome:
    """A constant size, not smaller than the image."""
    centres = ctx.node.flag("half_pixel_centers")
    more: dict[str, Any] = {"cubic_coefficient": -0.5, "exclude_outside": True} if centres else {}
    return resize(ctx.c, ctx.x(0), _size(ctx), "cubic", _coordinates(ctx), **more)
