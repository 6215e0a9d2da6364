"""LSTM and GRU with ONNX's default activations: docs/arithmetic-recurrent.md.

The outputs and the state that the products read have one type, whose range covers all that was seen of them. The cell
state is i16 with a power of two for a scale: see `cell_type`.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Scales
from npuc.arrays import Array
from npuc.ir import Value, npu, shape_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.kernels.recurrent import (
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

_USUAL: dict[type[TopOp], tuple[str, ...]] = {
    top.LSTM: ("sigmoid", "tanh", "tanh"),
    top.GRU: ("sigmoid", "tanh"),
}
_LEAST_REACH = 8.0
"""A tanh is 1 to 16 bits from there on: a cell has at least this range, if it can reach it at all."""


def result_types(op: Any, context: TypeAssignment) -> list[QuantType | None]:
    """One type for all outputs, and that of the cell."""
    scheme = context.scheme(op)
    known = [context.ends(value, scheme) for value in (*op.results[:2], op.initial_h) if value is not None]
    ends = [pair for pair in known if pair is not None] or [(-1.0, 1.0)]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    hidden = activation_type(low, high, scheme)
    if not isinstance(op, top.LSTM):
        return [hidden, hidden]
    return [hidden, hidden, cell_type(op, context, scheme)]


def cell_type(op: top.LSTM, context: TypeAssignment, scheme: Scheme) -> QuantType:
    """i16 with a scale of 2^-f, f as large as the cell's range allows.

    A step adds at most 1 to a cell, so it cannot leave initial + steps. Where that is much, twice what was seen at the
    start and the end of sequences, and at least 8, serves: beyond, a cell saturates.
    """
    start = _reach(context.ends(op.initial_c, scheme)) if op.initial_c is not None else 0.0
    certain = start + shape_of(op.x)[0]
    likely = max(_LEAST_REACH, 2 * start, 2 * _reach(context.ends(op.results[2], scheme)))
    bits = 15 - ceil(log2(max(min(certain, likely), 1.0)))
    return QuantType.of("i16", 2.0 ** -max(bits, 0), 0)


def _reach(ends: tuple[float, float] | None) -> float:
    return 0.0 if ends is None else max(-ends[0], ends[1])


@lowers(top.LSTM, top.GRU, types=result_types)
def recurrent(op: top.LSTM | top.GRU, context: LoweringContext) -> list[Value]:
    """All directions; weights with a scale a row or one for all."""
    _require_usual(op, context)
    x, h = context.type_of(op.x), context.type_of(op.results[0])
    cell = context.type_of(op.results[2]) if isinstance(op, top.LSTM) else None
    _require_types(op, context, x, h)
    layers = _layers(op, context, x, h, cell)
    reach = [max(t.dtype.limits[1] - t.zero_point, t.zero_point - t.dtype.limits[0]) for t in (x, h)]
    if not all(has_room(layer, *reach) for layer, _, _ in layers):
        raise NoIntegerForm("its sums can leave 62 bits")
    name = value_name(op.results[0])
    first = layers[0][0]

    def stacked(what: str, rows: list[Array]) -> Value:
        return context.weight(f"{name}/{what}", np.stack(rows))

    def table(what: str) -> Value:
        return context.weight(f"{name}/{what}", getattr(first, what))

    operands: list[Value | None] = [
        context.integer(op.x),
        stacked("weight", [w for _, w, _ in layers]),
        stacked("recurrence", [r for _, _, r in layers]),
        *(
            stacked(what, [getattr(layer, what) for layer, _, _ in layers])
            for what in ("multiplier_x", "multiplier_h", "shift", "bias")
        ),
        table("sigmoid"),
        table("tanh"),
        _state(op.initial_h, h, context),
    ]
    lo, hi = output_limits(h, narrow=context.scheme(op).narrow_activations)
    parameters = [first.out_multiplier, first.out_shift]
    properties: dict[str, Any] = {"to": h, "lo": lo, "hi": hi, "direction": op.direction, "loc": op.location}
    if isinstance(op, top.LSTM):
        assert cell is not None
        operands += [table("cell_tanh"), _state(op.initial_c, cell, context)]
        layer_op = context.emit(npu.LSTM, *operands, cell=cell, parameters=parameters, **properties)
    else:
        behind = [layer.bias_h for layer, _, _ in layers if layer.bias_h is not None]
        operands.append(stacked("bias_h", behind) if behind else None)
        parameters += [first.state_multiplier, first.state_shift]
        layer_op = context.emit(
            npu.GRU,
            *operands,
            parameters=parameters,
            linear_before_reset=op.linear_before_reset,
            **properties,
        )
    return list(layer_op.results)


def _layers(
    op: top.LSTM | top.GRU, context: LoweringContext, x: QuantType, h: QuantType, cell: QuantType | None
) -> list[tuple[RecurrentParameters, Array, Array]]:
    """For each direction its integers, and its weights as they are stored."""
    kind, scheme = ("lstm" if isinstance(op, top.LSTM) else "gru"), context.scheme(op)
    if scheme.weight_scales == "affine":  # the kernels have no zero point for the weights of gates
        scheme = replace(scheme, weight="i8", weight_scales=Scales.SYMMETRIC)
    weights, recurrences = (_constant(value, context) for value in (op.weight, op.recurrence))
    rows = weights.shape[1]
    biases = np.zeros((len(weights), 2 * rows)) if op.bias is None else _constant(op.bias, context)
    layers = []
    for w, r, b in zip(weights, recurrences, biases, strict=True):
        w, r, bias_w, bias_r = (from_onnx_order(a, kind) for a in (w, r, b[:rows], b[rows:]))
        integer_w, scale_w = quantize_weight(w, 0, scheme, np.abs(bias_w) + np.abs(bias_r), x.scale)
        integer_r, scale_r = quantize_weight(r, 0, scheme)
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
            )
        except ValueError as error:
            raise NoIntegerForm(str(error)) from error
        layers.append((layer, integer_w, integer_r))
    return layers


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


def _require_usual(op: top.LSTM | top.GRU, context: LoweringContext) -> None:
    """No more than the arithmetic has."""
    if context.scheme(op).wide_table_entries < 513:
        raise NoIntegerForm("its gates need tables of 513 entries")
    usual = _USUAL[type(op)]
    if op.activations and tuple(a.lower() for a in op.activations) != usual * shape_of(op.weight)[0]:
        raise NoIntegerForm("its activations are not sigmoid and tanh")
    if op.clip:
        raise NoIntegerForm("it clips the arguments of its gates")
    if op.sequence_lengths is not None:
        lengths = context.constant(op.sequence_lengths)
        if lengths is None or (lengths != shape_of(op.x)[0]).any():
            raise NoIntegerForm("its sequences have lengths of their own")
    if isinstance(op, top.LSTM):
        if op.input_forget:
            raise NoIntegerForm("its input and forget gates are one")
        peephole = context.constant(op.peephole)
        if op.peephole is not None and (peephole is None or peephole.any()):
            raise NoIntegerForm("it has peepholes")


def _require_types(op: top.LSTM | top.GRU, context: LoweringContext, x: QuantType, h: QuantType) -> None:
    if any(kind.dtype.name == "i16" and kind.zero_point for kind in (x, h)):
        raise NoIntegerForm("its tensors of 16 bits have a zero point")
    expected = [h, h, *([cell_like(context.type_of(op.results[2]))] if isinstance(op, top.LSTM) else [])]
    if [context.type_of(value) for value in op.results] != expected:
        raise NoIntegerForm("the types of its results do not fit together")
    if isinstance(op, top.GRU) and op.initial_h is not None:
        reach = _reach(context.ends(op.initial_h, context.scheme(op)))
        if reach > 1:
            raise NoIntegerForm(f"its initial state reaches {reach:.3g}, and the state has the range 1")


def cell_like(kind: QuantType) -> QuantType:
    """The type of a cell that is nearest to another type."""
    return QuantType.of("i16", 2.0 ** -min(max(round(-log2(kind.scale)), 0), 15), 0)
