"""Matrix products and attention."""

from __future__ import annotations

import numpy as np

from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import Value, dtype_of, shape_of, top


@rule("MatMul")
def matmul(ctx: NodeContext) -> Outcome:
    """NumPy's matmul; vectors get an axis that is taken away again."""
    a, b = ctx.operand(0), ctx.operand(1)
    left, right = shape_of(a), shape_of(b)
    if not left or not right:
        raise NoTopForm("an operand is a scalar")
    if len(left) == 1:
        a = ctx.emit(top.Reshape, a, shape=(1, *left)).y
    if len(right) == 1:
        b = ctx.emit(top.Reshape, b, shape=(*right, 1)).y
    out = ctx.emit(top.MatMul, a, b, None).y
    shape = list(shape_of(out))
    if len(right) == 1:
        shape.pop()
    if len(left) == 1:
        shape.pop(-1 if len(right) == 1 else -2)
    return out if tuple(shape) == shape_of(out) else ctx.emit(top.Reshape, out, shape=tuple(shape)).y


def scaled(ctx: NodeContext, value: Value, factor: float, what: str) -> Value:
    """A value times a number; the value itself if that is 1."""
    if factor == 1.0:
        return value
    return ctx.emit(top.Mul, value, ctx.literal(np.array(factor, dtype_of(value.type).numpy), what)).y


@rule("Gemm")
def gemm(ctx: NodeContext) -> Outcome:
    """alpha * A @ B + beta * C, with either operand transposed."""
    node = ctx.node
    alpha, beta = node.float("alpha", 1.0), node.float("beta", 1.0)
    if not ctx.dtype(0).is_float and (alpha != 1.0 or beta != 1.0):
        raise NoTopForm("it scales integers by a float")
    a, b = ctx.operand(0), ctx.operand(1)
    if node.flag("transA"):
        a = ctx.emit(top.Permute, a, order=(1, 0)).y
    a = scaled(ctx, a, alpha, "alpha")
    columns = shape_of(b)[0 if node.flag("transB") else 1] if len(shape_of(b)) == 2 else -1
    addend = ctx.optional(2)
    if addend is not None:
        addend = scaled(ctx, addend, beta, "beta")
        if shape_of(addend) == (1, columns):
            addend = ctx.emit(top.Reshape, addend, shape=(columns,)).y
    inside = addend is not None and shape_of(addend) == (columns,)
    out = ctx.emit(top.MatMul, a, b, addend if inside else None, transpose_b=node.flag("transB")).y
    if addend is not None and not inside:
        if (
            shape_of(addend)
            and ctx.opset < 7
            and node.flag("broadcast") is False
            and len(shape_of(addend)) != 2
        ):
            raise NoTopForm("its third operand needs broadcasting")
        out = ctx.emit(top.Add, out, addend).y
    return out


@rule("Attention")
def attention(ctx: NodeContext) -> Outcome:
    """Scaled dot-product attention in its plain form: rank 4, equal heads, no cache."""
    node = ctx.node
    plain = not (
        node.flag("is_causal")
        or node.has("softcap")
        or node.has("softmax_precision")
        or node.has("qk_matmul_output_mode")
    )
    if not plain or len([name for name in node.outputs if name]) > 1 or any(ctx.has(i) for i in range(4, 8)):
        raise NoTopForm("it is more than scaled dot products, a mask and a softmax")
    query, key, value = ctx.operand(0), ctx.operand(1), ctx.operand(2)
    q, k = shape_of(query), shape_of(key)
    if len(q) != 4 or q[:2] != k[:2] or not ctx.dtype(0).name == "f32":
        raise NoTopForm("its operands are not batch x heads x length x size")
    mask = ctx.optional(3)
    if mask is not None and (dtype_of(mask.type) != ctx.dtype(0) or shape_of(mask)[-1] != k[2]):
        raise NoTopForm("its mask is not added")
    scale = node.float("scale", None)
    return ctx.emit(top.Attention, query, key, value, mask, scale=float(scale) if scale else q[3] ** -0.5).y
