"""Ops that choose elements by index, running sums, and attention."""

from __future__ import annotations

import numpy as np

from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.formula import binary
from npuc.export.tflite.model import TYPES, TFLiteTensor
from npuc.export.tflite.registry import NoTFLiteForm, exports
from npuc.export.tflite.rules.rows import with_axis_last
from npuc.ir import Value, shape_of, top
from npuc.ir.definition import normal_axis


def _indices(emit: TFLiteEmitter, value: Value, size: int) -> TFLiteTensor:
    """Indices that count from the front; those that count from the end are known only in constants."""
    array = emit.array(value)
    if array is None:
        source = emit.tensor(value)
        if source.dtype in ("i32", "i64"):
            return source
        raise NoTFLiteForm(f"its indices are {source.dtype}")
    return emit.integers(np.where(array < 0, array + size, array))


@exports(top.Gather)
def gather(op: top.Gather, emit: TFLiteEmitter) -> None:
    """GATHER; indices computed at run time must not be negative."""
    shape = shape_of(op.x)
    axis = normal_axis(op.axis, len(shape))
    indices = _indices(emit, op.indices, shape[axis])
    emit.operator(
        "GATHER",
        [emit.tensor(op.x), indices],
        [emit.result(op.y)],
        "GatherOptions",
        Axis=axis,
        BatchDims=0,
    )


@exports(top.TopK)
def top_k(op: top.TopK, emit: TFLiteEmitter) -> None:
    """The largest along the last axis, in order."""
    if not op.largest:
        raise NoTFLiteForm("TFLite has the largest elements only")
    order = with_axis_last(emit, op.x, op.axis)
    values, places = op.parts
    out = emit.result(values, order)
    narrow = emit.new(out.shape, "i32", what="places")
    emit.operator(
        "TOPK_V2",
        [emit.tensor(op.x, order), emit.constant(np.array(op.k, np.int32))],
        [out, narrow],
        "TopKV2Options",
    )
    wide = emit.result(places, order)
    emit.operator("CAST", [narrow], [wide], "CastOptions", InDataType=TYPES["i32"], OutDataType=TYPES["i64"])


@exports(top.CumSum)
def cumsum(op: top.CumSum, emit: TFLiteEmitter) -> None:
    """Running sums."""
    order = emit.common_order(op.x)
    axis = order.index(normal_axis(op.axis, len(order)))
    emit.operator(
        "CUMSUM",
        [emit.tensor(op.x, order), emit.constant(np.array(axis, np.int32))],
        [emit.result(op.y, order)],
        "CumsumOptions",
        Exclusive=op.exclusive,
        Reverse=op.reverse,
    )


@exports(top.Attention)
def attention(op: top.Attention, emit: TFLiteEmitter) -> None:
    """Two products of matrices and a softmax."""
    query, key, value = (emit.tensor(v) for v in (op.query, op.key, op.value))
    shape = (*query.shape[:3], key.shape[2])
    scores = emit.like(op.y, shape, "scores")
    scaled = binary(emit, op.y, "MUL", query, float(op.scale))
    emit.operator("BATCH_MATMUL", [scaled, key], [scores], "BatchMatMulOptions", AdjY=True)
    if op.mask is not None:
        scores = binary(emit, op.y, "ADD", scores, emit.broadcast(op.mask, (0, 1, 2, 3)))
    weights = emit.like(op.y, shape, "weights")
    emit.operator("SOFTMAX", [scores], [weights], "SoftmaxOptions", Beta=1.0)
    emit.operator("BATCH_MATMUL", [weights, value], [emit.result(op.y)], "BatchMatMulOptions", AdjY=False)
