"""The integers of a `top.quantized_lstm`, as its kernel, its instruction and its form in ONNX take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

    def constant(value: Any) -> Array:
        array = graph.constant(value)
        if array is None:
            raise InvalidModelError(f"the weights of layer '{shown_name(op)}' are no constants")
        return array

    peephole, norm, projection = None, None, None
    if op.peephole is not None:
        scales = tuple(Multiplier(*by) for by in _groups(op.peephole_scales, 2))
        peephole = PeepholeParameters(constant(op.peephole), scales)
    if op.norm_weight is not None:
        norms = _groups(op.norm_scales, 3)
        norm = NormParameters(
            constant(op.norm_weight),
            constant(op.norm_bias),
            tuple(Multiplier(*by[:2]) for by in norms),
            tuple(by[2] for by in norms),
        )
    if op.projection is not None:
        multiplier, shift, zero_point, clip = op.projection_scale
        projection = ProjectionParameters(
            constant(op.projection),
            constant(op.projection_bias),
            Multiplier(multiplier, shift),
            zero_point,
            clip,
        )
    gates = _groups(op.gate_scales, 4)
    bias = constant(op.bias)
    return QuantizedLstm(
        weight=constant(op.weight),
        recurrence=constant(op.recurrence),
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
