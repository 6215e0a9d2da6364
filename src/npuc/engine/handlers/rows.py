"""Softmax, normalization, reductions and bilinear resize through the native core."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind, Rounding
from npuc.arrays import Array
from npuc.engine.handlers import Step, handles
from npuc.engine.handlers.arithmetic import flat_stage, type_of
from npuc.engine.handlers.layout import inward, outward
from npuc.ir import Graph, npu, shape_of, top
from npuc.ir.dtypes import QuantType, quant_of
from npuc.kernels import float_rows, normalization, reduction, resampling, tables
from npuc.kernels.normalization import NormParameters
from npuc.kernels.softmax import SoftmaxParameters
from npuc.kernels.softmax import softmax as run_softmax


@handles(npu.Softmax)
def softmax(op: npu.Softmax, graph: Graph, threads: int) -> Step:
    """Along any axis."""
    assert isinstance(op.to, QuantType)
    exponentials = [graph.constant(value) for value in (op.coarse, op.fine)]
    multiplier, shift, left, diff_min = op.parameters
    parameters = SoftmaxParameters(
        op.kind,
        type_of(op.x).dtype.numpy.name,
        op.to.dtype.numpy.name,
        multiplier,
        shift,
        left,
        diff_min,
        (_entries(exponentials[0]), _entries(exponentials[1])),
        op.to.zero_point,
    )
    axis, lo, hi = op.axis, op.lo, op.hi
    return lambda arrays: [run_softmax(arrays[0], parameters, axis=axis, lo=lo, hi=hi, threads=threads)]


def _entries(table: Array | None) -> tuple[int, ...]:
    return () if table is None else tuple(table.tolist())


@handles(npu.Norm)
def norm(op: npu.Norm, graph: Graph, threads: int) -> Step:
    """One kernel for all kinds."""
    gain, bias = graph.constant(op.gain), graph.constant(op.bias)
    assert gain is not None and bias is not None and isinstance(op.to, QuantType)
    shift, epsilon, width = op.parameters
    parameters = NormParameters(gain, bias, shift, epsilon, width, op.kind.row_rounding is Rounding.HALF_EVEN)
    options: dict[str, Any] = {
        "zero_x": type_of(op.x).zero_point,
        "zero_point": op.to.zero_point,
        "lo": op.lo,
        "hi": op.hi,
        "dtype": op.to.dtype.numpy,
        "threads": threads,
    }
    axis, groups = op.axis, op.groups
    if op.mode == "l2" and op.kind is Kind.DOUBLE_ROUNDING and type_of(op.x).dtype.itemsize == 1:
        zero = type_of(op.x).zero_point
        return lambda arrays: [
            normalization.l2_norm_tflite(
                np.ascontiguousarray(arrays[0]), zero_x=zero, axis=axis, threads=threads
            )
        ]
    if op.mode in ("instance", "group"):
        return lambda arrays: [
            outward(normalization.group_norm(inward(arrays[0]), parameters, groups=groups, **options))
        ]
    run = {"layer": normalization.layer_norm, "rms": normalization.rms_norm, "l2": normalization.l2_norm}[
        op.mode
    ]
    return lambda arrays: [run(np.ascontiguousarray(arrays[0]), parameters, axis=axis, **options)]


@handles(npu.ReduceSum)
def reduce_sum(op: npu.ReduceSum, graph: Graph, threads: int) -> Step:
    """A sum or a mean."""
    assert isinstance(op.to, QuantType)
    stage, zero, dtype = flat_stage(op), type_of(op.x).zero_point, op.to.dtype.numpy
    axes, keep = op.axes, op.keepdims
    return lambda arrays: [
        reduction.reduce_sum(
            arrays[0], stage, axes, zero_point=zero, keepdims=keep, dtype=dtype, threads=threads
        )
    ]


@handles(npu.ResizeBilinear)
def resize_bilinear(op: npu.ResizeBilinear, graph: Graph, threads: int) -> Step:
    """Tables of neighbours and weights are made once."""
    shape, kind = shape_of(op.x), op.kind
    rows, columns = (
        resampling.interpolation(
            kind, shape[axis], op.sizes[axis], op.coordinates, op.scales[axis] if op.scales else None
        )
        for axis in (2, 3)
    )
    return lambda arrays: [
        outward(resampling.resize_bilinear(inward(arrays[0]), rows, columns, kind, threads=threads))
    ]


@handles(top.Reduce, only_integer=True, floats=lambda op: op.kind in ("max", "min"), recordable=True)
def extreme(op: top.Reduce, graph: Graph, threads: int) -> Step:
    """The largest or the smallest."""
    axes, keep = op.axes, op.keepdims
    if quant_of(op.x) is None:
        larger = op.kind == "max"
        return lambda arrays: [
            float_rows.extreme(arrays[0], axes, larger=larger, keepdims=keep, threads=threads)
        ]
    run = reduction.reduce_max if op.kind == "max" else reduction.reduce_min
    return lambda arrays: [run(arrays[0], axes, keepdims=keep, threads=threads)]


@handles(top.ArgReduce, only_integer=True, recordable=True)
def where(op: top.ArgReduce, graph: Graph, threads: int) -> Step:
    """Where the largest or the smallest is."""
    axis, keep, last = op.axis, op.keepdims, op.select_last
    run = reduction.argmax if op.max else reduction.argmin
    return lambda arrays: [run(arrays[0], axis, keepdims=keep, last=last, threads=threads)]


@handles(top.TopK, only_integer=True)
def top_k(op: top.TopK, graph: Graph, threads: int) -> Step:
    """The places of the best, and what is there."""
    axis, k, larger = op.axis % len(shape_of(op.x)), op.k, op.largest

    def run(arrays: list[Array]) -> list[Array]:
        places = reduction.top_k(arrays[0], k, axis, larger=larger, threads=threads)
        return [np.take_along_axis(arrays[0], places, axis), places]

    return run


@handles(npu.ChannelTable, recordable=True)
def channel_table(op: npu.ChannelTable, graph: Graph, threads: int) -> Step:
    """Channels are the innermost axis in memory for rank 4, axis 1 elsewhere."""
    table = graph.constant(op.table)
    assert table is not None
    axis = 3 if len(shape_of(op.x)) == 4 else 1
    return lambda arrays: [
        outward(tables.lookup8_by_channel(inward(arrays[0]), table, axis, threads=threads))
    ]
