"""Operators that select by index, and reductions."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import top
from npuc.ir.definition import TopOp

_REDUCE = {
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sum_square",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}


@rule(*_REDUCE)
def reduce(ctx: NodeContext) -> Outcome:
    """Over given axes, or all; axes moved from attribute to input at opset 13 (sum) and 18 (the rest)."""
    node, rank = ctx.node, len(ctx.shape(0))
    since = 13 if node.op_type == "ReduceSum" else 18
    axes = node.ints("axes", ()) if ctx.opset < since else ctx.known_ints(1, "axes") if ctx.has(1) else ()
    if not axes:
        if node.flag("noop_with_empty_axes"):
            raise NoTopForm("it reduces nothing")
        axes = tuple(range(rank))
    if 0 in ctx.shape(0):
        raise NoTopForm("it reduces an empty tensor")
    return ctx.emit(
        top.Reduce,
        ctx.operand(0),
        kind=_REDUCE[node.op_type],
        axes=tuple(axes),
        keepdims=node.flag("keepdims", True),
    ).y


@rule("ArgMax", "ArgMin")
def arg(ctx: NodeContext) -> Outcome:
    """The index of the extreme."""
    node = ctx.node
    return ctx.emit(
        top.ArgReduce,
        ctx.operand(0),
        max=node.op_type == "ArgMax",
        axis=node.int("axis", 0),
        keepdims=node.flag("keepdims", True),
        select_last=node.flag("select_last_index"),
    ).y


@rule("TopK")
def topk(ctx: NodeContext) -> list[Outcome]:
    """k as attribute (before opset 10) or input."""
    node = ctx.node
    k = node.int("k") if ctx.opset < 10 else int(ctx.known(1, "k").reshape(-1)[0])
    op = ctx.emit(
        top.TopK,
        ctx.operand(0),
        k=k,
        axis=node.int("axis", -1),
        largest=node.flag("largest", True),
        sorted=node.flag("sorted", True),
    )
    return list(op.results)


@rule("CumSum")
def cumsum(ctx: NodeContext) -> Outcome:
    """The axis is an input."""
    axis = int(ctx.known(1, "axis").reshape(-1)[0])
    return ctx.emit(
        top.CumSum,
        ctx.operand(0),
        axis=axis,
        exclusive=ctx.node.flag("exclusive"),
        reverse=ctx.node.flag("reverse"),
    ).y


@rule("OneHot")
def one_hot(ctx: NodeContext) -> Outcome:
    """The depth must be constant."""
    depth = int(ctx.known(1, "depth").reshape(-1)[0])
    return ctx.emit(top.OneHot, ctx.operand(0), ctx.operand(2), depth=depth, axis=ctx.node.int("axis", -1)).y


@rule("Gather")
def gather(ctx: NodeContext) -> Outcome:
    """Slices along an axis."""
    axis = ctx.node.int("axis", 0)
    indices = ctx.constant(1)
    shape = ctx.shape(0)
    if indices is not None and shape and indices.size and -len(shape) <= axis < len(shape):
        limit = shape[axis]
        if indices.min() < -limit or indices.max() >= limit:
            raise InvalidModelError(
                f"{ctx.node.label}: an index is outside the {limit} elements of axis {axis}"
            )
    return ctx.emit(top.Gather, ctx.operand(0), ctx.operand(1), axis=axis).y


@rule("GatherElements")
def gather_elements(ctx: NodeContext) -> Outcome:
    """Elements along an axis."""
    return ctx.emit(top.GatherElements, ctx.operand(0), ctx.operand(1), axis=ctx.node.int("axis", 0)).y


@rule("GatherND")
def gather_nd(ctx: NodeContext) -> Outcome:
    """Slices at index tuples."""
    return ctx.emit(top.GatherND, ctx.operand(0), ctx.operand(1), batch_dims=ctx.node.int("batch_dims", 0)).y


@rule("ScatterElements", "Scatter", "ScatterND")
def scatter(ctx: NodeContext) -> Outcome:
    """Elements or slices replaced."""
    values = [ctx.operand(i) for i in range(3)]
    reduction = ctx.node.string("reduction", "none")
    if ctx.node.op_type == "ScatterND":
        return ctx.emit(top.ScatterND, *values, reduction=reduction).y
    return ctx.emit(top.ScatterElements, *values, axis=ctx.node.int("axis", 0), reduction=reduction).y


@rule("GridSample")
def grid_sample(ctx: NodeContext) -> Outcome:
    """Sampling at points; the modes were renamed in opset 20."""
    node = ctx.node
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.string("mode", "linear")
    return ctx.emit(
        top.GridSample,
        ctx.operand(0),
        ctx.operand(1),
        mode=names.get(mode, mode),
        padding=node.string("padding_mode", "zeros"),
        align_corners=node.flag("align_corners"),
    ).y


@rule("LSTM", "GRU", "RNN")
def recurrent(ctx: NodeContext) -> list[Outcome]:
    """ONNX's layout: sequence x batch x input."""
    node = ctx.node
    if node.flag("layout"):
        raise NoTopForm("its layout is batch first")
    kinds: dict[str, type[TopOp]] = {"LSTM": top.LSTM, "GRU": top.GRU, "RNN": top.RNN}
    properties = {
        "hidden": node.int("hidden_size"),
        "direction": node.string("direction", "forward"),
        "activations": node.strings("activations", ()),
        "activation_alpha": node.floats("activation_alpha", ()),
        "activation_beta": node.floats("activation_beta", ()),
        "clip": float(node.float("clip", 0.0)),
    }
    values = [ctx.operand(i) if i < 3 else ctx.optional(i) for i in range(6)]
    if node.op_type == "LSTM":
        values += [ctx.optional(6), ctx.optional(7)]
        properties["input_forget"] = node.flag("input_forget")
    if node.op_type == "GRU":
        properties["linear_before_reset"] = node.flag("linear_before_reset")
    return list(ctx.emit(kinds[node.op_type], *values, **properties).results)


