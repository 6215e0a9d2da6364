"""Normalization by running statistics, and by those of the tensor itself."""

from __future__ import annotations

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.blocks.arithmetic import binary, reduce, scaled, unary
from npuc.frontend.blocks.movement import reshape
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor
from npuc.ir import top
from npuc.ir.definition import normal_axis


def spread(c: ChannelsLastBuilder, x: LayoutTensor, axis: int, rank: int) -> LayoutTensor:
    """One number an entry of an axis, so that it broadcasts."""
    return reshape(c, x, [x.shape[0] if i == axis else 1 for i in range(rank)])


def batch_norm(
    c: ChannelsLastBuilder,
    x: LayoutTensor,
    scale: LayoutTensor,
    bias: LayoutTensor,
    mean: LayoutTensor,
    variance: LayoutTensor,
    epsilon: float,
    axis: int = -1,
) -> LayoutTensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias along an axis."""
    axis = normal_axis(axis, x.rank)
    channels = x.shape[axis]
    parameters = (scale, bias, mean, variance)
    if any(p.shape != (channels,) for p in parameters):
        raise InvalidModelError(
            f"'{c.first}' has parameters of {[list(p.shape) for p in parameters]} for {channels} channels"
        )
    if axis == x.rank - 1 and 3 <= x.rank <= 5:
        value, second = c.value(x, second=True), True
    elif axis == 1:
        value, second = c.value(x), False
    else:
        inverse = unary(c, scaled(c, variance, 1.0, epsilon), top.Rsqrt)
        factor = binary(c, top.Mul, inverse, scale)
        centred = binary(c, top.Sub, x, spread(c, mean, axis, x.rank))
        grown = binary(c, top.Mul, centred, spread(c, factor, axis, x.rank))
        return binary(c, top.Add, grown, spread(c, bias, axis, x.rank))
    normalized = c.emit(top.BatchNorm, value, *(c.value(p) for p in parameters), epsilon=epsilon).y
    return LayoutTensor(normalized, second)


def moments(c: ChannelsLastBuilder, x: LayoutTensor, axes: list[int]) -> tuple[LayoutTensor, LayoutTensor]:
    """What is left of x without its mean, and its variance, over some axes."""
    centred = binary(c, top.Sub, x, reduce(c, x, "mean", axes, keepdims=True))
    variance = reduce(c, binary(c, top.Mul, centred, centred), "mean", axes, keepdims=True)
    return centred, variance


def layer_norm(
    c: ChannelsLastBuilder,
    x: LayoutTensor,
    scale: LayoutTensor | None,
    bias: LayoutTensor | None,
    epsilon: float,
    axes: list[int],
) -> LayoutTensor:
    """Zero mean and unit variance over some axes; scale and bias have their shape."""
    axes = sorted(normal_axis(axis, x.rank) for axis in axes)
    if axes == list(range(x.rank - len(axes), x.rank)):
        normalized = c.emit(
            top.LayerNorm,
            c.value(x),
            None if scale is None else c.value(scale),
            None if bias is None else c.value(bias),
            axis=axes[0],
            epsilon=epsilon,
        ).y
        return LayoutTensor(normalized)
    centred, variance = moments(c, x, axes)
    shape = [n if axis in axes else 1 for axis, n in enumerate(x.shape)]
    result = binary(c, top.Mul, centred, unary(c, scaled(c, variance, 1.0, epsilon), top.Rsqrt))
    if scale is not None:
        result = binary(c, top.Mul, result, reshape(c, scale, shape))
    return result if bias is None else binary(c, top.Add, result, reshape(c, bias, shape))


def filled(c: ChannelsLastBuilder, given: LayoutTensor | None, channels: int, value: float) -> LayoutTensor:
    """A parameter, or what stands for it if a layer has none."""
    return given if given is not None else c.constant(np.full(channels, value, np.float32))
