"""Attention."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import top


@exports(top.Attention)
def attention(op: top.Attention, emit: Emitter) -> None:
    """In primitives; the query is scaled, so that the scores of half floats stay in range."""
    query = emit("Mul", op.query, emit.scalar(op.scale, op.query))
    scores = emit("MatMul", query, emit("Transpose", op.key, perm=(0, 1, 3, 2)))
    if op.mask is not None:
        scores = emit("Add", scores, op.mask)
    emit("MatMul", emit("Softmax", scores, axis=-1), op.value, to=op.y)
