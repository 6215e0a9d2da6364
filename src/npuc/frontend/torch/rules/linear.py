"""Matrix products."""

from __future__ import annotations

from math import prod

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import DType, Value, shape_of, top


def _product(
    ctx: TorchContext, a: Value, b: Value, bias: Value | None = None, transpose_b: bool = False
) -> Value:
    """Any ranks: one of 1 is a row on the left and a column on the right."""
    left, right = shape_of(a), shape_of(b)
    if len(left) >= 2 and len(right) >= 2 and bias is None and not transpose_b:
        fixed = ctx.scope.graph.constant(a)
        if fixed is not None and ctx.scope.graph.constant(b) is None and fixed.size == prod(left[-2:]):
            return _turned(ctx, ctx.reshape(a, left[-2:]), b, max(len(left), len(right)))
    if len(left) == 1:
        a = ctx.reshape(a, (1, *left))
    if len(right) == 1:
        b, transpose_b = ctx.reshape(b, (1, *right)), True
    y = ctx.emit(top.MatMul, a, b, bias, transpose_b=transpose_b).y
    shape = list(shape_of(y))
    if len(right) == 1:
        shape.pop()
    if len(left) == 1:
        shape.pop(-1 if len(right) == 1 else -2)
    return ctx.reshape(y, shape)


def _turned(ctx: TorchContext, a: Value, b: Value, rank: int) -> Value:
    """A constant times a value, as the value's transpose times a weight: (b^T a^T)^T."""
    b = ctx.reshape(b, (*(1,) * (rank - len(shape_of(b))), *shape_of(b)))
    swap = (*range(rank - 2), rank - 1, rank - 2)
    return ctx.permute(ctx.emit(top.MatMul, ctx.permute(b, swap), a, None, transpose_b=True).y, swap)


@rule("aten.linear")
def linear(ctx: TorchContext) -> Outcome:
    """Weights are outputs x inputs."""
    dtype = ctx.result_dtype
    return _product(
        ctx, ctx.value("input", dtype), ctx.value("weight", dtype), ctx.optional("bias", dtype), True
    )


@rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot", "aten.linalg_vecdot")
def matmul(ctx: TorchContext) -> Outcome:
    """A plain product."""
    dtype = ctx.result_dtype
    names = [key for key in ("self", "other", "mat2", "vec", "tensor") if key in ctx.args]
    a, b = (ctx.value(key, dtype) for key in names[:2])
    return _product(ctx, a, b)


def _times(ctx: TorchContext, value: Value, factor: float, dtype: DType) -> Value:
    return value if factor == 1 else ctx.emit(top.Mul, value, ctx.value(factor, dtype)).y


@rule("aten.addmm", "aten.baddbmm", "aten.addbmm", "aten.addmv")
def addmm(ctx: TorchContext) -> Outcome:
    """beta * self + alpha * a @ b"""
    dtype = ctx.result_dtype
    names = [key for key in ("mat1", "mat2", "batch1", "batch2", "mat", "vec") if key in ctx.args]
    a, b = (ctx.value(key, dtype) for key in names[:2])
    extra = ctx.value("self", dtype)
    alpha, beta = ctx.number("alpha"), ctx.number("beta")
    columns = shape_of(b)[-1]
    if alpha == beta == 1 and shape_of(extra) == (columns,) and len(shape_of(b)) == 2:
        return _product(ctx, a, b, extra)
    y = _product(ctx, a, b)
    if ctx.op == "aten.addbmm":
        y = ctx.emit(top.Reduce, y, kind="sum", axes=(0,), keepdims=False).y
    y = _times(ctx, y, alpha, dtype)
    return y if beta == 0 else ctx.emit(top.Add, y, _times(ctx, extra, beta, dtype)).y


@rule("aten.ger", "aten.outer")
def outer(ctx: TorchContext) -> Outcome:
    """Every element with every other."""
    dtype = ctx.result_dtype
    rows = ctx.reshape(ctx.value("self", dtype), (*ctx.shape("self"), 1))
    return ctx.emit(top.Mul, rows, ctx.value("vec2", dtype)).y


@rule("aten.bilinear")
def bilinear(ctx: TorchContext) -> Outcome:
    """x1^T W x2 for every output: a product with the weight laid flat, then a sum over x2."""
    dtype = ctx.result_dtype
    first, second = ctx.value("input1", dtype), ctx.value("input2", dtype)
    outputs, inner, width = ctx.shape("weight")
    flat = ctx.reshape(ctx.permute(ctx.value("weight", dtype), (1, 0, 2)), (inner, outputs * width))
    batch = shape_of(first)[:-1]
    y = ctx.reshape(_product(ctx, first, flat), (*batch, outputs, width))
    y = ctx.emit(top.Mul, y, ctx.reshape(second, (*batch, 1, width))).y
    y = ctx.emit(top.Reduce, y, kind="sum", axes=(len(batch) + 1,), keepdims=False).y
    bias = ctx.optional("bias", dtype)
    return y if bias is None else ctx.emit(top.Add, y, bias).y


@rule("aten.cdist", limits="of order 1 or 2")
def cdist(ctx: TorchContext) -> Outcome:
    """The distance of every row from every other."""
    dtype, order = ctx.result_dtype, ctx.number("p")
    if order not in (1.0, 2.0):
        raise NoTopForm(f"it is a distance of order {order:g}")
    a, b = ctx.value("x1", dtype), ctx.value("x2", dtype)
    a = ctx.reshape(a, (*shape_of(a)[:-1], 1, shape_of(a)[-1]))
    b = ctx.reshape(b, (*shape_of(b)[:-2], 1, *shape_of(b)[-2:]))
    apart = ctx.emit(top.Sub, a, b).y
    axes = (len(shape_of(apart)) - 1,)
    return ctx.emit(top.Reduce, apart, kind="l1" if order == 1.0 else "l2", axes=axes, keepdims=False).y
