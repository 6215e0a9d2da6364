"""Outputs as a compiled model has them: each of a known size, and a tensor of its own that some subgraph makes.

A program may give a constant, an input, or one value under two names; a copy of it then runs on the CPU.
"""

from __future__ import annotations

from npuc.errors import CompileError
from npuc.ir import Graph, Value, layer_name, shape_of, top
from npuc.ir.dtypes import is_ranked, is_static


def check_outputs(graph: Graph) -> None:
    """`CompileError` for an output whose shape is known only when the network has run."""
    for port in graph.outputs:
        check_shape(port.value, f"output '{port.name}'")


def check_shape(value: Value, where: str) -> None:
    """`CompileError` for a tensor between subgraphs, or an output, whose shape is known only when the network has run."""
    if is_static(value):
        return
    shape = (
        " x ".join("?" if size < 0 else str(size) for size in shape_of(value)) if is_ranked(value) else "?"
    )
    owner = value.owner
    foreign = _foreign_maker(value)
    if foreign is not None:
        raise CompileError(
            f"its shape, {shape}, is not known, because the op '{foreign.domain}:{foreign.op_type}' of the layer "
            f"'{layer_name(foreign)}' is not",
            where=where,
            fix="Load the plugin that knows the op (--plugin FILE.py or LIB.so), "
            "or cut the network before it (npuc import --outputs)",
        )
    maker = f" ({owner.op_type} '{layer_name(owner)}')" if isinstance(owner, top.Onnx) else ""
    raise CompileError(
        f"its shape, {shape}, depends on the data{maker}, and a .npu file states the size of every tensor, so that a device "
        "can reserve memory for it",
        where=where,
        fix="Cut the network before that layer (npuc import --outputs) and do the rest in the application; for the boxes of "
        "a detector, --add-postprocess appends a selection of a fixed size instead",
    )


def _foreign_maker(value: Value) -> top.Onnx | None:
    """The op of a domain that is not ONNX's, nearest to the inputs, that a value of no known shape goes back to."""
    foreign, visited, waiting = None, set[Value](), [value]
    while waiting:
        current = waiting.pop()
        if current in visited or is_static(current):
            continue
        visited.add(current)
        owner = current.owner
        if isinstance(owner, top.Onnx):
            foreign = owner if owner.domain not in ("", "ai.onnx") else foreign
            waiting.extend(owner.operands)
    return foreign


def with_own_outputs(graph: Graph) -> tuple[Graph, list[str]]:
    """The graph itself if every output is a value that an op makes for it, or a copy of the graph where that is so; and
    the names of the ops that were added."""
    borrowed = _borrowed(graph)
    if not borrowed:
        return graph, []
    copy = graph.copy()
    ports = [(port.name, port.value) for port in copy.outputs]
    copy.block.erase_op(copy.terminator)
    for index in borrowed:
        name, value = ports[index]
        op = top.Reshape.make(value, shape=shape_of(value), name=name)
        copy.block.add_op(op)
        ports[index] = name, op.y
    copy.set_outputs(ports)
    return copy, [ports[index][0] for index in borrowed]


def _borrowed(graph: Graph) -> list[int]:
    """Which outputs are a constant, an input under another name, or a value that an output before them is."""
    inputs = {port.value: port.name for port in graph.inputs}
    known: set[Value] = set()
    borrowed = []
    for index, port in enumerate(graph.outputs):
        constant = graph.constant(port.value) is not None
        if constant or port.value in known or inputs.get(port.value, port.name) != port.name:
            borrowed.append(index)
        known.add(port.value)
    return borrowed
