"""Quantized inputs and outputs become real ones: the conversions at the ends move into the network.

    func @main(%x: 1x4xi8) → 1x4xi8               func @main(%x: 1x4xf32) → 1x4xf32
        %0 = top.dequantize(%x, s, z)                 %q = top.quantize(%x, s, z)
        ...                                 →         %0 = top.dequantize(%q, s, z)
        %y = top.quantize(%1, t, w)                   ...
                                                      %y = top.quantize(%1, t, w)
                                                      %r = top.dequantize(%y, t, w)

The pass changes the interface of the network, so it is not part of the canonical form. Inputs and outputs without a scale stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from npuc.ir.dtypes import dtype_of, shape_of, tensor_type
from npuc.ir.graph import Graph, Port
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import Dequantize, Quantize, WeightOp


@register_pass
@dataclass(frozen=True)
class FloatEnds(Pass):
    """Inputs and outputs as real numbers, where they are quantized."""

    name: ClassVar[str] = "float-ends"

    def run(self, graph: Graph) -> None:
        """Every input that is dequantized, and every output that is quantized."""
        self._inputs(graph)
        outputs = []
        for port in graph.outputs:
            owner, value = port.value.owner, port.value
            if isinstance(owner, Quantize) and shape_of(owner.scale) == ():
                real = Dequantize.make(
                    value, owner.scale, owner.zero_point, axis=0, name=f"{port.name}/real", layer=port.name
                )
                graph.block.insert_op_before(real, graph.terminator)
                value = real.results[0]
            outputs.append((port.name, value))
        graph.set_outputs(outputs)

    def _inputs(self, graph: Graph) -> None:
        ports: list[tuple[str, Any, dict[str, Any] | None]] = []
        quantized: list[tuple[Port, Dequantize, str]] = []
        for port in graph.inputs:
            reader = _reader(port)
            if reader is None:
                ports.append((port.name, port.type, port.preprocess))
                continue
            kind = dtype_of(port.type).name
            quantized.append((port, reader, kind))
            ports.append((port.name, tensor_type(shape_of(port.value), "f32"), port.preprocess))
        graph.set_inputs(ports)
        for port, reader, kind in quantized:
            users = list(port.value.uses)
            first = graph.block.first_op
            assert first is not None
            constants = []
            for operand, word in ((reader.scale, "scale"), (reader.zero_point, "zero_point")):
                array = graph.constant(operand)
                if array is None:  # without a zero point, it is 0
                    continue
                weight = graph.add_weight(f"{port.name}/{word}", array)
                graph.block.insert_op_before(weight, first)
                constants.append(weight.output)
            op = Quantize.make(
                port.value, *constants, axis=0, to=kind, name=f"{port.name}/quantized", layer=port.name
            )
            graph.block.insert_op_before(op, first)
            for use in users:
                use.operation.operands[use.index] = op.results[0]


def _reader(port: Port) -> Dequantize | None:
    """The op that dequantizes an input, if nothing else reads it and it has one scale."""
    readers = [use.operation for use in port.value.uses]
    first = readers[0] if readers else None
    if not isinstance(first, Dequantize) or not all(isinstance(reader, Dequantize) for reader in readers):
        return None
    constant = isinstance(first.scale.owner, WeightOp)
    return first if constant and shape_of(first.scale) == () else None
