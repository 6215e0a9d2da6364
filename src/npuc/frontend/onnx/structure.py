"""Is this a graph at all? Names, order and cycles, checked before anything is imported.

ONNX demands that every tensor has one producer and that nodes come after what they use. Files in the field break the
second rule, so nodes are sorted (stably); a cycle, a duplicate or an undeclared tensor is an error that names the node.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.escape import captured_names
from npuc.frontend.onnx.node import OnnxNode


def uses(node: onnx.NodeProto) -> list[str]:
    """All names that a node reads, those of its subgraphs included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            names += captured_names(graph)
    return names


def _label(node: onnx.NodeProto) -> str:
    return OnnxNode.of(node, 0).label


def sorted_nodes(graph: onnx.GraphProto, outer: Iterable[str] = ()) -> list[onnx.NodeProto]:
    """The nodes in an order in which everything is defined before it is used."""
    outer = set(outer)
    producer: dict[str, int] = {}
    given = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    given |= {i.values.name for i in graph.sparse_initializer}
    for names, what in (
        ([i.name for i in graph.input], "input"),
        ([i.name for i in graph.initializer], "initializer"),
    ):
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidModelError(f"the name '{twice}' is given to more than one {what}")
    nodes = list(graph.node)
    for index, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in producer or name in given:
                raise InvalidModelError(f"{_label(node)}: its output '{name}' is already defined elsewhere")
            producer[name] = index
    known = given | outer
    ordered = True
    defined = set(known)
    reads = [uses(node) for node in nodes]
    for node, names in zip(nodes, reads, strict=True):
        for name in names:
            if name not in defined:
                ordered = False
                if name not in producer:
                    raise InvalidModelError(
                        f"{_label(node)}: its input '{name}' is not defined anywhere in the model"
                    )
        defined.update(node.output)
    if ordered:
        return nodes
    waiting = [len({producer[name] for name in names if name in producer}) for names in reads]
    users: dict[int, set[int]] = {}
    for index, names in enumerate(reads):
        for name in names:
            if name in producer:
                users.setdefault(producer[name], set()).add(index)
    import heapq

    ready = [index for index, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in sorted(users.get(index, ())):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) != len(nodes):
        stuck = next(index for index, count in enumerate(waiting) if count > 0)
        raise InvalidModelError(
            f"{_label(nodes[stuck])}: it is part of a cycle, its inputs depend on its own output"
        )
    return [nodes[index] for index in order]


def cut(
    nodes: list[onnx.NodeProto], inputs: Iterable[str], outputs: Iterable[str], constants: Iterable[str] = ()
) -> tuple[list[onnx.NodeProto], list[str]]:
    """The nodes between `inputs` and `outputs`, and the names that they need from outside."""
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    stop = set(inputs)
    fixed = set(constants)
    keep: set[int] = set()
    needed: dict[str, None] = {}
    stack = list(outputs)
    visited: set[str] = set()
    while stack:
        name = stack.pop()
        if name in visited:
            continue
        visited.add(name)
        if name in stop or name not in producer:
            if name not in fixed:
                needed[name] = None
            continue
        index = producer[name]
        if index not in keep:
            keep.add(index)
            stack.extend(uses(nodes[index]))
    return [node for index, node in enumerate(nodes) if index in keep], list(needed)
