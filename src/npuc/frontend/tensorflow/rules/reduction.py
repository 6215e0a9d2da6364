"""Reductions, and what looks along an axis."""

from __future__ import annotations

import numpy as np

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks.movement import reshape
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule
from npuc.ir import top
from npuc.ir.definition import normal_axis


def _keeps(ctx: TensorflowContext) -> bool:
    return ctx.node.flag("keep_dims") or ctx.node.flag("keepdims")


def _reduction(name: str, kind: str) -> None:
    def translate(ctx: TensorflowContext) -> Outcome:
        """Constant axes."""
        return a.reduce(ctx.c, ctx.x(0), kind, ctx.integers(1, "axes"), _keeps(ctx))

    rule(name)(translate)


for _name, _kind in {
    "Mean": "mean",
    "Sum": "sum",
    "Max": "max",
    "Min": "min",
    "Prod": "prod",
    "EuclideanNorm": "l2",
}.items():
    _reduction(_name, _kind)


@rule("Any", "All")
def truth(ctx: TensorflowContext) -> Outcome:
    """Constant axes."""
    kind = "max" if ctx.node.op == "Any" else "min"
    return a.truth(ctx.c, ctx.x(0), kind, ctx.integers(1, "axes"), _keeps(ctx))


@rule("ArgMax", "ArgMin")
def arg(ctx: TensorflowContext) -> Outcome:
    """A constant axis; the first of equal values."""
    axis = ctx.integer(1, "axis") if ctx.has(1) else 0
    to = "i32" if ctx.node.type_code("output_type", 9) == 3 else "i64"
    return a.arg(ctx.c, ctx.x(0), axis, ctx.node.op == "ArgMax", to)


@rule("TopKV2", "TopK")
def top_k(ctx: TensorflowContext) -> Outcome:
    """A constant k, along the last axis."""
    k = ctx.integer(1, "k") if ctx.node.op == "TopKV2" else ctx.node.integer("k")
    op = ctx.c.emit(top.TopK, ctx.c.value(ctx.x(0)), k=k, axis=ctx.x(0).rank - 1)
    return [LayoutTensor(op.parts[0]), a.cast(ctx.c, LayoutTensor(op.parts[1]), "i32")]


@rule("Cumsum")
def cumsum(ctx: TensorflowContext) -> Outcome:
    """A constant axis."""
    axis = normal_axis(ctx.integer(1, "axis"), ctx.x(0).rank)
    exclusive, reverse = ctx.node.flag("exclusive"), ctx.node.flag("reverse")
    sums = ctx.c.emit(top.CumSum, ctx.c.value(ctx.x(0)), axis=axis, exclusive=exclusive, reverse=reverse)
    return LayoutTensor(sums.y)


@rule("OneHot")
def one_hot(ctx: TensorflowContext) -> Outcome:
    """A constant depth; an index outside gives no hot entry."""
    depth = ctx.integer(1, "depth")
    if not 0 <= depth <= 1 << 20:
        raise ctx.wrong(f"a depth of {depth}")
    shape = list(ctx.x(0).shape)
    axis = normal_axis(ctx.node.integer("axis", -1), len(shape) + 1)
    shape.insert(axis, 1)
    indices = reshape(ctx.c, ctx.x(0), shape)
    places = np.arange(depth).astype(indices.dtype.numpy)
    row = ctx.c.constant(places.reshape([depth if i == axis else 1 for i in range(len(shape))]))
    hot = a.binary(ctx.c, top.Compare, indices, row, mode="equal")
    return a.where(ctx.c, hot, ctx.x(2), ctx.x(3))
