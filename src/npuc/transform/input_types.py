"""Inputs that take plain integers: the network gets the numbers as they are, and casts them to the float that it had.

    func @main(%x: 1x3x4x4xf32)            func @main(%x: 1x3x4x4xui8)
        %y = top.conv(%x, ...)      →          %0 = top.cast(%x) {to = f32}
                                               %y = top.conv(%0, ...)

A compiled program then takes such integers: the host converts them once, or not at all (`npuc.codegen.plain_inputs`).
"""

from __future__ import annotations

from collections.abc import Mapping

from npuc.errors import UnknownTensorError, UnsupportedTypeError
from npuc.ir.dtypes import dtype_of, shape_of, tensor_type
from npuc.ir.graph import Graph
from npuc.ir.top import Cast

PLAIN_TYPES = ("i8", "ui8", "i16", "ui16")
"""Types whose every value is a float32."""


def with_input_types(graph: Graph, types: Mapping[str, str]) -> Graph:
    """The network with plain integers at some of its float inputs: the type by the name of the input."""
    changed = graph.copy()
    ports = {port.name: port for port in changed.inputs}
    for name, kind in types.items():
        if name not in ports:
            raise UnknownTensorError(f"there is no input '{name}'", fix=f"The inputs are {', '.join(ports)}")
        if kind not in PLAIN_TYPES or not dtype_of(ports[name].type).is_float:
            raise UnsupportedTypeError(
                f"input '{name}' of {dtype_of(ports[name].type).name} cannot take {kind}",
                fix=f"A float input takes one of {', '.join(PLAIN_TYPES)}",
            )
    floats = {name: dtype_of(ports[name].type).name for name in types}
    changed.set_inputs(
        [
            (
                port.name,
                tensor_type(shape_of(port.value), types[port.name]) if port.name in types else port.type,
                port.preprocess,
            )
            for port in changed.inputs
        ]
    )
    for port in changed.inputs:
        if port.name not in types:
            continue
        users = list(port.value.uses)
        op = Cast.make(port.value, to=floats[port.name], name=f"{port.name}/real", layer=port.name)
        first = changed.block.first_op
        assert first is not None
        changed.block.insert_op_before(op, first)
        for use in users:
            use.operation.operands[use.index] = op.y
    changed.verify()
    return changed
