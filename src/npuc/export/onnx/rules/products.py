"""Sums of products: convolutions, matrix products, attention."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.relu import finish_relu, unless_relu
from npuc.ir import dtype_of, shape_of, top


@exports(top.Conv, top.Deconv)
def convolution(op: top.Conv | top.Deconv, emit: Emitter) -> None:
    """Conv or ConvTranspose, then the fused relu."""
    padding = op.output_padding if isinstance(op, top.Deconv) else ()
    raw = emit(
        "ConvTranspose" if isinstance(op, top.Deconv) else "Conv",
        op.x,
        op.weight,
        op.bias,
        to=unless_relu(op),
        kernel_shape=shape_of(op.weight)[2:],
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        group=op.group,
        output_padding=padding if any(padding) else None,
    )
    finish_relu(op, emit, raw)


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


@exports(top.Attention)
def attention(op: top.Attention, emit: Emitter) -> None:
    """In primitives; the query is scaled, so that the scores of half floats stay in range."""
    query = emit("Mul", op.query, emit.scalar(op.scale, op.query))
    scores = emit("MatMul", query, emit("Transpose", op.key, perm=(0, 1, 3, 2)))
    if op.mask is not None:
        scores = emit("Add", scores, op.mask)
    emit("MatMul", emit("Softmax", scores, axis=-1), op.value, to=op.y)
