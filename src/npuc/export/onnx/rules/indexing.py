"""Ops that select elements by index."""

import numpy as np

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import dtype_of, top


@exports(top.Gather, top.GatherElements)
def gather(op: top.Gather | top.GatherElements, emit: Emitter) -> None:
    """Gather or GatherElements."""
    emit(
        "Gather" if isinstance(op, top.Gather) else "GatherElements", op.x, op.indices, to=op.y, axis=op.axis
    )


@exports(top.GatherND)
def gather_nd(op: top.GatherND, emit: Emitter) -> None:
    """GatherND."""
    emit("GatherND", op.x, op.indices, to=op.y, batch_dims=op.batch_dims)


@exports(top.ScatterElements)
def scatter_elements(op: top.ScatterElements, emit: Emitter) -> None:
    """ScatterElements."""
    emit("ScatterElements", op.x, op.indices, op.updates, to=op.y, axis=op.axis, reduction=op.reduction)


@exports(top.ScatterND)
def scatter_nd(op: top.ScatterND, emit: Emitter) -> None:
    """ScatterND."""
    emit("ScatterND", op.x, op.indices, op.updates, to=op.y, reduction=op.reduction)


@exports(top.ArgReduce)
def arg_reduce(op: top.ArgReduce, emit: Emitter) -> None:
    """ArgMax or ArgMin."""
    emit(
        "ArgMax" if op.max else "ArgMin",
        op.x,
        to=op.y,
        axis=op.axis,
        keepdims=int(op.keepdims),
        select_last_index=int(op.select_last),
    )


@exports(top.TopK)
def topk(op: top.TopK, emit: Emitter) -> None:
    """TopK."""
    attributes = {"axis": op.axis, "largest": int(op.largest), "sorted": int(op.sorted)}
    emit.node("TopK", [op.x, emit.ints(op.k)], [emit.name(part) for part in op.parts], attributes)


@exports(top.CumSum)
def cumsum(op: top.CumSum, emit: Emitter) -> None:
    """CumSum."""
    axis = np.array(op.axis, np.int64)
    emit("CumSum", op.x, axis, to=op.y, exclusive=int(op.exclusive), reverse=int(op.reverse))


@exports(top.OneHot)
def one_hot(op: top.OneHot, emit: Emitter) -> None:
    """OneHot on 64-bit indices; element types that ONNX Runtime has no kernel for are looked up by its 0 or 1."""
    indices = (
        op.indices if dtype_of(op.indices.type).name == "i64" else emit.cast(op.indices, dtype_of("i64"))
    )
    depth = np.array(op.depth, np.int64)
    if dtype_of(op.values.type).name in ("f32", "i64", "string"):
        emit("OneHot", indices, depth, op.values, to=op.y, axis=op.axis)
        return
    hot = emit("OneHot", indices, depth, np.array([0, 1], np.int64), axis=op.axis)
    emit("Gather", op.values, hot, to=op.y, axis=0)