@rule("QuantizeLinear")
def quantize(ctx: NodeContext) -> Outcome:
    """Per tensor or per channel; the type is the zero point's."""
    node = ctx.node
    to = ctx.dtype(2).name if ctx.has(2) else "ui8"
    if not ctx.has(2) and node.int("output_dtype", 0):
        raise NoTopForm("its type is given without a zero point")
    _check_scale(ctx, to)
    return ctx.emit(
        top.Quantize, ctx.operand(0), ctx.operand(1), ctx.optional(2), axis=node.int("axis", 1), to=to
    ).y


@rule("DequantizeLinear")
def dequantize(ctx: NodeContext) -> Outcome:
    """Per tensor or per channel; of constants also 4 bits, which weights have."""
    _check_scale(ctx, ctx.dtype(0).name, ("i4", "ui4") if ctx.constant(0) is not None else ())
    if ctx.node.int("output_dtype", 0):
        raise NoTopForm("its output type is given")
    x, zero = ctx.operand(0), ctx.optional(2)
    if ctx.node.inputs[0] in ctx.scope.short and not (ctx.has(2) and ctx.known(2, "zero point").any()):
        x = ctx.literal(ctx.known(0, "x").astype(ml_dtypes.int4), "integers")
        zero = ctx.literal(np.zeros(ctx.shape(1), ml_dtypes.int4), "zero_point")
    return ctx.emit(top.Dequantize, x, ctx.operand(1), zero, axis=ctx.node.int("axis", 1)).y


def _check_scale(ctx: NodeContext, quantized: str, further: tuple[str, ...] = ()) -> None:
    if ctx.node.int("block_size", 0) or len(ctx.shape(1)) > 1 or ctx.node.int("precision", 0):
        raise NoTopForm("its scale is per block")
    if quantized not in ("i8", "ui8", "i16", "ui16", "i32", *further) or ctx.dtype(1).name != "f32":
        raise NoTopForm(f"it quantizes {quantized} with a scale of {ctx.dtype(1).name}")
    if ctx.has(2) and ctx.shape(2) != ctx.shape(1):
        raise NoTopForm("scale and zero point have different shapes")


@rule("Trilu")
def trilu(ctx: NodeContext) -> Outcome:
    """A triangle of the last two axes, as a choice by a constant mask."""
    shape = ctx.shape(0)
    if len(shape) < 2 or shape[-1] * shape[-2] > 1 << 24:
        raise NoTopForm("its matrix is too large for a mask")
    k = int(ctx.known(1, "k").reshape(-1)[0]) if ctx.has(1) else 0
    square = np.ones(shape[-2:], np.bool_)
    mask = np.triu(square, k) if ctx.node.flag("upper", True) else np.tril(square, k)
    zero = ctx.literal(np.zeros((), ctx.dtype(0).numpy), "zero")
    return ctx.emit(top.Where, ctx.literal(mask, "mask"), ctx.operand(0), zero).y
