"""Images resized."""

from __future__ import annotations

from npuc.errors import InvalidModelError
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.scope import TfliteContext
from npuc.frontend.tflite.view import FlatbufferView
from npuc.ir import top


def _sizes(ctx: TfliteContext) -> tuple[int, ...]:
    size = ctx.integers(1, "size")
    if ctx.rank(0) != 4 or len(size) != 2 or min(size) < 1:
        raise InvalidModelError(f"{ctx.label}: it does not resize the height and width of an image")
    batch, _, _, channels = ctx.shape(0)
    return (batch, channels, *size)


def _coordinates(ctx: TfliteContext, options: FlatbufferView) -> str:
    corners, centres = bool(options.number("AlignCorners")), bool(options.number("HalfPixelCenters"))
    if corners and centres:
        raise ctx.refuse("it aligns both corners and centres of pixels")
    return "align_corners" if corners else "half_pixel" if centres else "asymmetric"


@rule("RESIZE_BILINEAR")
def resize_bilinear(ctx: TfliteContext) -> Outcome:
    """Linear interpolation; the result keeps the scale of its input."""
    coordinates = _coordinates(ctx, ctx.needed("ResizeBilinearOptions"))
    y = ctx.emit(
        top.Resize, ctx.real(0, nchw=True), sizes=_sizes(ctx), mode="linear", coordinates=coordinates
    ).y
    return LayoutTensor(ctx.as_input(y), True)


@rule("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(ctx: TfliteContext) -> Outcome:
    """The nearest pixel: below, or rounded where corners or centres are aligned."""
    coordinates = _coordinates(ctx, ctx.needed("ResizeNearestNeighborOptions"))
    rounding = "floor" if coordinates == "asymmetric" else "round_prefer_ceil"
    y = ctx.emit(
        top.Resize,
        ctx.real(0, nchw=True),
        sizes=_sizes(ctx),
        mode="nearest",
        coordinates=coordinates,
        rounding=rounding,
    ).y
    return LayoutTensor(ctx.as_input(y), True)
