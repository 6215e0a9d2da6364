"""LSTM, GRU and simple recurrent layers: docs/arithmetic-recurrent.md.

The outputs and the state that the products read have one type, whose range covers all that was seen of them. The cell
state is i16 with a power of two for a scale: see `cell_type`. The last state of a GRU that is an output of the network is
the i16 state that it computes with, so that a sequence can go on from it with no bit lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf, log2
from typing import Any

import numpy as np

from npuc.arithmetic.functions import sigmoid
from npuc.arithmetic.kinds import Kind, Scales
from npuc.arrays import Array
from npuc.ir import Value, npu, shape_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.ir.npu.recurrent import STATE
from npuc.ir.states import is_carried
from npuc.kernels.recurrent import (
    GATE_SCALE,
    UNIT_SCALE,
    Function,
    RecurrentParameters,
    from_onnx_order,
    has_room,
    recurrent_parameters,
)
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.parameters import activation_type, output_limits, quantize_weight
from npuc.quant.scheme import Scheme
from npuc.quant.type_assignment import TypeAssignment

RecurrentOp = top.LSTM | top.GRU | top.RNN

_CELLS: dict[type[TopOp], str] = {top.LSTM: "lstm", top.GRU: "gru", top.RNN: "rnn"}
_FUNCTIONS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}
"""ONNX's own activations of gates, new values and cells."""
_WITH_ALPHA = ("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu")
"""Activations that take the next of `activation_alpha`."""
_WITH_BETA = ("affine", "hardsigmoid", "scaledtanh")
_MOVES = (top.Reshape, top.Permute, top.Slice, top.Split, top.Concat)
_LEAST_REACH = 8.0
"""A tanh is 1 to 16 bits from there on: a cell has at least this range, if it can reach it at all."""


def result_types(op: Any, context: TypeAssignment) -> list[QuantType | None]:
    """One type for all outputs, and that of the cell or of the state of a GRU."""
    scheme = context.scheme(op)
    known = [context.ends(value, scheme) for value in (*op.results[:2], op.initial_h) if value is not None]
    ends = [pair for pair in known if pair is not None] or [(-1.0, 1.0)]
    bounded = not isinstance(op, top.RNN) and not (isinstance(op, top.LSTM) and op.projection is not None)
    if bounded and op.initial_h is not None and is_carried(context.source, op.initial_h):
        ends.append((-1.0, 1.0))  # a run of many chunks comes further than one
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    hidden = activation_type(low, high, scheme)
    if isinstance(op, top.LSTM):
        return [hidden, hidden, cell_type(op, context, scheme)]
    if isinstance(op, top.GRU) and _is_state(op.results[1], context):
        return [hidden, STATE]
    return [hidden, hidden]


def _is_state(value: Value, context: TypeAssignment) -> bool:
    """Whether a value is an output of the network, or a part of one, and nothing computes with it."""
    readers = [use.operation for use in value.uses if use.operation.results]
    if not all(isinstance(reader, _MOVES) for reader in readers):
        return False
    if readers:
        return all(_is_state(moved, context) for reader in readers for moved in reader.results)
    return any(port.value is value for port in context.source.outputs)


def cell_type(op: top.LSTM, context: TypeAssignment, scheme: Scheme) -> QuantType:
    """i16 with a scale of 2^-f, f as large as the cell's range allows.

    A step adds at most 1 to a cell, so it cannot leave initial + steps. Where that is much, or the state goes on in the next
    run, twice what was seen at the start and the end of sequences, and at least 8, serves: beyond, a cell saturates.
    """
    start = _reach(context.ends(op.initial_c, scheme)) if op.initial_c is not None else 0.0
    certain = start + shape_of(op.x)[0]
    if op.initial_c is not None and is_carried(context.source, op.initial_c):
        certain = inf
    likely = max(_LEAST_REACH, 2 * start, 2 * _reach(context.ends(op.results[2], scheme)))
    bits = 15 - ceil(log2(max(min(certain, likely), 1.0)))
    return QuantType.of("i16", 2.0 ** -max(bits, 0), 0)


def _reach(ends: tuple[float, float] | None) -> float:
    return 0.0 if ends is None else max(-ends[0], ends[1])


