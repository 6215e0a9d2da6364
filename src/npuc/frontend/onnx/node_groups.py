"""Groups of nodes of an ONNX graph: all between some and others, and those that have the form of a small graph.

    nodes_between(nodes, ["Conv0", "Pool0"], ["Concat0"])            # every node on a path from these to those

    nodes_like(nodes, {"a": "Conv", "b": "Relu"}, [Edge("a", "b")])  # every Conv that a Relu reads, with that Relu

`npuc.frontend.onnx.subgraphs` puts one node in the place of a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import NodeProto

from npuc.frontend.onnx.structure import uses


@dataclass(frozen=True)
class Edge:
    """One node reads another: which result of it, and as which operand; None is any."""

    source: str
    reader: str
    result: int | None = None
    operand: int | None = None

    def holds(self, source: NodeProto, reader: NodeProto) -> bool:
        """True if one node reads the other so.

        >>> from onnx import helper
        >>> first, second = helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Add", ["x", "y"], ["z"])
        >>> Edge("a", "b", operand=1).holds(first, second), Edge("a", "b", operand=0).holds(first, second)
        (True, False)
        """
        return any(
            name and name == read
            for index, name in enumerate(source.output)
            if self.result in (None, index)
            for place, read in enumerate(reader.input)
            if self.operand in (None, place)
        )


def nodes_between(nodes: Sequence[NodeProto], first: Iterable[str], last: Iterable[str]) -> list[NodeProto]:
    """Every node on a path from a node of `first` to one of `last`, by their names; empty if one of those is not there."""
    starts, ends = set(first), set(last)
    if not starts | ends <= {node.name for node in nodes}:
        return []
    reached: set[str] = set()
    ahead: set[int] = set()
    for node in nodes:
        if node.name in starts or not reached.isdisjoint(uses(node)):
            ahead.add(id(node))
            reached.update(node.output)
    needed: set[str] = set()
    behind: set[int] = set()
    for node in reversed(nodes):
        if node.name in ends or not needed.isdisjoint(node.output):
            behind.add(id(node))
            needed.update(uses(node))
    return [node for node in nodes if id(node) in ahead and id(node) in behind]


def nodes_like(
    nodes: Sequence[NodeProto], kinds: Mapping[str, str], edges: Sequence[Edge]
) -> list[dict[str, NodeProto]]:
    """Groups of nodes by the names of a form: the operator of each name, and who reads whom. A node is in one group only."""
    grouped: set[int] = set()
    groups = []
    for match in _matches(nodes, kinds, edges):
        if grouped.isdisjoint(map(id, match.values())):
            grouped.update(map(id, match.values()))
            groups.append(match)
    return groups


def _matches(
    nodes: Sequence[NodeProto], kinds: Mapping[str, str], edges: Sequence[Edge]
) -> Iterator[dict[str, NodeProto]]:
    order = _connected(list(kinds), edges)
    producer = {name: node for node in nodes for name in node.output if name}
    readers: dict[str, list[NodeProto]] = {}
    for node in nodes:
        for name in set(filter(None, node.input)):
            readers.setdefault(name, []).append(node)

    def extend(match: dict[str, NodeProto]) -> Iterator[dict[str, NodeProto]]:
        if len(match) == len(order):
            yield match
            return
        name = order[len(match)]
        joins = [edge for edge in edges if name in (edge.source, edge.reader)]
        joins = [edge for edge in joins if {edge.source, edge.reader} <= {name, *match}]
        near: Iterable[NodeProto] = nodes
        if joins:
            edge = joins[0]
            if edge.reader == name:
                near = [node for out in match[edge.source].output for node in readers.get(out, [])]
            else:
                near = [producer[read] for read in match[edge.reader].input if read in producer]
        for node in near:
            known = {**match, name: node}
            if (
                node.op_type == kinds[name]
                and all(node is not other for other in match.values())
                and all(each.holds(known[each.source], known[each.reader]) for each in joins)
            ):
                yield from extend(known)

    return extend({})


def _connected(names: list[str], edges: Sequence[Edge]) -> list[str]:
    """The names so that each has an edge to one before it, where there is any."""
    order = names[:1]
    while len(order) < len(names):
        joined = {
            name for edge in edges for name in (edge.source, edge.reader)
            if {edge.source, edge.reader} & set(order)
        }  # fmt: skip
        rest = [name for name in names if name not in order]
        order.append(next((name for name in rest if name in joined), rest[0]))
    return order


__all__ = ["Edge", "nodes_between", "nodes_like"]
