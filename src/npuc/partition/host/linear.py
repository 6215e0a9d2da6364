"""Convolutions and matrix products of integers.

ONNX Runtime convolves float32 only. Every sum of integers below 2^24 is exact in it, in any order: so the input channels
go through in parts for which `sum |w| * max |x|` stays below, and 16-bit operands as two bytes. Matrix products are in
float64, exact below 2^53.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.rules.recurrent import scanned_lstm
from npuc.ir import Graph, npu, shape_of, top
from npuc.ir.dtypes import quant_of
from npuc.partition.host import on_host
from npuc.partition.host.numbers import F32, F64, I64, HostScaling, finished, integers, number, reach

EXACT = 1 << 24


def halves(emit: Emitter, x: str, largest: int) -> list[tuple[int, str, int]]:
    """An int64 tensor as float32 summands (factor, tensor, its largest value), each of at most nine bits."""
    if largest <= 256:
        return [(1, emit.cast(x, F32), largest)]
    low = emit("Mod", x, number(256))
    high = emit("Div", emit("Sub", x, low), number(256))
    return [(256, emit.cast(high, F32), largest // 256 + 1), (1, emit.cast(low, F32), 255)]


def weight_halves(weight: Array) -> list[tuple[int, Array]]:
    """Weights as summands of at most nine bits."""
    if np.abs(weight).max(initial=0) <= 256:
        return [(1, weight)]
    low = weight % 256
    return [(256, (weight - low) // 256), (1, low)]


def parts_of(costs: Array) -> Iterator[tuple[int, int]]:
    """Ranges of input channels whose summed costs (rows: outputs, columns: inputs) stay exact."""
    begin, total = 0, np.zeros(len(costs), np.int64)
    for end in range(costs.shape[1]):
        if end > begin and (total + costs[:, end]).max(initial=0) >= EXACT:
            yield begin, end
            begin, total = end, np.zeros(len(costs), np.int64)
        total = total + costs[:, end]
    yield begin, costs.shape[1]


def _weights(op: Any, graph: Graph) -> Array | None:
    weights = graph.constant(op.weight)
    return None if weights is None else weights.astype(np.int64) - op.weight_zero_point


def _by_input(op: Any, weight: Array) -> Array:
    """Weights as groups x input channels x outputs x taps."""
    taps = weight.shape[2] * weight.shape[3]
    if isinstance(op, npu.Deconv):
        return weight.reshape(op.group, -1, weight.shape[1], taps)
    return weight.reshape(op.group, -1, weight.shape[1], taps).transpose(0, 2, 1, 3)


def _costs(op: Any, weight: Array, largest: int) -> Array:
    sums = np.abs(_by_input(op, weight)).sum(axis=3)
    return np.asarray(sums.transpose(0, 2, 1).reshape(-1, sums.shape[1]) * largest)


def _too_long(op: Any, graph: Graph) -> str | None:
    weight = _weights(op, graph)
    if weight is None:
        return "its weights are computed at run time"
    if weight.ndim != 4:
        return "it is not a convolution of images"
    largest = min(reach(op.x), 256)
    worst = max(int(_costs(op, part, largest).max(initial=0)) for _, part in weight_halves(weight))
    return None if worst < EXACT else "the sum over one input channel is too long to be exact in float32"


@on_host(npu.Conv, npu.Deconv, objection=_too_long)
def convolution(op: Any, emit: Emitter) -> None:
    """Conv or ConvTranspose of parts of the input channels, then the output stage."""
    weight = _weights(op, emit.graph)
    assert weight is not None
    n, c, h, w = shape_of(op.x)
    each = c // op.group
    transposed = isinstance(op, npu.Deconv)
    attributes: dict[str, Any] = {
        "kernel_shape": weight.shape[2:],
        "strides": op.strides,
        "pads": op.pads,
        "dilations": op.dilations,
        "group": op.group,
    }
    if transposed and any(op.output_padding):
        attributes["output_padding"] = op.output_padding
    total: str | None = None
    for factor_x, x, largest in halves(emit, integers(emit, op.x), reach(op.x)):
        for factor_w, half in weight_halves(weight):
            for begin, end in parts_of(_costs(op, half, largest)):
                part, kernel = x, _channels(op, half, begin, end)
                if (begin, end) != (0, each):
                    grouped = emit("Reshape", x, emit.ints(n, op.group, each, h, w))
                    cut = emit("Slice", grouped, emit.ints(begin), emit.ints(end), emit.ints(2))
                    part = emit("Reshape", cut, emit.ints(n, op.group * (end - begin), h, w))
                small = kernel.astype(np.int16)
                node = "ConvTranspose" if transposed else "Conv"
                sums = emit.cast(emit(node, part, emit.cast(small, F32), **attributes), I64)
                if factor_x * factor_w > 1:
                    sums = emit("Mul", sums, number(factor_x * factor_w))
                total = sums if total is None else emit("Add", total, sums)
    assert total is not None
    bound = int(_costs(op, weight, reach(op.x)).sum(axis=1).max(initial=0))
    bias = emit.graph.constant(op.bias)
    if bias is not None:
        total = emit("Add", total, bias.astype(np.int64).reshape(-1, 1, 1))
        bound += int(np.abs(bias.astype(np.int64)).max(initial=0))
    finished(emit, total, op, _scaling(op, emit.graph).shaped(-1, 1, 1), bound)


def _channels(op: Any, weight: Array, begin: int, end: int) -> Array:
    """The weights of some input channels of each group."""
    if not isinstance(op, npu.Deconv):
        return np.ascontiguousarray(weight[:, begin:end])
    grouped = weight.reshape(op.group, -1, *weight.shape[1:])
    return np.ascontiguousarray(grouped[:, begin:end]).reshape(-1, *weight.shape[1:])


def _scaling(op: Any, graph: Graph) -> HostScaling:
    return HostScaling(op.kind, *(graph.constant(value) for value in (op.multiplier, op.shift, op.factor)))


@on_host(npu.MatMul)
def matmul(op: npu.MatMul, emit: Emitter) -> None:
    """MatMul in float64, then the output stage."""
    weight = emit.graph.constant(op.weight)
    if quant_of(op.weight) is None:
        assert weight is not None
        centred = weight.astype(np.int32) - np.int32(op.weight_zero_point)
        matrix, largest = emit.cast(centred, F64), int(np.abs(centred).max(initial=0))
    else:
        largest = reach(op.weight)
        matrix = emit.cast(integers(emit, op.weight), F64)
    if op.transpose_b:
        rank = len(shape_of(op.weight))
        matrix = emit("Transpose", matrix, perm=(*range(rank - 2), rank - 1, rank - 2))
    total = emit.cast(emit("MatMul", emit.cast(integers(emit, op.x), F64), matrix), I64)
    bound = shape_of(op.x)[-1] * reach(op.x) * largest
    bias = emit.graph.constant(op.bias)
    if bias is not None:
        total = emit("Add", total, bias.astype(np.int64))
        bound += int(np.abs(bias.astype(np.int64)).max(initial=0))
    finished(emit, total, op, _scaling(op, emit.graph), bound)


@on_host(top.QuantizedLSTM)
def quantized_lstm(op: top.QuantizedLSTM, emit: Emitter) -> None:
    """A Scan over the steps, which is exact."""
    scanned_lstm(op, op.x, emit, to=op.y)