@lowers(top.LSTM, top.GRU, top.RNN, types=result_types)
def recurrent(op: RecurrentOp, context: LoweringContext) -> list[Value]:
    """All directions; weights with a scale a row or one for all."""
    _require_usual(op, context)
    x, h = context.type_of(op.x), context.type_of(op.results[0])
    cell = context.type_of(op.results[2]) if isinstance(op, top.LSTM) else None
    _require_types(op, context, x, h)
    layers = _layers(op, context, x, h, cell)
    reach = [max(t.dtype.limits[1] - t.zero_point, t.zero_point - t.dtype.limits[0]) for t in (x, h)]
    if not all(has_room(layer, *reach) for layer, *_ in layers):
        raise NoIntegerForm("its sums can leave 62 bits")
    name = value_name(op.results[0])
    first = layers[0][0]

    def stacked(what: str, rows: Sequence[Array | None]) -> Value | None:
        present = [array for array in rows if array is not None]
        return context.weight(f"{name}/{what}", np.stack(present)) if present else None

    def of_layers(what: str) -> Value | None:
        return stacked(what, [getattr(layer, what) for layer, *_ in layers])

    initial = STATE if isinstance(op, top.GRU) else h
    operands: list[Value | None] = [
        context.integer(op.x),
        stacked("weight", [w for _, w, _, _ in layers]),
        stacked("recurrence", [r for _, _, r, _ in layers]),
        *(of_layers(what) for what in ("multiplier_x", "multiplier_h", "shift", "bias")),
        context.weight(f"{name}/tables", first.tables),
        _state(op.initial_h, initial, context),
    ]
    lo, hi = output_limits(h, narrow=context.scheme(op).narrow_activations)
    properties: dict[str, Any] = {
        "to": h,
        "lo": lo,
        "hi": hi,
        "direction": op.direction,
        "limit": first.limit,
        "parameters": [first.out_multiplier, first.out_shift],
        "loc": op.location,
    }
    if isinstance(op, top.LSTM):
        assert cell is not None
        operands += [_state(op.initial_c, cell, context), of_layers("peephole"), of_layers("multiplier_c")]
        operands += [stacked("projection", [p for _, _, _, p in layers])]
        operands += [of_layers("multiplier_p"), of_layers("shift_p")]
        layer_op = context.emit(npu.LSTM, *operands, cell=cell, coupled=first.coupled, **properties)
    elif isinstance(op, top.GRU):
        layer_op = context.emit(
            npu.GRU,
            *operands,
            of_layers("bias_h"),
            linear_before_reset=op.linear_before_reset,
            state=context.type_of(op.results[1]),
            **properties,
        )
    else:
        layer_op = context.emit(npu.RNN, *operands, **properties)
    return list(layer_op.results)


def _layers(
    op: RecurrentOp, context: LoweringContext, x: QuantType, h: QuantType, cell: QuantType | None
) -> list[tuple[RecurrentParameters, Array, Array, Array | None]]:
    """For each direction its integers, and its weights as they are stored; the last are those of a projection."""
    kind, scheme = _CELLS[type(op)], context.scheme(op)
    if scheme.weight_scales == "affine":  # the kernels have no zero point for the weights of gates
        scheme = replace(scheme, weight="i8", weight_scales=Scales.SYMMETRIC)
    weights, recurrences = (_constant(value, context) for value in (op.weight, op.recurrence))
    rows = weights.shape[1]
    biases = np.zeros((len(weights), 2 * rows)) if op.bias is None else _constant(op.bias, context)
    functions, gate_scale, unit_scale = _functions(op, h)
    peepholes: list[Array | None] = [None] * len(weights)
    if isinstance(op, top.LSTM) and op.peephole is not None:
        real = _constant(op.peephole, context)
        if real.any():
            peepholes = [_peephole(array) for array in real]
    projections: list[Array | None] = [None] * len(weights)
    if isinstance(op, top.LSTM) and op.projection is not None:
        projections = list(_constant(op.projection, context))
    layers = []
    for w, r, b, peephole, projection in zip(
        weights, recurrences, biases, peepholes, projections, strict=True
    ):
        w, r, bias_w, bias_r = (from_onnx_order(a, kind) for a in (w, r, b[:rows], b[rows:]))
        integer_w, scale_w = quantize_weight(w, 0, scheme, np.abs(bias_w) + np.abs(bias_r), x.scale)
        integer_r, scale_r = quantize_weight(r, 0, scheme)
        integer_p, scale_p = (None, 1.0) if projection is None else quantize_weight(projection, 0, scheme)
        try:
            layer = recurrent_parameters(
                kind,
                integer_w.astype(np.int16),
                integer_r.astype(np.int16),
                scale_w=scale_w,
                scale_r=scale_r,
                bias_w=bias_w,
                bias_r=bias_r,
                scale_x=x.scale,
                scale_h=h.scale,
                cell_bits=0 if cell is None else round(-log2(cell.scale)),
                linear_before_reset=isinstance(op, top.GRU) and op.linear_before_reset,
                coupled=isinstance(op, top.LSTM) and op.input_forget,
                peephole=peephole,
                projection=None if integer_p is None else integer_p.astype(np.int16),
                scale_p=scale_p,
                clip=op.clip,
                functions=functions,
                gate_scale=gate_scale,
                unit_scale=unit_scale,
            )
        except ValueError as error:
            raise NoIntegerForm(str(error)) from error
        layers.append((layer, integer_w, integer_r, integer_p))
    return layers


def _peephole(rows: Array) -> Array:
    """ONNX's order, input, output, forget, in the kernel's: input, forget, output."""
    i, o, f = np.split(rows, 3)
    return np.concatenate([i, f, o])


