"""State that a network carries from one run to the next: inputs that take what an output gave in the run before.

A streaming network (a wake word, a voice detector) is given its sequence a chunk at a time and returns its state, which the next
chunk goes on from. `set_states` pairs such inputs and outputs by name; the pairs travel in the text of a program and in a
compiled model, and a runtime keeps the tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.ir.dtypes import dtype_of, quant_of, shape_of
from npuc.ir.graph import Graph, Port, Value
from npuc.ir.top.movement import Concat, Permute, Reshape, Slice, Split

_MOVES = (Concat, Permute, Reshape, Slice, Split)


def parse_states(texts: list[str]) -> dict[str, str]:
    """`INPUT=OUTPUT`, each input and each output once.

    >>> parse_states(["h=h_out", "c=c_out"])
    {'h': 'h_out', 'c': 'c_out'}
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, output = text.rpartition("=")
        if not separator or not name or not output:
            raise UsageError(f"'{text}' is no state", fix="Write --state INPUT=OUTPUT")
        if name in pairs or output in pairs.values():
            raise UsageError(f"--state '{text}': the input or the output is in another state already")
        pairs[name] = output
    return pairs


def set_states(graph: Graph, pairs: Mapping[str, str]) -> None:
    """Pair inputs with outputs; `UsageError` for names that are none and for types that differ."""
    inputs, outputs = ({port.name: port for port in ports} for ports in (graph.inputs, graph.outputs))
    for name, output in pairs.items():
        for what, known, given in (("input", inputs, name), ("output", outputs, output)):
            if given not in known:
                raise UsageError(f"there is no {what} '{given}'", fix=f"There are: {', '.join(known)}")
        if inputs[name].type != outputs[output].type:
            raise UsageError(
                f"the state '{name}' is {inputs[name].type}, and '{output}', which it is to be in the next run, is "
                f"{outputs[output].type}",
                fix="A state has the same shape and type at both ends",
            )
    graph.states = pairs


def data_inputs(graph: Graph) -> list[Port]:
    """The inputs that data is for: all that are no states."""
    return [port for port in graph.inputs if port.name not in graph.states]


def initial_states(graph: Graph) -> dict[str, Array]:
    """What the first run of a stream begins with, by the names of inputs: zeros."""
    begin: dict[str, Array] = {}
    for port in graph.inputs:
        if port.name in graph.states:
            kind = quant_of(port.value)
            zero = 0 if kind is None else kind.zero_point
            begin[port.name] = np.full(shape_of(port.value), zero, dtype_of(port.type).numpy)
    return begin


def moves_of_states(graph: Graph) -> list[Any]:
    """The ops that only move the elements of a state: from its input to what computes with it, and to its output.

    If they stay float, a state is quantized just where it is computed with: what a layer gives in one run and takes in the next
    has one type, and nothing is lost between the two.
    """
    inputs = {port.name: port.value for port in graph.inputs}
    outputs = {port.name: port.value for port in graph.outputs}
    moves: dict[Any, None] = {}
    for name, output in graph.states.items():
        if name in inputs and output in outputs:
            moves |= dict.fromkeys([*_from(inputs[name]), *_to(outputs[output])])
    return [op for op in graph.ops if op in moves]


def is_carried(graph: Graph, value: Value) -> bool:
    """Whether a value is a state that comes from the run before, or a part of one."""
    if isinstance(value.owner, _MOVES):
        return any(is_carried(graph, operand) for operand in value.owner.operands)
    return any(port.value is value and port.name in graph.states for port in graph.inputs)


def _from(value: Value) -> Iterator[Any]:
    """The ops that only move a value, and what they make of it."""
    for use in value.uses:
        op = use.operation
        if isinstance(op, _MOVES) and not isinstance(op, Concat):
            yield op
            for result in op.results:
                yield from _from(result)


def _to(value: Value) -> Iterator[Any]:
    """The ops that only move what a value is made of."""
    if isinstance(value.owner, _MOVES):
        yield value.owner
        for operand in value.owner.operands:
            yield from _to(operand)
