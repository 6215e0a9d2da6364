"""The integers of a `top.quantized_lstm`, as its kernel, its instruction and its form in ONNX take them."""

from __future__ import annotations

from collections.abc import Sequence

from npuc.arithmetic.quantized_lstm import (
    Multiplier,
    NormParameters,
    PeepholeParameters,
    ProjectionParameters,
    QuantizedLstm,
)
from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.ir import top
from npuc.ir.graph import Graph
from npuc.ir.names import shown_name


def lstm_parameters(op: top.QuantizedLSTM, graph: Graph) -> QuantizedLstm:
    """What a layer computes with."""
    constants: list[Array | None] = []
    for value in op.constants:
        array = None if value is None else graph.constant(value)
        if value is not None and array is None:
            raise InvalidModelError(f"the weights of layer '{shown_name(op)}' are no constants")
        constants.append(array)
    return lstm_of(op, constants)


def lstm_of(op: top.QuantizedLSTM, constants: Sequence[Array | None]) -> QuantizedLstm:
    """What a layer computes with, from its constants in the order of `op.constants`."""
    weight, recurrence, bias, peephole_weight, norm_weight, norm_bias, projected, projected_bias = constants
    assert weight is not None and recurrence is not None and bias is not None
    peephole, norm, projection = None, None, None
    if peephole_weight is not None:
        scales = tuple(Multiplier(*by) for by in _groups(op.peephole_scales, 2))
        peephole = PeepholeParameters(peephole_weight, scales)
    if norm_weight is not None and norm_bias is not None:
        norms = _groups(op.norm_scales, 3)
        norm = NormParameters(
            norm_weight,
            norm_bias,
            tuple(Multiplier(*by[:2]) for by in norms),
            tuple(by[2] for by in norms),
        )
    if projected is not None and projected_bias is not None:
        multiplier, shift, zero_point, clip = op.projection_scale
        projection = ProjectionParameters(
            projected,
            projected_bias,
            Multiplier(multiplier, shift),
            zero_point,
            clip,
        )
    gates = _groups(op.gate_scales, 4)
    return QuantizedLstm(
        weight=weight,
        recurrence=recurrence,
        bias_x=bias[0],
        bias_h=bias[1],
        scales_x=tuple(Multiplier(*by[:2]) for by in gates),
        scales_h=tuple(Multiplier(*by[2:]) for by in gates),
        integer_bits=op.integer_bits,
        cell_clip=op.cell_clip,
        first_h=op.first_h,
        hidden=Multiplier(*op.hidden_scale[:2]),
        hidden_zero_point=op.hidden_scale[2],
        peephole=peephole,
        norm=norm,
        projection=projection,
    )


def _groups(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]
