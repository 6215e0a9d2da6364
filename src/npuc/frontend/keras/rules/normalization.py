"""Normalization, and activations with settings of their own."""

from __future__ import annotations

import numpy as np

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks.normalization import batch_norm, filled, layer_norm
from npuc.frontend.keras.registry import KerasContext, Outcome, rule
from npuc.frontend.layout import LayoutTensor
from npuc.ir import shape_of, top
from npuc.ir.definition import normal_axis


def _axes(ctx: KerasContext, default: int = -1) -> list[int]:
    """One axis or several."""
    setting = ctx.get("axis", default)
    listed = setting if isinstance(setting, list) else [setting]
    if any(isinstance(axis, bool) or not isinstance(axis, int) for axis in listed):
        raise ctx.wrong(f"its axis is {str(setting)[:60]}")
    return [normal_axis(axis, ctx.x().rank) for axis in listed]


def _affine(
    ctx: KerasContext, more: int = 0
) -> tuple[LayoutTensor | None, LayoutTensor | None, list[np.ndarray]]:
    """Scale and bias, where the layer has them, and what weights follow."""
    scale, center = ctx.flag("scale", True), ctx.flag("center", True)
    arrays = ctx.arrays(scale + center + more)
    gamma = ctx.weight(arrays[0], "gamma") if scale else None
    beta = ctx.weight(arrays[int(scale)], "beta") if center else None
    return gamma, beta, arrays[scale + center :]


@rule("BatchNormalization", "SyncBatchNormalization")
def batch_normalization(ctx: KerasContext) -> Outcome:
    """With the running mean and variance, along one axis."""
    axes = _axes(ctx)
    if len(axes) != 1:
        raise ctx.refuse(f"it normalizes along {len(axes)} axes")
    channels = ctx.x().shape[axes[0]]
    gamma, beta, (mean, variance) = _affine(ctx, 2)
    return batch_norm(
        ctx.c,
        ctx.x(),
        filled(ctx.c, gamma, channels, 1.0),
        filled(ctx.c, beta, channels, 0.0),
        ctx.weight(mean, "moving_mean"),
        ctx.weight(variance, "moving_variance"),
        ctx.number("epsilon", 1e-3),
        axes[0],
    )


@rule("LayerNormalization")
def layer_normalization(ctx: KerasContext) -> Outcome:
    """Over any axes."""
    if ctx.get("rms_scaling", False):
        return rms_normalization(ctx)
    gamma, beta, _ = _affine(ctx)
    return layer_norm(ctx.c, ctx.x(), gamma, beta, ctx.number("epsilon", 1e-3), _axes(ctx))


@rule("RMSNormalization")
def rms_normalization(ctx: KerasContext) -> Outcome:
    """Over the last axis."""
    (gamma,) = ctx.arrays(1)
    if _axes(ctx) != [ctx.x().rank - 1]:
        raise ctx.refuse("it does not normalize over the last axis")
    scale = ctx.c.value(ctx.weight(gamma, "scale"))
    epsilon = ctx.number("epsilon", 1e-6)
    return LayoutTensor(
        ctx.c.emit(top.RMSNorm, ctx.c.value(ctx.x()), scale, None, axis=-1, epsilon=epsilon).y
    )


@rule("GroupNormalization")
def group_normalization(ctx: KerasContext) -> Outcome:
    """Channels last or second, any number of groups."""
    axes = _axes(ctx)
    x = ctx.x()
    if axes == [x.rank - 1] and 3 <= x.rank <= 5:
        value, second = ctx.c.value(x, second=True), True
    elif axes == [1]:
        value, second = ctx.c.value(x), False
    else:
        raise ctx.refuse(f"it groups along axis {axes}")
    gamma, beta, _ = _affine(ctx)
    channels = shape_of(value)[1]
    groups = ctx.integer("groups", 32)
    normalized = ctx.c.emit(
        top.GroupNorm,
        value,
        None if gamma is None else ctx.c.value(gamma),
        None if beta is None else ctx.c.value(beta),
        groups=channels if groups == -1 else groups,
        epsilon=ctx.number("epsilon", 1e-3),
    ).y
    return LayoutTensor(normalized, second)


@rule("UnitNormalization")
def unit_normalization(ctx: KerasContext) -> Outcome:
    """Along one axis."""
    axes = _axes(ctx)
    if len(axes) != 1:
        raise ctx.refuse(f"it normalizes along {len(axes)} axes")
    return a.along(ctx.c, ctx.x(), top.L2Norm, axes[0], epsilon=1e-6)


@rule("ReLU")
def relu(ctx: KerasContext) -> Outcome:
    """An upper limit, a slope below and a threshold."""
    c, x = ctx.c, ctx.x()
    slope, threshold = ctx.number("negative_slope", 0.0), ctx.number("threshold", 0.0)
    limit = None if ctx.get("max_value") is None else ctx.number("max_value")
    if threshold == 0.0:
        if slope == 0.0 and limit != 0.0:
            return a.unary(c, x, top.Relu, limit=limit or 0.0)
        y = a.unary(c, x, top.LeakyRelu, alpha=slope)
    else:
        above = a.binary(c, top.Compare, x, c.number(threshold, x), mode="greater_equal")
        y = a.where(c, above, x, a.scaled(c, a.scaled(c, x, 1.0, -threshold), slope))
    return y if limit is None else a.binary(c, top.Min, y, c.number(limit, y))


@rule("LeakyReLU")
def leaky_relu(ctx: KerasContext) -> Outcome:
    """Any slope."""
    name = "negative_slope" if ctx.get("negative_slope") is not None else "alpha"
    alpha = ctx.get(name, 0.3)
    if isinstance(alpha, dict):  # Keras 2 wrote some as arrays
        alpha = alpha.get("value", 0.3)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not np.isfinite(alpha):
        raise ctx.wrong(f"its slope is {str(alpha)[:60]}, not a number")
    return a.unary(ctx.c, ctx.x(), top.LeakyRelu, alpha=float(alpha))


@rule("ELU")
def elu(ctx: KerasContext) -> Outcome:
    """Any alpha."""
    return a.unary(ctx.c, ctx.x(), top.Elu, alpha=ctx.number("alpha", 1.0))


@rule("ThresholdedReLU")
def thresholded(ctx: KerasContext) -> Outcome:
    """Any threshold."""
    return a.unary(ctx.c, ctx.x(), top.ThresholdedRelu, alpha=ctx.number("theta", 1.0))


@rule("Softmax")
def softmax(ctx: KerasContext) -> Outcome:
    """Along one axis, without a mask."""
    axes = _axes(ctx)
    if len(axes) != 1 or len(ctx.inputs) != 1:
        raise ctx.refuse("it has several axes or a mask")
    return a.along(ctx.c, ctx.x(), top.Softmax, axes[0])


@rule("PReLU")
def prelu(ctx: KerasContext) -> Outcome:
    """Slopes for each element, or shared along axes."""
    (alpha,) = ctx.arrays(1)
    x = ctx.x()
    if alpha.ndim != x.rank - 1:
        raise ctx.wrong(f"slopes of rank {alpha.ndim} for an input of rank {x.rank}")
    (value, slope), second = a.together(ctx.c, x, ctx.weight(alpha[None], "alpha"))
    return LayoutTensor(ctx.c.emit(top.PRelu, value, slope).y, second)
