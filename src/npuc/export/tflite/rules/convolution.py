"""Convolution: CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV."""

from __future__ import annotations

from typing import Any

from npuc.arrays import ceil_div
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.ending import ending
from npuc.export.tflite.layout import CHANNELS_LAST
from npuc.export.tflite.linear import LinearConstants, linear
from npuc.export.tflite.registry import NoTFLiteForm, exports
from npuc.export.tflite.window import SAME, VALID, PaddedWindow, padded
from npuc.ir import npu, shape_of, top
from npuc.ir.top.window import same_pads


def _two_axes(op: Any) -> None:
    if len(op.strides) != 2:
        raise NoTFLiteForm(f"it has {len(op.strides)} spatial axes, not 2")


@exports(top.Conv, npu.Conv)
def conv(op: Any, emit: TFLiteEmitter) -> None:
    """A convolution, depthwise where each channel has its own filters."""
    _two_axes(op)
    x, y = shape_of(op.x), shape_of(op.results[0])
    layer = linear(op, emit, op.weight, 0)
    weight = layer.weight
    window = PaddedWindow(x[2:], weight.shape[2:], op.strides, op.dilations, op.pads, y[2:])
    source, mode = padded(emit, op.x, window)
    options = {
        "Padding": mode,
        "StrideW": op.strides[1],
        "StrideH": op.strides[0],
        "DilationWFactor": op.dilations[1],
        "DilationHFactor": op.dilations[0],
    }
    depthwise = op.group == x[1] and op.group > 1
    end = ending(emit, op, CHANNELS_LAST)
    if depthwise:
        filters = layer.tensor(emit, weight.transpose(1, 2, 3, 0), 3)
        emit.operator(
            "DEPTHWISE_CONV_2D",
            [source, filters, layer.bias],
            [end.out],
            "DepthwiseConv2DOptions",
            DepthMultiplier=weight.shape[0] // op.group,
            FusedActivationFunction=end.activation,
            **options,
        )
    else:
        filters = layer.tensor(emit, weight.transpose(0, 2, 3, 1), 0)
        emit.operator(
            "CONV_2D",
            [source, filters, layer.bias],
            [end.out],
            "Conv2DOptions",
            FusedActivationFunction=end.activation,
            **options,
        )
    end.finish()


@exports(top.Deconv, npu.Deconv)
def deconv(op: Any, emit: TFLiteEmitter) -> None:
    """A transposed convolution; what TFLite's padding cannot say is cut off afterwards."""
    _two_axes(op)
    if op.group != 1:
        raise NoTFLiteForm(f"a transposed convolution has no {op.group} groups in TFLite")
    if set(op.dilations) != {1}:
        raise NoTFLiteForm("a transposed convolution has no dilation in TFLite")
    y = shape_of(op.results[0])
    layer = linear(op, emit, op.weight, 1)
    kernel = layer.weight.shape[2:]
    filters = layer.tensor(emit, layer.weight.transpose(1, 2, 3, 0), 0)
    same = same_pads(y[2:], kernel, op.strides, (1, 1), upper=True)
    sizes = tuple(ceil_div(n, s) for n, s in zip(y[2:], op.strides, strict=True))
    begins = tuple(op.pads[:2])
    if sizes == shape_of(op.x)[2:] and begins == same[:2] and any(same):
        mode, begins = SAME, (0, 0)
    else:
        mode = VALID
    _write_deconv(op, emit, layer, filters, mode, begins)


def _write_deconv(
    op: Any, emit: TFLiteEmitter, layer: LinearConstants, filters: Any, mode: int, begins: tuple[int, ...]
) -> None:
    n, c, h, w = shape_of(op.results[0])
    full_shape = (n, h, w, c)
    if mode == VALID:
        # LiteRT insists on an output that every element of the input reaches.
        reached = [
            (size - 1) * stride + kernel
            for size, stride, kernel in zip(
                shape_of(op.x)[2:], op.strides, layer.weight.shape[2:], strict=True
            )
        ]
        full_shape = (n, max(h + begins[0], reached[0]), max(w + begins[1], reached[1]), c)
    end = ending(emit, op, CHANNELS_LAST)
    cut = full_shape != end.out.shape
    out = emit.like(op.results[0], full_shape, "whole") if cut else end.out
    emit.operator(
        "TRANSPOSE_CONV",
        [emit.integers(full_shape), filters, emit.tensor(op.x, CHANNELS_LAST), layer.bias],
        [out],
        "TransposeConvOptions",
        Padding=mode,
        StrideW=op.strides[1],
        StrideH=op.strides[0],
        FusedActivationFunction=end.activation,
    )
    if cut:
        emit.operator(
            "SLICE",
            [out, emit.integers((0, *begins, 0)), emit.integers(end.out.shape)],
            [end.out],
            "SliceOptions",
        )
    end.finish()
