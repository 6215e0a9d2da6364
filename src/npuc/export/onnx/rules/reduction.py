"""Reduction over axes."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import top

_REDUCE = {
    "mean": "ReduceMean",
    "sum": "ReduceSum",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "l1": "ReduceL1",
    "l2": "ReduceL2",
    "sum_square": "ReduceSumSquare",
    "log_sum": "ReduceLogSum",
    "log_sum_exp": "ReduceLogSumExp",
}
# What each kind makes of a single value; ONNX has no agreed form for a reduction over no axes.
_SINGLE = {"l1": "Abs", "l2": "Abs", "log_sum": "Log"}


@exports(top.Reduce)
def reduce(op: top.Reduce, emit: Emitter) -> None:
    """A node a kind; over no axes, the elementwise function that is left."""
    if op.axes:
        emit(_REDUCE[op.kind], op.x, emit.ints(*op.axes), to=op.y, keepdims=int(op.keepdims))
    elif op.kind == "sum_square":
        emit("Mul", op.x, op.x, to=op.y)
    else:
        emit(_SINGLE.get(op.kind, "Identity"), op.x, to=op.y)
