"""LSTM and GRU through the native core, one call a direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine.handlers import Step, handles
from npuc.engine.handlers.arithmetic import type_of
from npuc.ir import Graph, npu, shape_of
from npuc.ir.dtypes import QuantType
from npuc.kernels.recurrent import RecurrentParameters, run_recurrent
from npuc.kernels.tape import copy, empty


@handles(npu.LSTM, npu.GRU, recordable=True)
def recurrent(op: npu.LSTM | npu.GRU, graph: Graph, threads: int) -> Step:
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
    places = [_place(op, op.initial_h), _place(op, op.initial_c if isinstance(op, npu.LSTM) else None)]
    reverse = op.direction == "reverse"
    shapes = [shape_of(part) for part in op.parts]

    def run(arrays: list[Array]) -> list[Array]:
        directions = []
        for index, layer in enumerate(layers):
            states = [None if place is None else arrays[place][index] for place in places]
            backwards = reverse or index == 1
            directions.append(run_recurrent(arrays[0], layer, *states, reverse=backwards, **options))
        return [_joined([part[i] for part in directions], shape) for i, shape in enumerate(shapes)]

    return run


def direction_parameters(op: npu.LSTM | npu.GRU, graph: Graph, index: int) -> RecurrentParameters:
    """The constants of one direction as the kernel takes them."""

    def rows(value: Any, dtype: Any) -> Array:
        array = graph.constant(value)
        assert array is not None
        return np.ascontiguousarray(array[index].astype(dtype))

    def table(value: Any) -> Array:
        array = graph.constant(value)
        assert array is not None
        return np.ascontiguousarray(array)

    lstm = isinstance(op, npu.LSTM)
    state = (0, 0) if lstm else op.parameters[2:]
    return RecurrentParameters(
        cell="lstm" if lstm else "gru",
        w=rows(op.weight, np.int16),
        r=rows(op.recurrence, np.int16),
        multiplier_x=rows(op.multiplier_x, np.int32),
        multiplier_h=rows(op.multiplier_h, np.int32),
        shift=rows(op.shift, np.int32),
        bias=rows(op.bias, np.int64),
        bias_h=None if isinstance(op, npu.LSTM) or op.bias_h is None else rows(op.bias_h, np.int64),
        cell_bits=op.cell_bits if isinstance(op, npu.LSTM) else 0,
        linear_before_reset=isinstance(op, npu.GRU) and op.linear_before_reset,
        out_multiplier=op.parameters[0],
        out_shift=op.parameters[1],
        state_multiplier=state[0],
        state_shift=state[1],
        sigmoid=table(op.sigmoid),
        tanh=table(op.tanh),
        cell_tanh=table(op.cell_tanh) if isinstance(op, npu.LSTM) else table(op.tanh),
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
