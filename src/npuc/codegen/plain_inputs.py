"""Inputs of plain integers that the network takes as reals: the host makes the network's integers of them in one step.

    %0 = top.cast(%x: ui16) {to = "f32"}
    %1 = npu.quantize(%0)                 →        %1 = npu.quantize(%x: ui16)

A conversion to float32 would be a CPU subgraph, which the C runtime does not have. Every integer of 16 bits is a float32, so that
nothing is rounded before the one rounding of `quantize`. (Inputs that the machine computes with as they are have no such cast.)
"""

from __future__ import annotations

from typing import TypeGuard

from npuc.ir import Graph, dtype_of, npu, top

_EXACT = ("i8", "ui8", "i16", "ui16")
"""Types whose every value is a float32 and that a host conversion reads."""


def with_plain_inputs(graph: Graph) -> Graph:
    """The network with conversions of plain integers in place of casts and conversions of reals."""
    if not any(_is_folded(op, graph) for op in graph.ops):
        return graph
    copy = graph.copy()
    casts: list[top.Cast] = [op for op in copy.ops if _is_folded(op, copy)]
    for cast in casts:
        for use in list(cast.y.uses):
            use.operation.operands[use.index] = cast.x
        copy.block.erase_op(cast)
    return copy


def _is_folded(op: object, graph: Graph) -> TypeGuard[top.Cast]:
    if not isinstance(op, top.Cast) or dtype_of(op.y.type).name != "f32":
        return False
    is_input = any(port.value is op.x for port in graph.inputs) and dtype_of(op.x.type).name in _EXACT
    users = [use.operation for use in op.y.uses]
    is_output = any(port.value is op.y for port in graph.outputs)
    return (
        is_input and not is_output and bool(users) and all(isinstance(user, npu.Quantize) for user in users)
    )
