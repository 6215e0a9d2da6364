"""Reductions, and what looks along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.layout import LayoutTensor, axis_in
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.scope import TfliteContext
from npuc.ir import Value, dtype_of, top
from npuc.ir.definition import normal_axis


def _reduced(ctx: TfliteContext, kind: str, x: Value | None = None) -> LayoutTensor:
    options = ctx.needed("ReducerOptions")
    rank = ctx.rank(0)
    axes = sorted({normal_axis(axis, rank) for axis in ctx.integers(1, "axes")})
    keeps = bool(options.number("KeepDims"))
    nchw = ctx.turned(0) and x is None
    if not keeps:
        # What is left has to be in TFLite's order.
        left = [axis_in(axis, nchw) for axis in range(rank) if axis not in axes]
        nchw = nchw and left == sorted(left)
    value = ctx.real(0, nchw) if x is None else x
    y = ctx.emit(
        top.Reduce, value, kind=kind, axes=sorted(axis_in(axis, nchw) for axis in axes), keepdims=keeps
    ).y
    return LayoutTensor(y, nchw and keeps)


def _reduction(name: str, kind: str) -> None:
    rule(name)(lambda ctx: _reduced(ctx, kind))


_reduction("MEAN", "mean")
_reduction("SUM", "sum")
_reduction("REDUCE_MAX", "max")
_reduction("REDUCE_MIN", "min")
_reduction("REDUCE_PROD", "prod")


def _truth(name: str, kind: str) -> None:
    def translate(ctx: TfliteContext) -> Outcome:
        numbers = ctx.emit(top.Cast, ctx.value(0), to="i32").y
        return ctx.emit(top.Cast, _reduced(ctx, kind, numbers).values[False], to="i1").y

    rule(name)(translate)


_truth("REDUCE_ANY", "max")
_truth("REDUCE_ALL", "min")


def _as_output(ctx: TfliteContext, value: Value, index: int = 0) -> Value:
    to = ctx.output(index).dtype.name
    return value if dtype_of(value.type).name == to else ctx.emit(top.Cast, value, to=to).y


@rule("ARG_MAX", "ARG_MIN")
def arg(ctx: TfliteContext) -> Outcome:
    """x, axis: the first index of the extreme value."""
    axis = normal_axis(ctx.integers(1, "axis")[0], ctx.rank(0))
    y = ctx.emit(top.ArgReduce, ctx.real(0), max=ctx.op.name == "ARG_MAX", axis=axis, keepdims=False).y
    return _as_output(ctx, y)


@rule("TOPK_V2")
def top_k(ctx: TfliteContext) -> list[Outcome]:
    """x, k: the largest values along the last axis, and their indices."""
    (k,) = ctx.integers(1, "k")
    op = ctx.emit(top.TopK, ctx.real(0), k=k, axis=ctx.rank(0) - 1)
    return [op.parts[0], _as_output(ctx, op.parts[1], 1)]


@rule("CUMSUM")
def cumsum(ctx: TfliteContext) -> Outcome:
    """Running sums along an axis."""
    options = ctx.options("CumsumOptions")
    axis = normal_axis(ctx.integers(1, "axis")[0], ctx.rank(0))
    exclusive, reverse = (
        options is not None and bool(options.number(name)) for name in ("Exclusive", "Reverse")
    )
    return ctx.emit(top.CumSum, ctx.real(0), axis=axis, exclusive=exclusive, reverse=reverse).y


@rule("ONE_HOT")
def one_hot(ctx: TfliteContext) -> Outcome:
    """indices, depth, on value, off value; an index outside the depth gives no hot entry."""
    options = ctx.options("OneHotOptions")
    (depth,) = ctx.integers(1, "depth")
    if not 0 <= depth <= 1 << 20:
        raise InvalidModelError(f"{ctx.label}: a depth of {depth}")
    shape = list(ctx.shape(0))
    axis = normal_axis(int(options.number("Axis")) if options is not None else -1, len(shape) + 1)
    shape.insert(axis, 1)
    indices = ctx.emit(top.Reshape, ctx.value(0), shape=shape).y
    places = np.arange(depth).astype(dtype_of(indices.type).numpy)
    spread = [depth if i == axis else 1 for i in range(len(shape))]
    hot = ctx.emit(top.Compare, indices, ctx.literal(places.reshape(spread), "places"), mode="equal").y
    return ctx.emit(top.Where, hot, ctx.real(2), ctx.real(3)).y


@rule("SHAPE")
def shape(ctx: TfliteContext) -> Outcome:
    """Known now."""
    return np.array(ctx.shape(0), ctx.output().dtype.numpy)


@rule("RANK")
def rank(ctx: TfliteContext) -> Outcome:
    """Known now."""
    return np.array(ctx.rank(0), ctx.output().dtype.numpy)


@rule("FILL")
def fill(ctx: TfliteContext) -> Outcome:
    """shape, value."""
    shape = ctx.integers(0, "shape")
    if min(shape, default=0) < 0:
        raise InvalidModelError(f"{ctx.label}: the shape {list(shape)} is not valid")
    value = ctx.emit(top.Reshape, ctx.value(1), shape=(1,) * len(shape)).y
    return ctx.emit(top.Expand, value, shape=shape).y


@rule("ZEROS_LIKE")
def zeros_like(ctx: TfliteContext) -> Outcome:
    """Zeros of the shape of x."""
    value = ctx.literal(np.zeros((1,) * ctx.rank(0), ctx.output().dtype.numpy), "zero")
    return ctx.emit(top.Expand, value, shape=ctx.shape(0)).y


@rule("RANGE")
def range_(ctx: TfliteContext) -> Outcome:
    """start, limit, delta: all constant."""
    start, limit, delta = (
        ctx.known(i, what).reshape(()) for i, what in enumerate(("start", "limit", "delta"))
    )
    if delta == 0 or not all(np.isfinite(float(x)) for x in (start, limit, delta)):
        raise InvalidModelError(f"{ctx.label}: from {start} to {limit} by {delta}")
    count = max(0, int(np.ceil((np.float64(limit) - np.float64(start)) / np.float64(delta))))
    if count > 1 << 22:
        raise InvalidModelError(f"{ctx.label}: it has {count} elements")
    steps: np.ndarray[Any, Any] = start + np.arange(count, dtype=start.dtype) * delta
    return steps.astype(start.dtype)


@rule("BROADCAST_ARGS")
def broadcast_args(ctx: TfliteContext) -> Outcome:
    """The common shape of two shapes."""
    shapes = ctx.integers(0, "shape"), ctx.integers(1, "shape")
    return np.array(np.broadcast_shapes(*shapes), ctx.output().dtype.numpy)
