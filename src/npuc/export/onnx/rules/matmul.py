"""Matrix product."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.relu import finish_relu, unless_relu
from npuc.ir import dtype_of, shape_of, top


@exports(top.MatMul)
def matmul(op: top.MatMul, emit: Emitter) -> None:
    """Gemm for matrices of floats that have a bias or a transpose; MatMul and what it needs around it otherwise."""
    out = unless_relu(op)
    rank = len(shape_of(op.b))
    matrices = len(shape_of(op.a)) == 2 and rank == 2 and 0 not in shape_of(op.a)
    if matrices and dtype_of(op.a.type).is_float and (op.bias is not None or op.transpose_b):
        raw = emit("Gemm", op.a, op.b, op.bias, to=out, transB=1 if op.transpose_b else None)
    else:
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        b = emit("Transpose", op.b, perm=swapped) if op.transpose_b else op.b
        raw = emit("MatMul", op.a, b, to=out if op.bias is None else None)
        if op.bias is not None:
            raw = emit("Add", raw, op.bias, to=out)
    finish_relu(op, emit, raw)
