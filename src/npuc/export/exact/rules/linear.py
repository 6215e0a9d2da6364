"""Convolution and matrix product: exact sums, then the output stage. docs/arithmetic-gemm.md."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.exact.algebra import Integers, T, Window, int64
from npuc.export.exact.registry import Exact, computes, type_of
from npuc.export.exact.rounding import requantized
from npuc.export.exact.stage import channel_stage
from npuc.ir import npu, shape_of
from npuc.ir.dtypes import quant_of


def _weight(op: Any, exact: Exact) -> Array:
    weight: Array = exact.array(op.weight).astype(np.int64) - op.weight_zero_point
    return weight


def _finished(op: Any, exact: Exact, acc: T, reach: int, shape: tuple[int, ...]) -> list[T]:
    """Bias and output stage."""
    bias = exact.graph.constant(op.bias)
    if bias is not None:
        acc = exact.algebra.add(acc, int64(bias).reshape(shape))
        reach += int(np.abs(int64(bias)).max(initial=0))
    stage = channel_stage(op, exact, shape)
    return [exact.stored(requantized(exact.algebra, acc, stage, reach), type_of(op.y))]


@computes(npu.Conv)
def conv(op: npu.Conv, exact: Exact) -> list[T]:
    """One convolution."""
    weight, x = _weight(op, exact), exact.integers(op.x)
    acc = exact.algebra.conv(x, weight, Window(op.strides, op.pads, op.dilations, op.group))
    reach = x.reach * int(np.abs(weight).reshape(len(weight), -1).sum(axis=1).max(initial=0))
    return _finished(op, exact, acc, reach, (-1, *[1] * len(op.strides)))


@computes(npu.Deconv)
def deconv(op: npu.Deconv, exact: Exact) -> list[T]:
    """A convolution of the input with zeros between its elements, by the kernel turned around."""
    a, weight, x = exact.algebra, _weight(op, exact), exact.integers(op.x)
    n, c, *sizes = shape_of(op.x)
    rank = len(sizes)
    spread = x.tensor
    if max(op.strides) > 1:
        apart = [size for pair in zip(sizes, [1] * rank, strict=True) for size in pair]
        gaps = [gap for stride in op.strides for gap in (0, stride - 1)]
        spread = a.pad(a.reshape(spread, (n, c, *apart)), [0] * (2 + 2 * rank), [0, 0, *gaps], x.zero)
        spread = a.reshape(
            spread, (n, c, *(size * stride for size, stride in zip(sizes, op.strides, strict=True)))
        )
    reached = [(size - 1) * dilation for size, dilation in zip(weight.shape[2:], op.dilations, strict=True)]
    before = [reach - pad for reach, pad in zip(reached, op.pads[:rank], strict=True)]
    after = [
        reach - pad + more - (stride - 1)
        for reach, pad, more, stride in zip(
            reached, op.pads[rank:], op.output_padding, op.strides, strict=True
        )
    ]
    spread = a.pad(spread, [0, 0, *before], [0, 0, *after], x.zero)
    inputs, outputs = weight.shape[0] // op.group, weight.shape[1]
    turned = np.flip(weight, axis=tuple(range(2, 2 + rank))).reshape(
        op.group, inputs, outputs, *weight.shape[2:]
    )
    kernel = turned.swapaxes(1, 2).reshape(op.group * outputs, inputs, *weight.shape[2:])
    window = Window((1,) * rank, (0,) * 2 * rank, op.dilations, op.group)
    acc = a.conv(Integers(spread, x.low, x.high, x.zero), np.ascontiguousarray(kernel), window)
    reach = x.reach * int(np.abs(kernel).reshape(len(kernel), -1).sum(axis=1).max(initial=0))
    return _finished(op, exact, acc, reach, (-1, *[1] * rank))


@computes(npu.MatMul)
def matmul(op: npu.MatMul, exact: Exact) -> list[T]:
    """With constant weights, or of two activations."""
    a, x = exact.algebra, exact.integers(op.x)
    if quant_of(op.weight) is None:
        weight = _weight(op, exact)
        weight = np.ascontiguousarray(weight.T) if op.transpose_b else weight
        low, high = int(weight.min(initial=0)), int(weight.max(initial=0))
        acc = a.matmul(x, Integers(weight, low, high))
        return _finished(op, exact, acc, x.reach * int(np.abs(weight).sum(axis=0).max(initial=0)), (-1,))
    b = exact.integers(op.weight)
    if op.transpose_b:
        rank = len(shape_of(op.weight))
        b = Integers(a.transpose(b.tensor, (*range(rank - 2), rank - 1, rank - 2)), b.low, b.high, b.zero)
    reach = x.reach * b.reach * shape_of(op.x)[-1]
    return _finished(op, exact, a.matmul(x, b), reach, (-1,))


def window_sums(exact: Exact, x: Integers, op: npu.AvgPool) -> tuple[T, Array]:
    """The sums of the windows of a pool, and how many real positions (or positions at all) each has."""
    shape, out = shape_of(op.x), shape_of(op.y)[2:]
    channels, rank = shape[1], len(op.kernel)
    reached = [
        (count - 1) * stride + size for count, stride, size in zip(out, op.strides, op.kernel, strict=True)
    ]
    ends = [end - size - before for end, size, before in zip(reached, shape[2:], op.pads[:rank], strict=True)]
    window = Window(op.strides, (*op.pads[:rank], *(max(end, 0) for end in ends)), (1,) * rank, channels)
    cut = exact.algebra.pad(x.tensor, [0] * (2 + rank), [0, 0, *(min(end, 0) for end in ends)], x.zero)
    kernel = np.ones((channels, 1, *op.kernel), np.int64)
    sums = exact.algebra.conv(
        Integers(cut if min(ends) < 0 else x.tensor, x.low, x.high, x.zero), kernel, window
    )
    counts = np.ones((1,) * rank, np.int64)
    for axis in range(rank):
        starts = np.arange(out[axis]) * op.strides[axis] - op.pads[axis]
        size = shape[2 + axis]
        low, high = (0, size) if not op.count_include_pad else (-op.pads[axis], size + op.pads[axis + rank])
        inside = np.minimum(starts + op.kernel[axis], high) - np.maximum(starts, low)
        counts = counts * inside.reshape([-1 if i == axis else 1 for i in range(rank)])
    if op.count_include_pad:
        counts = np.full_like(counts, prod(op.kernel))
    return sums, counts
