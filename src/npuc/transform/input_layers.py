"""Ops right behind inputs: the network takes tensors of other types, and the ops make of them what it took before.

func @main(%x: 1x3x4x4xf32)            func @main(%x: 1x24xui8)
    %y = top.conv(%x, ...)      →          %0 = ...                  # what `make` gives for %x
                                           %y = top.conv(%0, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npuc.errors import UnknownTensorError
from npuc.ir import Value
from npuc.ir.graph import Graph

Make = Callable[[Graph, Sequence[Value], Callable[[Any], Any]], Sequence[Value]]
"""From the network and the values of the inputs to the values that take their places; the last argument inserts an op."""


def with_input_layer(graph: Graph, types: Mapping[str, Any], make: Make) -> Graph:
    """The network with other types at the inputs named, without their preprocessing, and the ops of `make` behind them."""
    changed = graph.copy()
    ports = {port.name: port for port in changed.inputs}
    for name in types:
        if name not in ports:
            raise UnknownTensorError(f"there is no input '{name}'", fix=f"The inputs are {', '.join(ports)}")
    users = {name: list(ports[name].value.uses) for name in types}
    changed.set_inputs(
        [
            (name, types[name], None) if name in types else (name, port.type, port.preprocess)
            for name, port in ports.items()
        ]
    )
    first = changed.block.first_op
    assert first is not None

    def emit(op: Any) -> Any:
        changed.block.insert_op_before(op, first)
        return op

    values = make(changed, [ports[name].value for name in types], emit)
    for name, value in zip(types, values, strict=True):
        for use in users[name]:
            use.operation.operands[use.index] = value
    changed.verify()
    return changed
