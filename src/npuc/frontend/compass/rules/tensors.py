"""Arithmetic of tensors, and layers that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.export.compass.text import integers_in
from npuc.frontend.compass.registry import CompassContext, rule
from npuc.frontend.compass.rules.activations import activate
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, shape_of, top
from npuc.ir.definition import TopOp

METHODS: dict[str, type[TopOp]] = {
    "ADD": top.Add,
    "SUB": top.Sub,
    "MUL": top.Mul,
    "MAX": top.Max,
    "MIN": top.Min,
}
"""Methods of Eltwise."""
BINARY: dict[str, type[TopOp]] = {
    "Add": top.Add,
    "Sub": top.Sub,
    "Mul": top.Mul,
    "Div": top.Div,
    "Pow": top.Pow,
}
"""Layers of two operands, which broadcast."""
REDUCTIONS = {
    "MEAN": "mean",
    "SUM": "sum",
    "MAX": "max",
    "MIN": "min",
    "PROD": "prod",
    "L1": "l1",
    "L2": "l2",
}
"""Methods of Reduce."""


@rule("Eltwise")
def eltwise(ctx: CompassContext) -> Value:
    """ADD, SUB, MUL, MAX and MIN of two or more tensors, with an activation behind it."""
    method = ctx.word("method")
    if method not in METHODS:
        raise NoForm(f"its method '{method[:20]}' is not known")
    return _activated(ctx, ctx.values(), METHODS[method])


@rule(*BINARY)
def binary(ctx: CompassContext) -> Value:
    """Of two tensors that broadcast."""
    return _activated(ctx, [ctx.value(0), ctx.value(1)], BINARY[ctx.layer.kind])


def _activated(ctx: CompassContext, values: Sequence[Value], op: type[TopOp]) -> Value:
    """An op of all values, one after the other, and the activation behind it."""
    method = ctx.word("with_activation")

    def compute(operands: Sequence[Value]) -> Value:
        y = operands[0]
        for operand in operands[1:]:
            y = ctx.emit(op, y, operand)
        return activate(ctx, y, method)

    return compute(values) if method == "PRELU" else ctx.by_elements(values, compute)


@rule("Constant")
def constant(ctx: CompassContext) -> Value:
    """Numbers of the binary file."""
    array = ctx.constant("weights")
    kind = np.float32 if array.dtype.kind == "f" else np.int64
    return ctx.literal(array.astype(kind), "weights")


@rule("MatMul")
def matmul(ctx: CompassContext) -> Value:
    """Of two tensors; either may be turned."""
    a, b = ctx.value(0), ctx.value(1)
    if ctx.flag("trans_a"):
        rank = len(shape_of(a))
        a = ctx.permuted(a, (*range(rank - 2), rank - 1, rank - 2))
    return ctx.emit(top.MatMul, a, b, None, transpose_b=ctx.flag("trans_b"))


@rule("Concat")
def concat(ctx: CompassContext) -> Value:
    """Along one axis."""
    values, axis = ctx.values(), ctx.axis_of()
    if any(map(ctx.is_turned, values)):
        # Where the channels are second already, they stay there: nothing has to be turned between convolutions.
        turned = [ctx.channels_second(value) for value in values]
        return ctx.channels_last(ctx.emit(top.Concat, turned, axis=(0, 2, 3, 1)[axis]))
    return ctx.emit(top.Concat, values, axis=axis)


@rule("Reshape", "Squeeze")
def reshape(ctx: CompassContext) -> Value:
    """To the shape that is stated."""
    return ctx.emit(top.Reshape, ctx.value(), shape=_stated(ctx))


@rule("Transpose")
def transpose(ctx: CompassContext) -> Value:
    """Any order."""
    return ctx.permuted(ctx.value(), ctx.list("perm"))


@rule("Split")
def split(ctx: CompassContext) -> Sequence[Value]:
    """Into parts along one axis."""
    return ctx.emit_op(top.Split, ctx.value(), axis=ctx.axis_of(), sizes=ctx.list("splits")).results


@rule("Slice", "StridedSlice")
def slice_(ctx: CompassContext) -> Value:
    """From begin to end by steps, which may be negative."""
    shape, result = ctx.shape(), _stated(ctx)
    begin, steps = ctx.list("begin"), ctx.list("strides") or (1,) * len(shape)
    if not len(shape) == len(begin) == len(steps) == len(result):
        raise ctx.invalid("begin, end and strides need an entry for each axis")
    offset = [place + size if place < 0 else place for place, size in zip(begin, shape, strict=True)]
    return ctx.emit(top.Slice, ctx.value(), offset=tuple(offset), steps=steps, shape=result)


@rule("Pad")
def pad(ctx: CompassContext) -> Value:
    """CONSTANT, REFLECT and EDGE; `pads` has a pair for each axis."""
    nested = ctx.nested("pads")
    pairs = [integers_in(pair, "pads") for pair in nested]
    mode = ctx.word("mode", "CONSTANT").lower()
    if any(len(pair) != 2 for pair in pairs) or mode not in ("constant", "reflect", "edge"):
        raise NoForm("its pads are not known")
    pads = (*(pair[0] for pair in pairs), *(pair[1] for pair in pairs))
    return ctx.emit(top.Pad, ctx.value(), pads=pads, mode=mode, value=ctx.real("constant_value", 0.0))


@rule("Tile")
def tile(ctx: CompassContext) -> Value:
    """Repeats for each axis."""
    return ctx.emit(top.Tile, ctx.value(), repeats=ctx.list("repeats"))


@rule("Reduce")
def reduce(ctx: CompassContext) -> Value:
    """MEAN, SUM, MAX, MIN, PROD, L1 and L2; reduced axes stay, of size 1, unless the stated shape has fewer."""
    method = ctx.word("method")
    if method not in REDUCTIONS:
        raise NoForm(f"its method '{method[:20]}' is not known")
    axes = tuple(ctx.axis(axis) for axis in ctx.list("axis"))
    kept = len(_stated(ctx)) == len(ctx.shape())
    return ctx.emit(top.Reduce, ctx.value(), kind=REDUCTIONS[method], axes=axes, keepdims=kept)


@rule("ArgMinMax")
def arg_min_max(ctx: CompassContext) -> Value:
    """MAX and MIN along one axis."""
    return ctx.emit(
        top.ArgReduce,
        ctx.value(),
        max=ctx.word("method", "MAX") == "MAX",
        axis=ctx.axis_of(),
        keepdims=len(_stated(ctx)) == len(ctx.shape()),
        select_last=ctx.flag("select_last_index"),
    )


@rule("LayerNorm", "RMSNorm")
def layer_norm(ctx: CompassContext) -> Value:
    """Over the last axes."""
    axes = sorted(ctx.axis(axis) for axis in ctx.list("axis"))
    rank = len(ctx.shape())
    if axes != list(range(rank - len(axes), rank)):
        raise NoForm("its axes are not the last ones")
    op = top.LayerNorm if ctx.layer.kind == "LayerNorm" else top.RMSNorm
    scale = ctx.literal(ctx.weights(), "weights") if "weights" in ctx.constants else None
    bias = (
        ctx.literal(ctx.constants["biases"].astype(np.float32), "biases")
        if "biases" in ctx.constants
        else None
    )
    return ctx.emit(op, ctx.value(), scale, bias, axis=axes[0], epsilon=ctx.real("epsilon", 1e-5))


@rule("Normalization")
def normalization(ctx: CompassContext) -> Value:
    """L2 along one axis."""
    axes = ctx.list("axis")
    if ctx.word("method", "L2") != "L2" or len(axes) != 1:
        raise NoForm("only L2 along one axis is known")
    return ctx.emit(top.L2Norm, ctx.value(), axis=ctx.axis(axes[0]), epsilon=0.0)


def _stated(ctx: CompassContext) -> tuple[int, ...]:
    nested = ctx.nested("layer_top_shape")
    return tuple(integers_in(nested[0], "layer_top_shape"))
