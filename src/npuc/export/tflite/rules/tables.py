"""Functions of one value: TFLite's own operator where it computes the same integers, else a look-up.

A look-up is a GATHER from the table: CAST to 32-bit integers, ADD so that they start at 0, GATHER. It is exact for any
table; an NPU leaves it to the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.tflite import function_table, prelu_table
from npuc.arrays import Array
from npuc.export.tflite.arithmetic import RELU, RELU6, activation_limits
from npuc.export.tflite.emitter import TFLiteEmitter, quantization
from npuc.export.tflite.ending import limit
from npuc.export.tflite.formula import OPTIONS
from npuc.export.tflite.layout import Order, arranged, channels_last
from npuc.export.tflite.model import TYPES, TFLiteTensor
from npuc.export.tflite.registry import NoTFLiteForm, exports
from npuc.ir import Value, npu, shape_of
from npuc.ir.definition import TOP_OPS
from npuc.ir.dtypes import QuantType, quant_of
from npuc.ir.top.functions import FUNCTIONS
from npuc.kernels.tables import lookup

_OWN = ("sigmoid", "tanh", "exp", "hard_swish", "leaky_relu")
"""Functions that TFLite has integer kernels for; limits are another matter."""
_FIXED = {"sigmoid": 1 / 256, "tanh": 1 / 128}
"""The scales of results that TFLite's operators insist on."""


@exports(npu.Table)
def table(op: npu.Table, emit: TFLiteEmitter) -> None:
    """The operator, limits, or the look-up."""
    entries = emit.array(op.table)
    x, y = quant_of(op.x), op.to
    if entries is None:
        raise NoTFLiteForm("its table is computed at run time")
    assert isinstance(x, QuantType) and isinstance(y, QuantType)
    order = emit.common_order(op.x)
    if not (_limits(op, emit, entries, x, y, order) or _own(op, emit, entries, x, y, order)):
        _look_up(op, emit, entries, order)


def _limits(
    op: npu.Table, emit: TFLiteEmitter, entries: Array, x: QuantType, y: QuantType, order: Order
) -> bool:
    """A table that only bounds its operand."""
    if x != y or x.dtype.itemsize != 1:
        return False
    least, most = x.dtype.limits
    lo, hi = int(entries.min()), int(entries.max())
    if not np.array_equal(entries, np.clip(np.arange(least, most + 1), lo, hi)):
        return False
    source = emit.tensor(op.x, order)
    for activation, code in ((RELU, "RELU"), (RELU6, "RELU6")):
        if activation_limits(y, activation) == (lo, hi):
            emit.operator(code, [source], [emit.result(op.y, order)])
            return True
    bounds = [("MAXIMUM", float(lo))] if lo > least else []
    bounds += [("MINIMUM", float(hi))] if hi < most else []
    if not bounds:
        return False
    limit(emit, source, op.y, order, bounds)
    return True


def _own(
    op: npu.Table, emit: TFLiteEmitter, entries: Array, x: QuantType, y: QuantType, order: Order
) -> bool:
    """A table that is the one of TFLite's own operator."""
    expected = function_table(op.function, op.constants, x, y)
    if expected is None or not np.array_equal(entries, expected):
        return False
    if _FIXED.get(op.function, y.scale) != y.scale or (op.function == "exp" and x.dtype.name == "ui8"):
        return False
    if op.function == "relu":
        code, options = {0.0: "RELU", 6.0: "RELU6"}.get(op.constants[0]), ""
        if code is None:
            return False
    elif op.function in _OWN:
        code = FUNCTIONS[TOP_OPS[f"top.{op.function}"]].tflite
        options = OPTIONS.get(code, "")
    else:
        return False
    values = {"Alpha": op.constants[0]} if code == "LEAKY_RELU" else {}
    emit.operator(code, [emit.tensor(op.x, order)], [emit.result(op.y, order)], options, **values)
    return True


def _look_up(op: npu.Table, emit: TFLiteEmitter, entries: Array, order: Order) -> None:
    x = quant_of(op.x)
    assert x is not None
    least = x.dtype.limits[0]
    if entries.size != 256:
        entries = lookup(np.arange(least, x.dtype.limits[1] + 1).astype(x.dtype.carrier.numpy), entries)
    index = _index(emit, op.x, order, np.array([-least], np.int32))
    _gather(emit, entries, index, op, order)


def _index(emit: TFLiteEmitter, value: Value, order: Order, start: Array) -> TFLiteTensor:
    """The integers of a value, counted from 0 and from where each channel's table starts."""
    source = emit.tensor(value, order)
    wide = emit.new(source.shape, "i32", what="integers")
    emit.operator(
        "CAST", [source], [wide], "CastOptions", InDataType=TYPES[source.dtype], OutDataType=TYPES["i32"]
    )
    index = emit.new(source.shape, "i32", what="index")
    emit.operator("ADD", [wide, emit.constant(start)], [index], "AddOptions", FusedActivationFunction=0)
    return index


def _gather(emit: TFLiteEmitter, entries: Array, index: TFLiteTensor, op: Any, order: Order) -> None:
    kind = quant_of(op.y)
    assert kind is not None
    table = emit.constant(entries.reshape(-1), quantization(kind), "table")
    emit.operator("GATHER", [table, index], [emit.result(op.y, order)], "GatherOptions", Axis=0, BatchDims=0)


@exports(npu.ChannelTable)
def channel_table(op: npu.ChannelTable, emit: TFLiteEmitter) -> None:
    """PRELU, or a look-up in the tables of all channels."""
    entries = emit.array(op.table)
    x, y = quant_of(op.x), op.to
    if entries is None:
        raise NoTFLiteForm("its table is computed at run time")
    assert isinstance(x, QuantType) and isinstance(y, QuantType)
    shape = shape_of(op.x)
    order = channels_last(len(shape))
    if op.slopes and x.dtype == y.dtype:
        slopes = np.array(op.slopes, np.int64)
        if np.array_equal(prelu_table(slopes, op.slope_scale, x, y), entries) and x.dtype.name == "i8":
            alpha = emit.constant(
                slopes.astype(np.int8).reshape(*[1] * (len(shape) - 2), -1),
                quantization(QuantType.of("i8", op.slope_scale, 0)),
                "slope",
            )
            emit.operator("PRELU", [emit.tensor(op.x, order), alpha], [emit.result(op.y, order)])
            return
    start = np.arange(len(entries), dtype=np.int32) * 256 - x.dtype.limits[0]
    spread = arranged((1, len(entries), *[1] * (len(shape) - 2)), order)
    index = _index(emit, op.x, order, start.reshape(spread))
    _gather(emit, entries, index, op, order)
