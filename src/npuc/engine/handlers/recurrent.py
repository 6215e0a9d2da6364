"""Recurrent layers through the native core, one call a direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine.handlers import Step, handles
from npuc.engine.handlers.arithmetic import type_of
from npuc.ir import Graph, npu, shape_of, top
from npuc.ir.dtypes import QuantType
from npuc.ir.lstm_parameters import lstm_parameters
from npuc.ir.npu.recurrent import STATE
from npuc.kernels.quantized_lstm import run_quantized_lstm
from npuc.kernels.recurrent import RecurrentParameters, run_recurrent
from npuc.kernels.tape import copy, empty


@handles(npu.LSTM, npu.GRU, npu.RNN, recordable=True)
def recurrent(op: npu.LSTM | npu.GRU | npu.RNN, graph: Graph, threads: int) -> Step:
    """Directions side by side."""
    assert isinstance(op.to, QuantType)
    layers = [direction_parameters(op, graph, index) for index in range(shape_of(op.weight)[0])]
    options: dict[str, Any] = {
        "zero_x": type_of(op.x).zero_point,
        "zero_h": op.to.zero_point,
        "dtype": op.to.dtype.numpy,
        "lo": op.lo,
        "hi": op.hi,
        "threads": threads,
    }
    inner = op.initial_c if isinstance(op, npu.LSTM) else op.initial_h if isinstance(op, npu.GRU) else None
    places = [_place(op, None if isinstance(op, npu.GRU) else op.initial_h), _place(op, inner)]
    chosen = result_parts(op)
    reverse = op.direction == "reverse"
    shapes = [shape_of(part) for part in op.parts]

    def run(arrays: list[Array]) -> list[Array]:
        directions = []
        for index, layer in enumerate(layers):
            states = [None if place is None else arrays[place][index] for place in places]
            backwards = reverse or index == 1
            directions.append(run_recurrent(arrays[0], layer, *states, reverse=backwards, **options))
        return [
            _joined([part[i] for part in directions], shape) for i, shape in zip(chosen, shapes, strict=True)
        ]

    return run


@handles(top.QuantizedLSTM, only_integer=True, recordable=True)
def quantized_lstm(op: top.QuantizedLSTM, graph: Graph, threads: int) -> Step:
    """LiteRT's kernel."""
    layer = lstm_parameters(op, graph)

    def run(arrays: list[Array]) -> list[Array]:
        return [run_quantized_lstm(arrays[0], layer, time_major=op.time_major, threads=threads)]

    return run


def result_parts(op: npu.LSTM | npu.GRU | npu.RNN) -> tuple[int, ...]:
    """Which of all outputs, the last h and the last inner state the results of an op are."""
    if isinstance(op, npu.LSTM):
        return 0, 1, 2
    return 0, 2 if isinstance(op, npu.GRU) and op.state == STATE else 1


def direction_parameters(op: npu.LSTM | npu.GRU | npu.RNN, graph: Graph, index: int) -> RecurrentParameters:
    """The constants of one direction as the kernel takes them."""

    def rows(value: Any, dtype: Any) -> Array:
        array = graph.constant(value)
        assert array is not None
        return np.ascontiguousarray(array[index].astype(dtype))

    tables = graph.constant(op.tables)
    assert tables is not None
    lstm = op if isinstance(op, npu.LSTM) else None
    behind = op.bias_h if isinstance(op, npu.GRU) else None
    peephole, multiplier_c = (None, None) if lstm is None else (lstm.peephole, lstm.multiplier_c)
    projected = lstm if lstm is not None and lstm.projection is not None else None
    return RecurrentParameters(
        cell=op.name.removeprefix("npu."),
        w=rows(op.weight, np.int16),
        r=rows(op.recurrence, np.int16),
        multiplier_x=rows(op.multiplier_x, np.int32),
        multiplier_h=rows(op.multiplier_h, np.int32),
        shift=rows(op.shift, np.int32),
        bias=rows(op.bias, np.int64),
        tables=np.ascontiguousarray(tables),
        out_multiplier=op.parameters[0],
        out_shift=op.parameters[1],
        limit=op.limit,
        bias_h=None if behind is None else rows(behind, np.int64),
        linear_before_reset=isinstance(op, npu.GRU) and op.linear_before_reset,
        cell_bits=0 if lstm is None else lstm.cell_bits,
        coupled=lstm is not None and lstm.coupled,
        peephole=None if peephole is None else rows(peephole, np.int16),
        multiplier_c=None if multiplier_c is None else rows(multiplier_c, np.int32),
        projection=None if projected is None else rows(projected.projection, np.int16),
        multiplier_p=None if projected is None else rows(projected.multiplier_p, np.int32),
        shift_p=None if projected is None else rows(projected.shift_p, np.int32),
    )


def _place(op: Any, value: Any) -> int | None:
    """Which operand of an op a value is."""
    return None if value is None else next(i for i, v in enumerate(op.operands) if v is value)


def _joined(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """The results of all directions as one tensor; the axis of directions stands before batch and hidden."""
    if len(parts) == 1:
        return parts[0].reshape(shape)
    whole = empty(shape, parts[0].dtype)
    for index, part in enumerate(parts):
        copy(whole[..., index, :, :], part)
    return whole
