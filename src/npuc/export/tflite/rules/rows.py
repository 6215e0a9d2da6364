"""Softmax, reductions, normalization along an axis, and places of extremes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tflite

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import mean_parameters, quantize_multiplier
from npuc.export.tflite.arithmetic import check_kind
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.ending import ending
from npuc.export.tflite.layout import Order, arranged
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm, exports
from npuc.ir import Value, npu, shape_of, top
from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import QuantType, quant_of
from npuc.kernels.softmax import softmax_parameters


def with_axis_last(emit: TFLiteEmitter, value: Value, axis: int) -> Order:
    """An order that ends with an axis: one that the value has, if there is one."""
    rank = len(shape_of(value))
    axis = normal_axis(axis, rank)
    others = tuple(i for i in range(rank) if i != axis)
    return next((o for o in emit.orders(value) if o[-1] == axis), (*others, axis))


@exports(top.Softmax, npu.Softmax)
def softmax(op: Any, emit: TFLiteEmitter) -> None:
    """Over the last axis."""
    if isinstance(op, npu.Softmax):
        check_kind(op.kind)
        x, y = quant_of(op.x), op.to
        assert isinstance(x, QuantType) and isinstance(y, QuantType)
        if x.dtype != y.dtype:
            raise NoTFLiteForm("its operand and its result have different element types", SCHEME)
        p = softmax_parameters(
            Kind.DOUBLE_ROUNDING, x.scale, y.scale, y.zero_point, x.dtype.numpy, y.dtype.numpy
        )
        if tuple(op.parameters) != (p.multiplier, p.shift, p.left, p.diff_min):
            raise NoTFLiteForm("its multipliers are not those that TFLite derives from its scales", SCHEME)
    order = with_axis_last(emit, op.x, op.axis)
    end = ending(emit, op, order)
    emit.operator("SOFTMAX", [emit.tensor(op.x, order)], [end.out], "SoftmaxOptions", Beta=1.0)
    end.finish()


@exports(top.LogSoftmax)
def log_softmax(op: top.LogSoftmax, emit: TFLiteEmitter) -> None:
    """Over the last axis."""
    order = with_axis_last(emit, op.x, op.axis)
    emit.operator("LOG_SOFTMAX", [emit.tensor(op.x, order)], [emit.result(op.y, order)], "LogSoftmaxOptions")


_REDUCERS = {"mean": "MEAN", "sum": "SUM", "max": "REDUCE_MAX", "min": "REDUCE_MIN", "prod": "REDUCE_PROD"}


@exports(npu.ReduceSum)
def reduce_sum(op: npu.ReduceSum, emit: TFLiteEmitter) -> None:
    """A mean; or a sum, of the types that LiteRT sums rightly."""
    x, y = quant_of(op.x), op.to
    assert isinstance(x, QuantType) and isinstance(y, QuantType)
    check_kind(op.kind)
    if x.dtype != y.dtype:
        raise NoTFLiteForm("its operand and its result have different element types", SCHEME)
    shape = shape_of(op.x)
    count = prod(shape[normal_axis(axis, len(shape))] for axis in op.axes)
    scaling = mean_parameters(Kind.DOUBLE_ROUNDING, x.scale, y.scale, count)
    assert scaling.multiplier is not None and scaling.shift is not None
    if tuple(op.parameters) == (int(scaling.multiplier[0]), int(scaling.shift[0])):
        _reduce(op, emit, "MEAN")
    elif tuple(op.parameters) == quantize_multiplier(x.scale / y.scale):
        if x.dtype.name != "ui8":
            raise NoTFLiteForm("LiteRT's sum of signed integers is not a sum (docs/arithmetic-reduce.md)")
        _reduce(op, emit, "SUM")
    else:
        raise NoTFLiteForm("its multiplier is not the one that TFLite derives from its scales", SCHEME)


@exports(top.Reduce)
def reduce(op: top.Reduce, emit: TFLiteEmitter) -> None:
    """Mean, sum, product and extremes."""
    if op.kind not in _REDUCERS:
        raise NoTFLiteForm(f"TFLite has no reduction by {op.kind}")
    _reduce(op, emit, _REDUCERS[op.kind])


def _reduce(op: Any, emit: TFLiteEmitter, code: str) -> None:
    rank = len(shape_of(op.x))
    axes = {normal_axis(axis, rank) for axis in op.axes}
    order = emit.common_order(op.x)
    if op.keepdims:
        kept: Order = order
    else:
        left = [axis for axis in range(rank) if axis not in axes]
        kept = tuple(left.index(axis) for axis in order if axis not in axes)
    source = emit.tensor(op.x, order)
    places = emit.integers(sorted(order.index(axis) for axis in axes))
    end = ending(emit, op, kept, fuses=False)
    emit.operator(code, [source, places], [end.out], "ReducerOptions", KeepDims=op.keepdims)
    end.finish()


@exports(top.ArgReduce)
def arg(op: top.ArgReduce, emit: TFLiteEmitter) -> None:
    """The first place of an extreme."""
    if op.select_last:
        raise NoTFLiteForm("it takes the last of equal elements, and TFLite the first")
    rank = len(shape_of(op.x))
    axis = normal_axis(op.axis, rank)
    order = emit.common_order(op.x)
    code, table = ("ARG_MAX", "ArgMaxOptions") if op.max else ("ARG_MIN", "ArgMinOptions")
    left = [i for i in range(rank) if i != axis]
    kept = tuple(left.index(i) for i in order if i != axis)
    shape = arranged([shape_of(op.x)[i] for i in left], kept)
    place = emit.constant(np.array(order.index(axis), np.int32))
    out = emit.new(shape, "i64", what="places") if op.keepdims else emit.result(op.y, kept)
    emit.operator(code, [emit.tensor(op.x, order), place], [out], table, OutputType=tflite.TensorType.INT64)
    if op.keepdims:
        emit.reshape(out, emit.result(op.y, order))


@exports(top.L2Norm)
def l2_norm(op: top.L2Norm, emit: TFLiteEmitter) -> None:
    """TFLite's lower bound of the norm is 1e-6."""
    if op.epsilon > 1e-6:
        raise NoTFLiteForm(f"its lower bound is {op.epsilon:g}, and TFLite's 1e-6")
    order = with_axis_last(emit, op.x, op.axis)
    emit.operator(
        "L2_NORMALIZATION",
        [emit.tensor(op.x, order)],
        [emit.result(op.y, order)],
        "L2NormOptions",
        FusedActivationFunction=0,
    )


@exports(npu.Norm)
def norm(op: npu.Norm, emit: TFLiteEmitter) -> None:
    """The integer norms are npuc's own, but for L2 of 8 bits."""
    x, y = quant_of(op.x), op.to
    assert isinstance(x, QuantType) and isinstance(y, QuantType)
    if op.mode == "l2" and op.kind is Kind.DOUBLE_ROUNDING and x.dtype == y.dtype and x.dtype.itemsize == 1:
        order = with_axis_last(emit, op.x, op.axis)
        end = ending(emit, op, order, fuses=False)
        emit.operator(
            "L2_NORMALIZATION",
            [emit.tensor(op.x, order)],
            [end.out],
            "L2NormOptions",
            FusedActivationFunction=0,
        )
        end.finish()
        return
    raise NoTFLiteForm(
        f"TFLite has no integer {op.mode} norm of this kind", "keep the layer float with --keep-float"
    )
