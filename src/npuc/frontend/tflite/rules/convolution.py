"""Convolution and pooling: windows that slide over images (channels second in the IR)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tflite.activation import activated, fused_relu
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.schema import Padding
from npuc.frontend.tflite.scope import TfliteContext
from npuc.frontend.tflite.view import FlatbufferView
from npuc.ir import Value, top
from npuc.ir.top.window import same_pads

_INT32 = np.iinfo(np.int32)


def _pads(
    options: FlatbufferView,
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...]:
    """SAME as explicit pads: the odd one at the end."""
    if options.number("Padding") == Padding.SAME:
        return same_pads(size, kernel, strides, dilations, upper=True)
    return (0,) * (2 * len(size))


def _check(ctx: TfliteContext, rank: int, *lists: tuple[int, ...]) -> None:
    if ctx.rank(0) != rank:
        raise InvalidModelError(f"{ctx.label}: its input has rank {ctx.rank(0)}, not {rank}")
    if any(n < 1 for numbers in lists for n in numbers):
        raise InvalidModelError(f"{ctx.label}: it has a stride, a dilation or a window below 1")


def bias(ctx: TfliteContext, index: int, x: int, weight: int, channels: int) -> Value | None:
    """The bias: integers in the scale of the sum if the layer is quantized, whatever scale they are declared with."""
    if not ctx.has(index):
        return None
    array = ctx.array(index)
    if array is None or array.dtype.kind == "f":
        return ctx.real(index)
    if array.dtype.kind != "i" or array.shape != (channels,):
        raise InvalidModelError(f"{ctx.label}: its bias has the shape {list(array.shape)}, not [{channels}]")
    given, scales = ctx.tensor(x).quantization, ctx.tensor(weight).quantization
    if given is None or scales is None or not given.per_tensor:
        raise InvalidModelError(
            f"{ctx.label}: its bias is integers, but its input or weights are not quantized"
        )
    with np.errstate(over="ignore", under="ignore"):
        scale = np.broadcast_to((given.scale * scales.scale).astype(np.float32), (channels,))
    name = ctx.tensor(index).name
    if array.dtype == np.int64 and array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
        return ctx.scope.store((array.astype(np.float64) * scale).astype(np.float32), f"{name}/real")
    integers = ctx.scope.store(array.astype(np.int32), name)
    zero = ctx.scope.store(np.zeros(channels, np.int32), f"{name}/zero_point")
    return ctx.emit(top.Dequantize, integers, ctx.scope.store(scale, f"{name}/scale"), zero, axis=0).y


def _weights(ctx: TfliteContext, index: int, order: tuple[int, ...], axis: int) -> Value:
    if len(ctx.shape(index)) != len(order):
        raise InvalidModelError(
            f"{ctx.label}: its weights have rank {len(ctx.shape(index))}, not {len(order)}"
        )
    if ctx.weight(index) is None:
        return ctx.emit(top.Permute, ctx.real(index), order=order).y
    return ctx.constant(index, lambda array: array.transpose(order), axis)


@rule("CONV_2D")
def conv(ctx: TfliteContext) -> Outcome:
    """Weights are output channels x height x width x input channels (of a group)."""
    options = ctx.needed("Conv2DOptions")
    strides = (options.number("StrideH"), options.number("StrideW"))
    dilations = (options.number("DilationHFactor"), options.number("DilationWFactor"))
    _check(ctx, 4, strides, dilations)
    weight = _weights(ctx, 1, (0, 3, 1, 2), 0)
    outputs, height, width, inputs = ctx.shape(1)
    channels = ctx.shape(0)[3]
    if inputs < 1 or channels % inputs:
        raise InvalidModelError(f"{ctx.label}: {channels} channels for weights of {inputs}")
    y = ctx.emit(
        top.Conv,
        ctx.real(0, nchw=True),
        weight,
        bias(ctx, 2, 0, 1, outputs),
        strides=strides,
        pads=_pads(options, ctx.shape(0)[1:3], (height, width), strides, dilations),
        dilations=dilations,
        group=channels // inputs,
        **fused_relu(options),
    ).y
    return LayoutTensor(activated(ctx, y, options, fuses=True), True)


@rule("DEPTHWISE_CONV_2D")
def depthwise_conv(ctx: TfliteContext) -> Outcome:
    """Weights are 1 x height x width x output channels; each input channel makes a few of them."""
    options = ctx.needed("DepthwiseConv2DOptions")
    strides = (options.number("StrideH"), options.number("StrideW"))
    dilations = (options.number("DilationHFactor"), options.number("DilationWFactor"))
    _check(ctx, 4, strides, dilations)
    weight = _weights(ctx, 1, (3, 0, 1, 2), 0)
    _, height, width, outputs = ctx.shape(1)
    y = ctx.emit(
        top.Conv,
        ctx.real(0, nchw=True),
        weight,
        bias(ctx, 2, 0, 1, outputs),
        strides=strides,
        pads=_pads(options, ctx.shape(0)[1:3], (height, width), strides, dilations),
        dilations=dilations,
        group=ctx.shape(0)[3],
        **fused_relu(options),
    ).y
    return LayoutTensor(activated(ctx, y, options, fuses=True), True)


@rule("TRANSPOSE_CONV")
def transpose_conv(ctx: TfliteContext) -> Outcome:
    """output shape, weights (output channels x height x width x input channels), x, bias."""
    options = ctx.needed("TransposeConvOptions")
    strides = (options.number("StrideH"), options.number("StrideW"))
    shape = ctx.integers(0, "output shape")
    if len(shape) != 4 or ctx.rank(2) != 4 or min(strides) < 1:
        raise InvalidModelError(f"{ctx.label}: it is not a convolution of images")
    weight = _weights(ctx, 1, (3, 0, 1, 2), 1)
    outputs, *kernel, _ = ctx.shape(1)
    pads, more = [], []
    for axis in range(2):
        whole = (ctx.shape(2)[axis + 1] - 1) * strides[axis] + kernel[axis]
        total = max(0, whole - shape[axis + 1])
        pads.append((total // 2, total - total // 2))
        more.append(max(0, shape[axis + 1] - whole))
    y = ctx.emit(
        top.Deconv,
        ctx.real(2, nchw=True),
        weight,
        bias(ctx, 3, 2, 1, outputs),
        strides=strides,
        pads=(pads[0][0], pads[1][0], pads[0][1], pads[1][1]),
        dilations=(1, 1),
        output_padding=tuple(more),
        **fused_relu(options),
    ).y
    return LayoutTensor(activated(ctx, y, options, fuses=True), True)


@rule("CONV_3D")
def conv_3d(ctx: TfliteContext) -> Outcome:
    """Weights are depth x height x width x input channels x output channels."""
    options = ctx.needed("Conv3DOptions")
    strides = tuple(options.number(f"Stride{axis}") for axis in "DHW")
    dilations = tuple(options.number(f"Dilation{axis}Factor") for axis in "DHW")
    _check(ctx, 5, strides, dilations)
    *kernel, inputs, outputs = ctx.shape(1)
    if inputs < 1:
        raise InvalidModelError(f"{ctx.label}: its weights have no input channels")
    y = ctx.emit(
        top.Conv,
        ctx.emit(top.Permute, ctx.real(0), order=(0, 4, 1, 2, 3)).y,
        _weights(ctx, 1, (4, 3, 0, 1, 2), 0),
        bias(ctx, 2, 0, 1, outputs),
        strides=strides,
        pads=_pads(options, ctx.shape(0)[1:4], tuple(kernel), strides, dilations),
        dilations=dilations,
        group=ctx.shape(0)[4] // inputs,
        **fused_relu(options),
    ).y
    return ctx.emit(top.Permute, activated(ctx, y, options, fuses=True), order=(0, 2, 3, 4, 1)).y


def _window(ctx: TfliteContext, options: FlatbufferView) -> dict[str, Any]:
    kernel = (options.number("FilterHeight"), options.number("FilterWidth"))
    strides = (options.number("StrideH"), options.number("StrideW"))
    _check(ctx, 4, strides, kernel)
    return {
        "kernel": kernel,
        "strides": strides,
        "pads": _pads(options, ctx.shape(0)[1:3], kernel, strides, (1, 1)),
        "dilations": (1, 1),
    }


@rule("AVERAGE_POOL_2D")
def average_pool(ctx: TfliteContext) -> Outcome:
    """The mean of the real positions of a window."""
    options = ctx.needed("Pool2DOptions")
    y = ctx.emit(top.AvgPool, ctx.real(0, nchw=True), **_window(ctx, options)).y
    return LayoutTensor(activated(ctx, y, options), True)


@rule("MAX_POOL_2D")
def max_pool(ctx: TfliteContext) -> Outcome:
    """The largest value of a window."""
    options = ctx.needed("Pool2DOptions")
    y = ctx.emit(top.MaxPool, ctx.real(0, nchw=True), **_window(ctx, options)).y
    return LayoutTensor(activated(ctx, y, options), True)


@rule("L2_POOL_2D")
def l2_pool(ctx: TfliteContext) -> Outcome:
    """The root of the mean of squares."""
    options = ctx.needed("Pool2DOptions")
    x = ctx.real(0, nchw=True)
    mean = ctx.emit(top.AvgPool, ctx.emit(top.Mul, x, x).y, **_window(ctx, options)).y
    return LayoutTensor(activated(ctx, ctx.emit(top.Sqrt, mean).y, options), True)
