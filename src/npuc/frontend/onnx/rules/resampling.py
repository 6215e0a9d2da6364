"""Resize and Upsample, through all their versions."""

from __future__ import annotations

from math import floor

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import top

_EXACT = np.float64


def _sizes(shape: tuple[int, ...], scales: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(floor(n * s) for n, s in zip(shape, scales, strict=True))


@rule("Upsample")
def upsample(ctx: NodeContext) -> Outcome:
    """Opset 7 has the scales as an attribute, 9 as an input."""
    shape = ctx.shape(0)
    if ctx.opset < 7:
        raise NoTopForm("its old form has two scales")
    scales = (
        ctx.node.floats("scales") if ctx.opset < 9 else tuple(map(float, ctx.known(1, "scales").reshape(-1)))
    )
    if len(scales) != len(shape):
        raise InvalidModelError(f"{ctx.node.label}: {len(scales)} scales for rank {len(shape)}")
    mode = {"nearest": "nearest"}.get(ctx.node.string("mode", "nearest"), "linear")
    return ctx.emit(
        top.Resize,
        ctx.operand(0),
        sizes=_sizes(shape, scales),
        scales=scales,
        mode=mode,
        coordinates="asymmetric",
        rounding="floor",
    ).y


@rule("Resize")
def resize(ctx: NodeContext) -> Outcome:
    """Scales or sizes; opset 18 adds axes and aspect-ratio policies."""
    node, shape = ctx.node, ctx.shape(0)
    rank = len(shape)
    if ctx.opset < 11:
        coordinates, rounding = "asymmetric", "floor"
        scale_input, size_input = 1, 9
    else:
        coordinates = node.string("coordinate_transformation_mode", "half_pixel")
        rounding = node.string("nearest_mode", "round_prefer_floor")
        scale_input, size_input = 2, 3
    if coordinates == "tf_crop_and_resize":
        raise NoTopForm("it crops while it resizes")
    axes = node.ints("axes", tuple(range(rank)))
    axes = tuple(axis + rank if axis < 0 else axis for axis in axes)
    scales = [1.0] * rank
    sizes = list(shape)
    given = ctx.known(scale_input, "scales").reshape(-1) if ctx.has(scale_input) else np.zeros(0)
    if given.size:
        if given.size != len(axes):
            raise InvalidModelError(f"{node.label}: {given.size} scales for {len(axes)} axes")
        for axis, scale in zip(axes, given, strict=True):
            scales[axis] = float(scale)
            sizes[axis] = floor(shape[axis] * _EXACT(scale))
    else:
        new_sizes = ctx.known_ints(size_input, "sizes")
        if len(new_sizes) != len(axes) or any(shape[axis] == 0 for axis in axes):
            raise InvalidModelError(f"{node.label}: {len(new_sizes)} sizes for {len(axes)} axes")
        policy = node.string("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            for axis, size in zip(axes, new_sizes, strict=True):
                sizes[axis] = size
            scales = []
        else:
            ratios = [size / shape[axis] for axis, size in zip(axes, new_sizes, strict=True)]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            for axis in axes:
                sizes[axis] = floor(shape[axis] * ratio + 0.5)
                scales[axis] = ratio
    return ctx.emit(
        top.Resize,
        ctx.operand(0),
        sizes=tuple(sizes),
        scales=tuple(scales),
        mode=node.string("mode", "nearest"),
        coordinates=coordinates,
        rounding=rounding,
        cubic_coefficient=node.float("cubic_coeff_a", -0.75),
        exclude_outside=node.flag("exclude_outside"),
        antialias=node.flag("antialias"),
    ).y
