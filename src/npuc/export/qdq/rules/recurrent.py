"""Recurrent layers: the float layer, with the reals that its integer weights, biases and multipliers stand for.

The gates of an `npu` layer have tables, and ONNX's layers have functions: a layer whose tables are those of sigmoid and tanh is
written, any other is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.functions import sigmoid
from npuc.arrays import Array
from npuc.export.qdq.form import QdqForm, no_form
from npuc.export.qdq.registry import expresses
from npuc.ir import Value, npu, top, value_name
from npuc.ir.dtypes import QuantType, quant_of
from npuc.kernels.recurrent import GATE_SCALE, NO_LIMIT, RESET_SCALE, UNIT_SCALE
from npuc.kernels.tables import table16

_ONNX_ORDER = (0, 3, 1, 2)
"""The gates of an LSTM, input, forget, cell and output, in ONNX's order: input, output, forget, cell."""


@expresses(npu.LSTM, npu.GRU, npu.RNN)
def recurrent(op: npu.LSTM | npu.GRU | npu.RNN, form: QdqForm) -> None:
    """Float weights, a row for each gate and unit."""
    _require_usual_tables(op, form)
    x, h, name = quant_of(op.x), op.to, value_name(op.parts[0])
    assert x is not None and isinstance(h, QuantType)
    lstm = op if isinstance(op, npu.LSTM) else None
    gru = op if isinstance(op, npu.GRU) else None
    shift = 2.0 ** -_numbers(form, op.shift)
    target = np.full(shift.shape, GATE_SCALE)
    if gru is not None and gru.linear_before_reset:
        target[:, 2 * op.hidden :] = RESET_SCALE
    step = shift * target
    scale_x = _numbers(form, op.multiplier_x) * step / x.scale
    scale_h = _numbers(form, op.multiplier_h) * step / h.scale
    bias = _numbers(form, op.bias) * step
    behind = np.zeros_like(bias)
    if gru is not None and gru.bias_h is not None:
        behind[:, 2 * op.hidden :] = _numbers(form, gru.bias_h) * step[:, 2 * op.hidden :]

    def reals(what: str, array: Array) -> Value:
        return form.weight(f"{name}/{what}", array.astype(np.float32))

    def rows(array: Array) -> Array:
        return array if lstm is None else _in_onnx_order(array)

    operands: list[Value | None] = [
        form.real(op.x),
        reals("weight", rows(_numbers(form, op.weight) * scale_x[..., None])),
        reals("recurrence", rows(_numbers(form, op.recurrence) * scale_h[..., None])),
        reals("bias", np.concatenate([rows(bias), rows(behind)], axis=1)),
        None,
        None if op.initial_h is None else form.real(op.initial_h),
    ]
    properties: dict[str, Any] = {"hidden": op.hidden, "direction": op.direction, "loc": op.location}
    if op.limit != NO_LIMIT:
        properties["clip"] = op.limit * GATE_SCALE
    kind: type[Any] = top.RNN
    if lstm is not None:
        kind = top.LSTM
        properties["input_forget"] = lstm.coupled
        operands.append(None if lstm.initial_c is None else form.real(lstm.initial_c))
        operands.append(None if lstm.peephole is None else reals("peephole", _peephole(lstm, form, step)))
        operands.append(None if lstm.projection is None else reals("projection", _projection(lstm, form, h)))
    elif gru is not None:
        kind = top.GRU
        properties["linear_before_reset"] = gru.linear_before_reset
    layer = form.emit(kind, *operands, **properties)
    for old, new in zip(op.parts, layer.results, strict=True):
        form.quantize(old, new)


def _numbers(form: QdqForm, value: Any) -> Array:
    array = form.constant(value)
    assert array is not None
    return array.astype(np.float64)


def _in_onnx_order(rows: Array) -> Array:
    parts = np.split(rows, 4, axis=1)
    return np.concatenate([parts[gate] for gate in _ONNX_ORDER], axis=1)


def _peephole(op: npu.LSTM, form: QdqForm, step: Array) -> Array:
    """Input, forget, output gate in ONNX's order: input, output, forget."""
    assert isinstance(op.cell, QuantType)
    units = op.hidden
    steps = np.concatenate([step[:, : 2 * units], step[:, 3 * units :]], axis=1)
    reals = _numbers(form, op.peephole) * _numbers(form, op.multiplier_c) * steps / op.cell.scale
    i, f, o = np.split(reals, 3, axis=1)
    return np.concatenate([i, o, f], axis=1)


def _projection(op: npu.LSTM, form: QdqForm, h: QuantType) -> Array:
    scale = _numbers(form, op.multiplier_p) * 2.0 ** -_numbers(form, op.shift_p) * h.scale / UNIT_SCALE
    product: Array = _numbers(form, op.projection) * scale[..., None]
    return product


def _require_usual_tables(op: npu.LSTM | npu.GRU | npu.RNN, form: QdqForm) -> None:
    tables = _numbers(form, op.tables)
    usual: list[tuple[Any, float]] = [(np.tanh, GATE_SCALE)]
    if not isinstance(op, npu.RNN):
        usual.insert(0, (sigmoid, GATE_SCALE))
    if isinstance(op, npu.LSTM):
        assert isinstance(op.cell, QuantType)
        usual.append((np.tanh, op.cell.scale))
    for entries, (function, scale) in zip(tables, usual, strict=True):
        if np.abs(table16(function, scale, 0, UNIT_SCALE, 0).astype(np.int64) - entries).max() > 1:
            raise no_form(
                op,
                "the functions of its gates are not sigmoid and tanh",
                "Write the integer form, which has its tables (--form integer)",
            )