def _functions(op: RecurrentOp, h: QuantType) -> tuple[list[Function], float, float]:
    """The functions of gates, new values and cells, and the scales of their arguments and results."""
    cell = _CELLS[type(op)]
    usual = _FUNCTIONS[cell]
    names = [name.lower() for name in op.activations] or list(usual)
    alphas, betas = list(op.activation_alpha), list(op.activation_beta)
    functions: list[tuple[str, float, float]] = []
    for name in names:
        alpha = alphas.pop(0) if name in _WITH_ALPHA and alphas else 0.2
        beta = betas.pop(0) if name in _WITH_BETA and betas else 0.5
        functions.append((name, alpha, beta) if name == "hardsigmoid" else (name, 0.0, 0.0))
    count = len(usual)
    if any(functions[i] != functions[i % count] for i in range(len(functions))):
        raise NoIntegerForm("its directions have different activations")
    if cell == "rnn" and functions[0][0] == "relu":
        # The knee of the table is exact, and what is above the range saturates.
        most = h.dtype.limits[1] - h.zero_point
        scale = h.scale * max(most, 1) / 32767
        return [lambda v: np.maximum(v, 0.0)], scale, scale
    known = [_bounded(*function) for function in functions[:count]]
    if None in known:
        raise NoIntegerForm("its activations are not sigmoid, tanh, hard sigmoid or softsign")
    return [function for function in known if function is not None], GATE_SCALE, UNIT_SCALE


def _bounded(name: str, alpha: float, beta: float) -> Function | None:
    """A function whose results are within [-1, 1]."""
    match name:
        case "sigmoid":
            return sigmoid
        case "tanh":
            return np.tanh
        case "hardsigmoid":
            return lambda v: np.clip(alpha * v + beta, 0.0, 1.0)
        case "softsign":
            return lambda v: v / (1 + np.abs(v))
    return None


def _constant(value: Value, context: LoweringContext) -> Array:
    array = context.constant(value)
    if array is None:
        raise NoIntegerForm("its weights are computed at run time")
    if not np.isfinite(array).all():
        raise NoIntegerForm("its weights are not all finite")
    return array.astype(np.float64)


def _state(value: Value | None, to: QuantType, context: LoweringContext) -> Value | None:
    """An initial state in the type of the states; zero is none."""
    if value is None:
        return None
    array = context.constant(value)
    return None if array is not None and not array.any() else context.integer(value, to)


def _require_usual(op: RecurrentOp, context: LoweringContext) -> None:
    """No more than the arithmetic has."""
    if context.scheme(op).wide_table_entries < 513:
        raise NoIntegerForm("its gates need tables of 513 entries")
    if op.sequence_lengths is not None:
        lengths = context.constant(op.sequence_lengths)
        if lengths is None or (lengths != shape_of(op.x)[0]).any():
            raise NoIntegerForm("its sequences have lengths of their own")


def _require_types(op: RecurrentOp, context: LoweringContext, x: QuantType, h: QuantType) -> None:
    if any(kind.dtype.name == "i16" and kind.zero_point for kind in (x, h)):
        raise NoIntegerForm("its tensors of 16 bits have a zero point")
    types = [context.type_of(value) for value in op.results]
    if isinstance(op, top.LSTM):
        expected = [h, h, cell_like(types[2])]
    else:
        expected = [h, STATE if isinstance(op, top.GRU) and types[1] == STATE else h]
    if types != expected:
        raise NoIntegerForm("the types of its results do not fit together")
    if isinstance(op, top.GRU) and op.initial_h is not None:
        reach = _reach(context.ends(op.initial_h, context.scheme(op)))
        if reach > 1:
            raise NoIntegerForm(f"its initial state reaches {reach:.3g}, and the state has the range 1")


def cell_like(kind: QuantType) -> QuantType:
    """The type of a cell that is nearest to another type."""
    return QuantType.of("i16", 2.0 ** -min(max(round(-log2(kind.scale)), 0), 15), 0)


@lowers(top.QuantizedLSTM, types=lambda op, context: [op.y_type])
def quantized_lstm(op: top.QuantizedLSTM, context: LoweringContext) -> Value:
    """The same op on the integers that it has inside."""
    if context.scheme(op).requant is not Kind.DOUBLE_ROUNDING:
        raise NoIntegerForm("its roundings are TFLite's, which the layer is not quantized with")
    types = [context.type_of(value) for value in (op.x, op.y)]
    if types != [op.x_type, op.y_type]:
        raise NoIntegerForm("its integers are TFLite's, and the target has other types")
    constants = [None if value is None else context.real(value) for value in op.constants]
    properties = {key: op.properties[key] for key in op.CONVERTERS if key in op.properties}
    integers = context.integer(op.x)
    y: Value = context.emit(top.QuantizedLSTM, integers, *constants, loc=op.location, **properties).y
    return y
