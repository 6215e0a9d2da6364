"""Sums, means and the places of maxima."""

from __future__ import annotations

from math import prod

from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.ir import Value, top

_KINDS = {"SUM": "sum", "ASUM": "l1", "SUMSQ": "sum_square", "MEAN": "mean"}


@rule("Reduction")
def reduction(ctx: CaffeContext) -> Value:
    """SUM, ASUM, SUMSQ and MEAN from `axis` on, times `coeff`."""
    given = ctx.parameters("reduction_param")
    kind = _KINDS[given.enum("operation", ("", *_KINDS), "SUM")]
    begin = ctx.axis(given.int("axis"))
    axes = tuple(range(begin, len(ctx.shape())))
    y = ctx.emit(top.Reduce, ctx.value(), kind=kind, axes=axes, keepdims=False)
    factor = given.float("coeff", 1.0)
    return y if factor == 1 else ctx.emit(top.Mul, y, ctx.number(factor))


@rule("ArgMax")
def argmax(ctx: CaffeContext) -> Value:
    """The places of the `top_k` largest values along `axis` or of a whole sample, as floats, or their values."""
    given = ctx.parameters("argmax_param")
    k, values = given.int("top_k", 1), given.bool("out_max_val")
    x = ctx.shape()
    if given.has("axis"):
        axis = ctx.axis(given.int("axis"))
        best, places = ctx.emit_op(top.TopK, ctx.value(), k=k, axis=axis).results
        return best if values else ctx.emit(top.Cast, places, to="f32")
    flat = ctx.reshape(ctx.value(), (x[0], prod(x[1:])))
    best, places = ctx.emit_op(top.TopK, flat, k=k, axis=1).results
    result = ctx.reshape(ctx.emit(top.Cast, places, to="f32"), (x[0], 1, k))
    if values:
        result = ctx.emit(top.Concat, [result, ctx.reshape(best, (x[0], 1, k))], axis=1)
    return result
