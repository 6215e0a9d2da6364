"""Inputs of a prequantized network whose scale nothing in it states: a quantize and a dequantize behind them do.

func @main(%x: 1x3x4x4xf32)            func @main(%x: 1x3x4x4xf32)
    %y = top.conv(%x, ...)      →          %0 = top.quantize(%x) {to = i8}
                                           %1 = top.dequantize(%0)
                                           %y = top.conv(%1, ...)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npuc.errors import UnknownTensorError
from npuc.ir.graph import Graph
from npuc.ir.top import Dequantize, Quantize

_SHIFT = 128
"""Integers are stored signed, as those of the importers are."""


def with_quantized_inputs(graph: Graph, scales: Mapping[str, tuple[float, int]]) -> Graph:
    """The network with 8-bit inputs: real = (q - zero_point) * scale for q of 0 to 255, by the name of the input.

    An input that is quantized at once by the network keeps its own scale.
    """
    changed = graph.copy()
    ports = {port.name: port for port in changed.inputs}
    for name, (scale, zero_point) in scales.items():
        if name not in ports:
            raise UnknownTensorError(f"there is no input '{name}'", fix=f"The inputs are {', '.join(ports)}")
        value = ports[name].value
        users = list(value.uses)
        if users and all(isinstance(use.operation, Quantize) for use in users):
            continue
        steps = changed.add_weight(f"{name}/scale", np.array([scale], np.float32).reshape(()))
        zeros = changed.add_weight(f"{name}/zero_point", np.array(zero_point - _SHIFT, np.int8))
        quantized = Quantize.make(
            value, steps.output, zeros.output, axis=0, to="i8", name=f"{name}/quantized", layer=name
        )
        real = Dequantize.make(
            quantized.y, steps.output, zeros.output, axis=0, name=f"{name}/real", layer=name
        )
        first = changed.block.first_op
        assert first is not None
        for op in (steps, zeros, quantized, real):
            changed.block.insert_op_before(op, first)
        for use in users:
            use.operation.operands[use.index] = real.y
    changed.verify()
    return changed
