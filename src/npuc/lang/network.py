"""From tensors to a graph: what the outputs need, in the order in which it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuc.errors import NetworkError
from npuc.frontend.support import Names
from npuc.ir import Graph, Value, location
from npuc.lang.tensor import NetworkNode, Tensor


def build(outputs: Mapping[str, Tensor]) -> Graph:
    """The network that computes these outputs, by name. Ops without a name are numbered by kind: `conv1`, `conv2`.

    >>> from npuc import lang
    >>> x = lang.input("x", (1, 4))
    >>> print(len(list(build({"y": lang.relu(x) + 1.0}).ops)))
    3
    """
    if not outputs:
        raise NetworkError("a network needs an output", fix="Write build({'scores': y})")
    nodes = _needed(outputs.values())
    inputs = [node for node in nodes if node.kind == "input"]
    if not inputs:
        raise NetworkError("the outputs depend on no input", fix="Start with lang.input(name, shape)")
    names = _names(nodes, outputs)
    graph = Graph.empty(
        [(node.name, _holder(node).block.args[0].type) for node in inputs],
        preprocess={node.name: node.preprocess.to_dict() for node in inputs if node.preprocess is not None},
    )
    known: dict[Value, Value] = {
        _holder(node).block.args[0]: argument for node, argument in zip(inputs, graph.block.args, strict=True)
    }
    for node in nodes:
        if node.kind == "constant":
            assert node.data is not None
            weight = graph.add_weight(names[node][0], node.data)
            graph.block.add_op(weight)
            known[_holder(node).block.args[0]] = weight.output
        elif node.kind == "op":
            copy: Any = node.op.clone(known)
            copy.location = location(names[node], node.name or names[node][0])
            graph.block.add_op(copy)
    graph.set_outputs([(name, known[tensor.value]) for name, tensor in outputs.items()])
    graph.verify()
    return graph


def _holder(node: NetworkNode) -> Graph:
    assert node.holder is not None
    return node.holder


def _needed(outputs: Any) -> list[NetworkNode]:
    needed: set[NetworkNode] = set()
    waiting = [tensor.node for tensor in outputs]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [tensor.node for tensor in node.operands]
    return sorted(needed, key=lambda node: node.order)


def _names(nodes: list[NetworkNode], outputs: Mapping[str, Tensor]) -> dict[NetworkNode, list[str]]:
    """A name for every result; an output that nobody named otherwise is called as the output is."""
    by_output: dict[tuple[NetworkNode, int], str] = {}
    for name, tensor in outputs.items():
        by_output.setdefault((tensor.node, tensor.index), name)
    given: dict[str, NetworkNode] = {}
    for node in nodes:
        if node.name and given.setdefault(node.name, node) is not node:
            raise NetworkError(
                f"two {node.kind}s are called '{node.name}'", fix="Give each a name of its own"
            )
    free = Names()
    for name in given:
        free.unique(name)
    counts: dict[str, int] = {}
    names: dict[NetworkNode, list[str]] = {}
    for node in nodes:
        number = len(node.op.results) if node.kind == "op" else 1
        base = node.name
        if not base and number == 1 and (node, 0) in by_output and by_output[node, 0] not in given:
            base = free.unique(by_output[node, 0])
        if not base:
            kind = node.op.name.removeprefix("top.") if node.kind == "op" else node.kind
            while not base or base in given:
                counts[kind] = counts.get(kind, 0) + 1
                base = f"{kind}{counts[kind]}"
        names[node] = [base] if number == 1 else [f"{base}.{index}" for index in range(number)]
    return names
