"""Layers that combine another layer with the one before them."""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.frontend.darknet.registry import DarknetContext, rule
from npuc.frontend.darknet.rules.activation import activate
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top


def _fitted(ctx: DarknetContext, value: Value) -> Value:
    """A tensor brought to the shape of the layer before: pixels skipped, channels left out or zero."""
    channels, height, width = ctx.shape()[1:]
    n, own, rows, columns = shape_of(value)
    if (rows, columns) != (height, width):
        step = rows // height
        if step < 1 or (rows // step, columns // step) != (height, width):
            raise NoForm(f"{rows} x {columns} pixels do not fit {height} x {width}")
        value = ctx.emit(
            top.Slice, value, offset=(0, 0, 0, 0), steps=(1, 1, step, step), shape=(n, own, height, width)
        )
    if own > channels:
        return ctx.part(value, 1, 0, channels)
    if own < channels:
        return ctx.emit(top.Pad, value, pads=(0, 0, 0, 0, 0, channels - own, 0, 0))
    return value


def _factors(ctx: DarknetContext) -> list[Array] | None:
    """One factor for each summand, of a whole layer or of each channel, as `weights_type` says."""
    kind = ctx.section.text("weights_type", "none")
    if kind == "none":
        return None
    kinds = {"per_feature": 1, "per_layer": 1, "per_channel": ctx.shape()[1]}
    if kind not in kinds:
        raise ctx.invalid(f"weights_type={kind[:40]}")
    weights = ctx.array((ctx.count, kinds[kind]), "scale").astype(np.float32)
    normalization = ctx.section.text("weights_normalization", "none")
    if normalization in ("relu", "avg_relu"):
        positive = np.maximum(weights, 0)
        weights = positive / (positive.sum(0) + np.float32(1e-4))
    elif normalization == "softmax":
        powers = np.exp(weights - weights.max(0))
        weights = powers / (powers.sum(0) + np.float32(1e-4))
    elif normalization != "none":
        raise ctx.invalid(f"weights_normalization={normalization[:40]}")
    return [row.reshape(-1, 1, 1) for row in weights.astype(np.float32)]


@rule("shortcut")
def shortcut(ctx: DarknetContext) -> Value:
    """The sum of layers, of other sizes too, with weights if `weights_type` says so."""
    values = [_fitted(ctx, value) for value in ctx.values()]
    factors = _factors(ctx)
    if factors is not None:
        values = [
            ctx.emit(top.Mul, value, ctx.literal(factor, "factor"))
            for value, factor in zip(values, factors, strict=True)
        ]
    y = values[0]
    for value in values[1:]:
        y = ctx.emit(top.Add, y, value)
    return activate(ctx, y, "linear")


@rule("scale_channels", "sam")
def scale_channels(ctx: DarknetContext) -> Value:
    """Another layer times the one before, which has one value for each channel, for each pixel, or for every element."""
    scale, x = ctx.shape(0), ctx.shape(1)
    if any(a not in (1, b) for a, b in zip(scale, x, strict=True)):
        raise ctx.invalid(f"{list(scale)} does not fit {list(x)}")
    return activate(ctx, ctx.emit(top.Mul, ctx.value(1), ctx.value(0)), "linear")
