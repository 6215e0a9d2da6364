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
    maker = f" ({owner.op_type} '{layer_name(owner)}')" if isinstance(owner, top.Onnx) else ""
    raise CompileError(
        f"its shape, {shape}, depends on the data{maker}, and a .npu file states the size of every tensor, so that a device "
        "can reserve memory for it",
        where=where,
        fix="Cut the network before that layer (npuc import --outputs) and do the rest in the application; for the boxes of "
        "a detector, --add-postprocess appends a selection of a fixed size instead",
    )


def with_own_outputs(graph: Graph) -> Graph:
    """The graph itself if every output is a value that an op makes for it, or a copy of the graph where that is so."""
    if not _borrowed(graph):
        return graph
    made = graph.copy()
    borrowed = _borrowed(made)
    ports = [(port.name, port.value) for port in made.outputs]
    made.block.erase_op(made.terminator)
    for index in borrowed:
        name, value = ports[index]
        op = top.Reshape.make(value, shape=shape_of(value), name=name)
        made.block.add_op(op)
        ports[index] = name, op.y
    made.set_outputs(ports)
    return made


def _borrowed(graph: Graph) -> list[int]:
    """Which outputs are a constant, an input under another name, or a value that an output before them is."""
    inputs = {port.value: port.name for port in graph.inputs}
    seen: set[Value] = set()
    found = []
    for index, port in enumerate(graph.outputs):
        constant = graph.constant(port.value) is not None
        if constant or port.value in seen or inputs.get(port.value, port.name) != port.name:
            found.append(index)
        seen.add(port.value)
    return found
