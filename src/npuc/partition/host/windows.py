"""Pools and reductions of integers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.export.onnx.emitter import Emitter
from npuc.ir import Graph, dtype_of, npu, shape_of, top
from npuc.ir.dtypes import quant_of
from npuc.partition.host import on_host
from npuc.partition.host.linear import EXACT, halves
from npuc.partition.host.numbers import (
    F32,
    I64,
    HostScaling,
    finished,
    integers,
    number,
    reach,
    scaling_of,
    stored,
)


def _ends(op: Any, dilations: tuple[int, ...] = (1, 1)) -> list[int]:
    """The pads before, and those after that the last window needs."""
    after = []
    for axis in (0, 1):
        size, count = shape_of(op.x)[2 + axis], shape_of(op.y)[2 + axis]
        end = (count - 1) * op.strides[axis] + (op.kernel[axis] - 1) * dilations[axis] + 1
        after.append(max(0, end - size - op.pads[axis]))
    return [*op.pads[:2], *after]


def _not_images(op: Any, graph: Graph) -> str | None:
    return None if len(op.kernel) == 2 else "it is not a pool over images"


@on_host(top.MaxPool, objection=_not_images)
def max_pool(op: top.MaxPool, emit: Emitter) -> None:
    """MaxPool in float32, which holds 16-bit integers; a border that never wins is laid around first."""
    pads = _ends(op, op.dilations)
    x = emit.cast(op.x, F32)
    if any(pads):
        widths = emit.ints(0, 0, *pads[:2], 0, 0, *pads[2:])
        x = emit("Pad", x, widths, np.asarray(np.float32(-65536)))
    dilations = op.dilations if max(op.dilations) > 1 else None
    y = emit("MaxPool", x, kernel_shape=op.kernel, strides=op.strides, dilations=dilations)
    emit.cast(y, dtype_of(op.y.type), to=op.y)


def _too_large(op: npu.AvgPool, graph: Graph) -> str | None:
    if len(op.kernel) != 2:
        return "it is not a pool over images"
    too_large = op.kernel[0] * op.kernel[1] * 512 >= EXACT
    return "its windows are too large for sums that are exact in float32" if too_large else None


@on_host(npu.AvgPool, objection=_too_large)
def avg_pool(op: npu.AvgPool, emit: Emitter) -> None:
    """Sums of windows by a convolution with ones; what they are divided by depends on the place alone."""
    kind = quant_of(op.x)
    assert kind is not None
    n, c, h, w = shape_of(op.x)
    out = shape_of(op.y)[2:]
    plain = op.kind is Kind.DOUBLE_ROUNDING
    x = integers(emit, op.x, zero_point=not plain)
    counts = [
        _positions(size, *rest)
        for size, *rest in zip((h, w), op.kernel, op.strides, op.pads[:2], out, strict=True)
    ]
    real = np.outer(*counts)
    whole = op.kernel[0] * op.kernel[1]
    count = np.full_like(real, whole) if op.count_include_pad else real
    ones = np.ones((1, 1, *op.kernel), np.float32)
    total: str | None = None
    for factor, part, _ in halves(emit, x, 65536 if kind.dtype.itemsize == 2 else 256):
        images = emit("Reshape", part, emit.ints(n * c, 1, h, w))
        sums = emit.cast(emit("Conv", images, ones, pads=_ends(op), strides=op.strides), I64)
        sums = emit("Mul", sums, number(factor)) if factor > 1 else sums
        total = sums if total is None else emit("Add", total, sums)
    assert total is not None
    total = emit("Reshape", total, emit.ints(*shape_of(op.y)))
    if plain:
        stored(emit, _divided(emit, total, real, count, kind.zero_point), op.y, op.lo, op.hi, 0)
        return
    by = scaling_of(op)
    entries = next(array.size for array in (by.factor, by.shift) if array is not None)
    if entries > 1:
        place = count - 1
        by = HostScaling(
            by.kind, *(None if p is None else p[place] for p in (by.multiplier, by.shift, by.factor))
        )
    finished(emit, total, op, by, whole * reach(op.x))


def _positions(size: int, kernel: int, stride: int, pad: int, out: int) -> Array:
    """For each output along an axis, how many taps of its window lie inside the input."""
    first = np.arange(out) * stride - pad
    return np.minimum(first + kernel, size) - np.maximum(first, 0)


def _divided(emit: Emitter, total: str, real: Array, count: Array, zero: int) -> str:
    """TFLite's mean: ties away from zero; padding that counts holds the zero point."""
    missing = (count - real) * zero
    if missing.any():
        total = emit("Add", total, number(missing))
    sign = emit(
        "Sub",
        emit.cast(emit("Greater", total, number(0)), I64),
        emit.cast(emit("Less", total, number(0)), I64),
    )
    size = emit("Mul", total, sign)
    return emit("Mul", emit("Div", emit("Add", size, number(count // 2)), number(count)), sign)


@on_host(npu.ReduceSum)
def reduce_sum(op: npu.ReduceSum, emit: Emitter) -> None:
    """A sum in int64 through the output stage."""
    total = emit("ReduceSum", integers(emit, op.x), emit.ints(*op.axes), keepdims=int(op.keepdims))
    finished(emit, total, op, scaling_of(op), prod(shape_of(op.x)) * reach(op.x))


def _no_extreme(op: top.Reduce, graph: Graph) -> str | None:
    return (
        None
        if op.kind in ("max", "min") and op.axes
        else f"a reduction of kind {op.kind} has no integer form"
    )


@on_host(top.Reduce, objection=_no_extreme)
def extreme(op: top.Reduce, emit: Emitter) -> None:
    """ReduceMax or ReduceMin in float32, which holds 16-bit integers."""
    node = "ReduceMax" if op.kind == "max" else "ReduceMin"
    y = emit(node, emit.cast(op.x, F32), emit.ints(*op.axes), keepdims=int(op.keepdims))
    emit.cast(y, dtype_of(op.y.type), to=op.y)


@on_host(top.ArgReduce)
def where(op: top.ArgReduce, emit: Emitter) -> None:
    """ArgMax or ArgMin in float32, which holds 16-bit integers."""
    emit(
        "ArgMax" if op.max else "ArgMin",
        emit.cast(op.x, F32),
        to=op.y,
        axis=op.axis,
        keepdims=int(op.keepdims),
        select_last_index=int(op.select_last),
    )


@on_host(top.TopK)
def best(op: top.TopK, emit: Emitter) -> None:
    """TopK in float32, which holds 16-bit integers; of equal elements ONNX takes the first, too."""
    values, places = op.parts
    real = emit.derived("best")
    attributes = {"axis": op.axis, "largest": int(op.largest), "sorted": 1}
    emit.node("TopK", [emit.cast(op.x, F32), emit.ints(op.k)], [real, emit.name(places)], attributes)
    emit.cast(real, dtype_of(values.type), to=values)
