"""Convolution and pooling: windows that slide over images, sequences and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor
from npuc.ir import Value, shape_of, top
from npuc.ir.top.window import same_pads

Pairs = Sequence[tuple[int, int]]


def pads_of(
    c: ChannelsLastBuilder,
    padding: str | Pairs,
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """Padding by its name (SAME has the odd one at the end) or in pairs, as begins then ends."""
    if min((*kernel, *strides, *dilations), default=0) < 1:
        raise InvalidModelError(f"'{c.first}' has a window, a stride or a dilation below 1")
    if not isinstance(padding, str):
        return (*(before for before, _ in padding), *(after for _, after in padding))
    if padding.upper() == "SAME":
        return same_pads(size, kernel, strides, dilations, upper=True)
    if padding.upper() == "CAUSAL" and len(size) == 1:
        return ((kernel[0] - 1) * dilations[0], 0)
    if padding.upper() != "VALID":
        raise InvalidModelError(f"'{c.first}' has the unknown padding '{padding}'")
    return (0,) * (2 * len(size))


def _weights(c: ChannelsLastBuilder, kernel: LayoutTensor, order: Sequence[int]) -> Value:
    if kernel.array is not None:
        turned = np.ascontiguousarray(kernel.array.transpose(order))
        return c.value(c.constant(turned, kernel.name))
    return c.emit(top.Permute, c.value(kernel), order=tuple(order)).y


def _check(c: ChannelsLastBuilder, x: LayoutTensor, kernel: LayoutTensor, *lists: Sequence[int]) -> int:
    """The number of spatial axes."""
    if not 3 <= x.rank <= 5 or kernel.rank != x.rank:
        raise InvalidModelError(f"'{c.first}' convolves rank {x.rank} with a kernel of rank {kernel.rank}")
    if any(len(numbers) != x.rank - 2 for numbers in lists):
        raise InvalidModelError(f"'{c.first}' has strides or dilations for another number of axes")
    return x.rank - 2


def convolution(
    c: ChannelsLastBuilder,
    x: LayoutTensor,
    kernel: LayoutTensor,
    bias: LayoutTensor | None,
    *,
    strides: Sequence[int],
    padding: str | Pairs,
    dilations: Sequence[int],
    channels_first: bool = False,
) -> LayoutTensor:
    """The kernel is spatial axes x input channels (of a group) x output channels."""
    spatial = _check(c, x, kernel, strides, dilations)
    value = c.image(x, channels_first)
    channels, *size = shape_of(value)[1:]
    inputs = kernel.shape[-2]
    if inputs < 1 or channels % inputs:
        raise InvalidModelError(f"'{c.first}' has {channels} channels for a kernel of {inputs}")
    pads = pads_of(c, padding, size, kernel.shape[:spatial], strides, dilations)
    weight = _weights(c, kernel, (spatial + 1, spatial, *range(spatial)))
    y = c.emit(
        top.Conv,
        value,
        weight,
        None if bias is None else c.value(bias),
        strides=tuple(strides),
        pads=pads,
        dilations=tuple(dilations),
        group=channels // inputs,
    ).y
    return c.framed(y, channels_first)


def depthwise(
    c: ChannelsLastBuilder,
    x: LayoutTensor,
    kernel: LayoutTensor,
    bias: LayoutTensor | None,
    *,
    strides: Sequence[int],
    padding: str | Pairs,
    dilations: Sequence[int],
    channels_first: bool = False,
) -> LayoutTensor:
    """The kernel is spatial axes x channels x outputs a channel."""
    spatial = _check(c, x, kernel, strides, dilations)
    value = c.image(x, channels_first)
    channels, *size = shape_of(value)[1:]
    *window, inputs, each = kernel.shape
    if inputs != channels:
        raise InvalidModelError(f"'{c.first}' has {channels} channels for a kernel of {inputs}")
    pads = pads_of(c, padding, size, window, strides, dilations)
    order = (spatial, spatial + 1, *range(spatial))
    shape = (inputs * each, 1, *window)
    if kernel.array is not None:
        turned: Array = np.ascontiguousarray(kernel.array.transpose(order)).reshape(shape)
        weight = c.value(c.constant(turned, kernel.name))
    else:
        weight = c.emit(top.Reshape, _weights(c, kernel, order), shape=shape).y
    y = c.emit(
        top.Conv,
        value,
        weight,
        None if bias is None else c.value(bias),
        strides=tuple(strides),
        pads=pads,
        dilations=tuple(dilations),
        group=channels,
    ).y
    return c.framed(y, channels_first)


def transposed(
    c: ChannelsLastBuilder,
    x: LayoutTensor,
    kernel: LayoutTensor,
    bias: LayoutTensor | None,
    *,
    strides: Sequence[int],
    padding: str | Pairs,
    dilations: Sequence[int],
    size: Sequence[int],
    channels_first: bool = False,
) -> LayoutTensor:
    """The kernel is spatial axes x output channels x input channels; `size` is that of the result.

    It is the gradient of a convolution from `size` to the size of x, whose padding it undoes.
    """
    spatial = _check(c, x, kernel, strides, dilations)
    value = c.image(x, channels_first)
    inputs, *given = shape_of(value)[1:]
    if inputs % kernel.shape[-1]:
        raise InvalidModelError(f"'{c.first}' has {inputs} channels for a kernel of {kernel.shape[-1]}")
    begins, ends, more = [], [], []
    for axis in range(spatial):
        whole = (given[axis] - 1) * strides[axis] + (kernel.shape[axis] - 1) * dilations[axis] + 1
        if isinstance(padding, str):
            total = max(0, whole - size[axis]) if padding.upper() == "SAME" else 0
            before, after = total // 2, total - total // 2
        else:
            before, after = padding[axis]
        begins.append(before)
        rest = size[axis] - (whole - before - after)
        ends.append(after - min(0, rest))
        more.append(max(0, rest))
    y = c.emit(
        top.Deconv,
        value,
        _weights(c, kernel, (spatial + 1, spatial, *range(spatial))),
        None if bias is None else c.value(bias),
        strides=tuple(strides),
        pads=(*begins, *ends),
        dilations=tuple(dilations),
        output_padding=tuple(more),
        group=inputs // kernel.shape[-1],
    ).y
    return c.framed(y, channels_first)


def pool(
    c: ChannelsLastBuilder,
    x: LayoutTensor,
    kind: Any,
    *,
    window: Sequence[int],
    strides: Sequence[int],
    padding: str | Pairs,
    channels_first: bool = False,
) -> LayoutTensor:
    """The largest value or the mean of each window; the mean is over real positions."""
    if len(window) != x.rank - 2 or len(strides) != x.rank - 2 or not 3 <= x.rank <= 5:
        raise InvalidModelError(f"'{c.first}' pools rank {x.rank} with a window of {len(window)} axes")
    value = c.image(x, channels_first)
    ones = (1,) * len(window)
    pads = pads_of(c, padding, shape_of(value)[2:], window, strides, ones)
    pooling = c.emit(kind, value, kernel=tuple(window), strides=tuple(strides), pads=pads, dilations=ones)
    return c.framed(pooling.results[0], channels_first)
