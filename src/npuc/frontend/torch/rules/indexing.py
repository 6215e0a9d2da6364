"""Ops that select by index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import DYNAMIC, Value, dtype_of, shape_of, tensor_type, top

_I64 = dtype_of("i64")


@rule("aten.embedding", "aten.index_select", limits="as a gather")
def embedding(ctx: TorchContext) -> Outcome:
    """Rows of a table."""
    if ctx.op == "aten.embedding":
        return ctx.emit(top.Gather, ctx.value("weight"), ctx.value("indices", _I64), axis=0).y
    axis = ctx.axis("dim", ctx.rank("self"))
    return ctx.emit(top.Gather, ctx.value("self"), ctx.value("index", _I64), axis=axis).y


@rule("aten.gather")
def gather(ctx: TorchContext) -> Outcome:
    """Elements along an axis."""
    x, index = ctx.value("self"), ctx.value("index", _I64)
    return ctx.emit(top.GatherElements, x, index, axis=ctx.axis("dim", len(shape_of(x)))).y


def _indices(ctx: TorchContext) -> dict[int, object]:
    """The index tensors of x[...] by axis; booleans pick an unknown number of elements."""
    indices = {}
    for axis, item in enumerate(ctx.args["indices"]):
        if item is not None:
            if ctx.dtype(item).name in ("i1", "ui8"):
                raise NoTopForm("the number of its results depends on data")
            indices[axis] = item
    return indices


@rule("aten.index", "aten._unsafe_index", limits="integer indices on one axis, or on neighbouring ones")
def index(ctx: TorchContext) -> Outcome:
    """x[i], x[:, i], x[i, j]: a gather, or a gather of tuples."""
    picks = _indices(ctx)
    x = ctx.value("self")
    axes = sorted(picks)
    if len(axes) == 1:
        return ctx.emit(top.Gather, x, ctx.value(picks[axes[0]], _I64), axis=axes[0]).y
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise NoTopForm("its indices are for axes that are not neighbours")
    return _by_tuples(ctx, x, axes, [picks[axis] for axis in axes])


def _by_tuples(ctx: TorchContext, x: Value, axes: Sequence[int], items: Sequence[object]) -> Value:
    """The indexed axes as one, and one index into it."""
    shape = shape_of(x)
    sizes = [shape[axis] for axis in axes]
    flat: Value | None = None
    for item, size, step in zip(items, sizes, np.cumprod([1, *sizes[:0:-1]])[::-1].tolist(), strict=True):
        value = ctx.value(item, _I64)
        if not ctx.is_constant(item):
            below = ctx.emit(top.Compare, value, ctx.value(0, _I64), mode="less").y
            value = ctx.emit(top.Where, below, ctx.emit(top.Add, value, ctx.value(size, _I64)).y, value).y
        else:
            value = ctx.literal(np.asarray(ctx.known(item), np.int64) % size, "index")
        part = value if step == 1 else ctx.emit(top.Mul, value, ctx.value(step, _I64)).y
        flat = part if flat is None else ctx.emit(top.Add, flat, part).y
    first, last = axes[0], axes[-1]
    joined = ctx.reshape(x, (*shape[:first], int(np.prod(sizes)), *shape[last + 1 :]))
    assert flat is not None
    return ctx.emit(top.Gather, joined, flat, axis=first).y


@rule("aten.index_put", "aten._unsafe_index_put", limits="integer indices for the first axes")
def index_put(ctx: TorchContext) -> Outcome:
    """x with slices replaced, or added to."""
    picks = _indices(ctx)
    if list(picks) != list(range(len(picks))):
        raise NoTopForm("its indices are not for the first axes")
    x = ctx.value("self")
    shape = shape_of(x)
    values = [ctx.value(item, _I64) for item in picks.values()]
    common = np.broadcast_shapes(*(shape_of(value) for value in values))
    columns = []
    for value in values:
        wide = value if shape_of(value) == common else ctx.emit(top.Expand, value, shape=common).y
        columns.append(ctx.reshape(wide, (*common, 1)))
    tuples = columns[0] if len(columns) == 1 else ctx.emit(top.Concat, columns, axis=len(common)).y
    updates = ctx.value("values", ctx.result_dtype)
    updates_shape = (*common, *shape[len(picks) :])
    if shape_of(updates) != updates_shape:
        updates = ctx.emit(top.Expand, updates, shape=updates_shape).y
    kind = "add" if ctx.flag("accumulate") else "none"
    return ctx.emit(top.ScatterND, x, tuples, updates, reduction=kind).y


_REDUCE = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@rule("aten.scatter", "aten.scatter_add", "aten.scatter_reduce", limits="mean: not; the own values take part")
def scatter(ctx: TorchContext) -> Outcome:
    """x with elements replaced, or combined."""
    x, places = ctx.value("self"), ctx.value("index", _I64)
    shape = shape_of(places)
    source = ctx.value("src" if "src" in ctx.args else "value", ctx.result_dtype)
    if len(shape_of(source)) != len(shape):
        source = ctx.emit(top.Expand, source, shape=shape).y
    elif shape_of(source) != shape:
        ones = (1,) * len(shape)
        source = ctx.emit(top.Slice, source, offset=(0,) * len(shape), steps=ones, shape=shape).y
    kind = "add" if ctx.op == "aten.scatter_add" else ctx.args.get("reduce")
    if kind is not None and kind not in _REDUCE:
        raise NoTopForm(f"it combines by {kind}")
    if ctx.op == "aten.scatter_reduce" and not ctx.flag("include_self"):
        raise NoTopForm("it leaves its own values out")
    return ctx.emit(
        top.ScatterElements,
        x,
        places,
        source,
        axis=ctx.axis("dim", len(shape_of(x))),
        reduction=_REDUCE[kind] if kind else "none",
    ).y


def _put(ctx: TorchContext, axis: int, begin: int, part: Value) -> Value:
    """x with a stretch along an axis replaced: what is before, the part, what is after."""
    x = ctx.value("self")
    shape = list(shape_of(x))
    count = shape_of(part)[axis]
    pieces = []
    for first, size in ((0, begin), (None, 0), (begin + count, shape[axis] - begin - count)):
        if first is None:
            pieces.append(part)
        elif size > 0:
            offset, sizes = [0] * len(shape), list(shape)
            offset[axis], sizes[axis] = first, size
            pieces.append(ctx.emit(top.Slice, x, offset=offset, steps=(1,) * len(shape), shape=sizes).y)
    return pieces[0] if len(pieces) == 1 else ctx.emit(top.Concat, pieces, axis=axis).y


@rule("aten.slice_scatter", limits="steps other than 1 through a scatter")
def slice_scatter(ctx: TorchContext) -> Outcome:
    """x with a slice replaced (x[a:b] = y)."""
    shape = ctx.shape("self")
    axis = ctx.axis("dim", len(shape))
    part = ctx.value("src", ctx.result_dtype)
    begin = ctx.integer("start") if ctx.has("start") else 0
    begin = min(max(begin + shape[axis] if begin < 0 else begin, 0), shape[axis])
    step = ctx.integer("step")
    count = shape_of(part)[axis]
    if step == 1:
        return _put(ctx, axis, begin, part)
    places = np.arange(begin, begin + count * step, step).reshape(
        [-1 if i == axis else 1 for i in range(len(shape))]
    )
    index = ctx.literal(np.ascontiguousarray(np.broadcast_to(places, shape_of(part))), "index")
    return ctx.emit(top.ScatterElements, ctx.value("self"), index, part, axis=axis).y


@rule("aten.select_scatter")
def select_scatter(ctx: TorchContext) -> Outcome:
    """x with one entry replaced (x[i] = y)."""
    shape = ctx.shape("self")
    axis = ctx.axis("dim", len(shape))
    part = ctx.value("src", ctx.result_dtype)
    part = ctx.reshape(part, (*shape[:axis], 1, *shape[axis + 1 :]))
    return _put(ctx, axis, ctx.integer("index") % shape[axis], part)


@rule("aten.topk")
def topk(ctx: TorchContext) -> Sequence[Outcome]:
    """The largest, or smallest, and where they are."""
    op = ctx.emit(
        top.TopK,
        ctx.value("self"),
        k=ctx.integer("k"),
        axis=ctx.axis("dim", ctx.rank("self")),
        largest=ctx.flag("largest"),
        sorted=ctx.flag("sorted"),
    )
    return list(op.parts)


@rule("aten.sort", "aten.argsort", limits="as a top-k of all; equal values may come in another order")
def sort(ctx: TorchContext) -> Outcome:
    """All of them, in order."""
    shape = ctx.shape("self")
    axis = ctx.axis("dim", len(shape))
    op = ctx.emit(
        top.TopK, ctx.value("self"), k=shape[axis] if shape else 1, axis=axis, largest=ctx.flag("descending")
    )
    return op.parts[1] if ctx.op == "aten.argsort" else list(op.parts)


@rule("aten.one_hot", keep=False)
def one_hot(ctx: TorchContext) -> Outcome:
    """A new axis with one 1."""
    values = ctx.literal(np.array([0, 1], np.int64), "values")
    return ctx.emit(top.OneHot, ctx.value("self", _I64), values, depth=ctx.integer("num_classes"), axis=-1).y


@rule("aten.nonzero", limits="on the CPU; how many depends on data")
def nonzero(ctx: TorchContext) -> Outcome:
    """Where x is not 0, a row each."""
    rank = ctx.rank("self")
    many = "the number of its results depends on data"
    flat = ctx.onnx("NonZero", [ctx.value("self")], [tensor_type((rank, DYNAMIC), "i64")], many)
    turned = [tensor_type((DYNAMIC, rank), "i64")]
    reason = "the shape of its operand depends on data"
    return ctx.onnx("Transpose", flat, turned, reason, {"perm": [1, 0]})[0]
