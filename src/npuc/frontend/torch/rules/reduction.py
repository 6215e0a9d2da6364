"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import Value, dtype_of, shape_of, top

_KINDS = {
    "aten.mean": "mean", "aten.sum": "sum", "aten.amax": "max", "aten.amin": "min", "aten.prod": "prod",
    "aten.logsumexp": "log_sum_exp",
}  # fmt: skip


def _axes(ctx: TorchContext, rank: int) -> tuple[int, ...]:
    """The axes, or all."""
    if not ctx.has("dim"):
        return tuple(range(rank))
    return tuple(axis % max(rank, 1) for axis in ctx.ints("dim")) or tuple(range(rank))


def _reduced(ctx: TorchContext, x: Value, kind: str, axes: Sequence[int], keep: bool) -> Value:
    if not shape_of(x):
        return x
    return ctx.emit(top.Reduce, x, kind=kind, axes=tuple(axes), keepdims=keep).y


@rule(*_KINDS)
def reduce(ctx: TorchContext) -> Outcome:
    """Over some axes, or all."""
    x = ctx.value("self", ctx.result_dtype)
    if 0 in shape_of(x):
        raise NoTopForm("it reduces an empty tensor")
    return _reduced(ctx, x, _KINDS[ctx.op], _axes(ctx, len(shape_of(x))), ctx.flag("keepdim"))


@rule("aten.max", "aten.min")
def extremum(ctx: TorchContext) -> Outcome:
    """Of a whole tensor, along an axis with its place, or of two tensors."""
    most = ctx.op == "aten.max"
    if ctx.has("other"):
        kind = top.Max if most else top.Min
        return ctx.emit(kind, ctx.value("self", ctx.result_dtype), ctx.value("other", ctx.result_dtype)).y
    x = ctx.value("self")
    rank = len(shape_of(x))
    if not ctx.has("dim"):
        return _reduced(ctx, x, "max" if most else "min", range(rank), False)
    axis, keep = ctx.axis("dim", rank), ctx.flag("keepdim")
    values = _reduced(ctx, x, "max" if most else "min", (axis,), keep)
    used = any(user.args[1] == 1 and len(user.users) for user in ctx.node.users)
    where = ctx.emit(top.ArgReduce, x, max=most, axis=axis, keepdims=keep).y if used else None
    return [values, where]


@rule("aten.argmax", "aten.argmin")
def arg(ctx: TorchContext) -> Outcome:
    """The place of the extreme."""
    x = ctx.value("self")
    keep = ctx.flag("keepdim")
    if dtype_of(x.type).name == "i1":
        x = ctx.cast(x, dtype_of("i32"))
    if not ctx.has("dim"):
        count = 1
        for n in shape_of(x):
            count *= n
        x = ctx.reshape(x, (count,))
        y = ctx.emit(top.ArgReduce, x, max=ctx.op == "aten.argmax", axis=0, keepdims=False).y
        return ctx.reshape(y, ctx.result_shape)
    axis = ctx.axis("dim", len(shape_of(x)))
    return ctx.emit(top.ArgReduce, x, max=ctx.op == "aten.argmax", axis=axis, keepdims=keep).y


@rule("aten.any", "aten.all")
def quantifier(ctx: TorchContext) -> Outcome:
    """The largest, or smallest, of booleans as integers."""
    boolean, i32 = dtype_of("i1"), dtype_of("i32")
    x = ctx.value("self")
    if dtype_of(x.type) != boolean:
        zero = ctx.value(0, dtype_of(x.type))
        x = ctx.emit(top.Not, ctx.emit(top.Compare, x, zero, mode="equal").y).y
    kind = "max" if ctx.op == "aten.any" else "min"
    y = _reduced(ctx, ctx.cast(x, i32), kind, _axes(ctx, len(shape_of(x))), ctx.flag("keepdim"))
    return ctx.cast(y, boolean)


@rule("aten.cumsum")
def cumsum(ctx: TorchContext) -> Outcome:
    """Running sums."""
    x = ctx.value("self", ctx.result_dtype)
    return ctx.emit(top.CumSum, x, axis=ctx.axis("dim", len(shape_of(x)))).y


@rule("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def variance(ctx: TorchContext) -> Outcome:
    """The mean of squared distances from the mean, with torch's correction of the count."""
    x = ctx.value("self")
    shape = shape_of(x)
    axes, keep = _axes(ctx, len(shape)), ctx.flag("keepdim")
    count = 1
    for axis in axes:
        count *= shape[axis]
    correction = ctx.args.get("correction")
    if correction is None:
        correction = 1 if ctx.args.get("unbiased", True) else 0
    if count - correction <= 0:
        raise NoTopForm("it divides by nothing")
    mean = _reduced(ctx, x, "mean", axes, True)
    away = ctx.emit(top.Sub, x, mean).y
    y = _reduced(ctx, ctx.emit(top.Mul, away, away).y, "mean", axes, keep)
    factor = count / (count - correction)
    if factor != 1.0:
        y = ctx.emit(top.Mul, y, ctx.value(float(factor), dtype_of("f32"))).y
    if "std" in ctx.op:
        y = ctx.emit(top.Sqrt, y).y
    if not isinstance(ctx.result, tuple | list):
        return y
    return [y, ctx.reshape(mean, tuple(ctx.result[1].shape))]


@rule("aten.linalg_vector_norm", "aten.norm", limits="of order 1, 2 or infinity")
def norm(ctx: TorchContext) -> Outcome:
    """The length of vectors."""
    order = ctx.args.get("ord", ctx.args.get("p"))
    order = 2.0 if order is None else float(order)
    x = ctx.value("self", ctx.result_dtype)
    axes, keep = _axes(ctx, len(shape_of(x))), ctx.flag("keepdim")
    if order in (inf, -inf):
        return _reduced(ctx, ctx.emit(top.Abs, x).y, "max" if order > 0 else "min", axes, keep)
    if order not in (1.0, 2.0):
        raise NoTopForm(f"it is a norm of order {order:g}")
    return _reduced(ctx, x, "l1" if order == 1.0 else "l2", axes, keep)
