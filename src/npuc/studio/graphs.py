"""A model of any form as nodes, edges and scopes: what the page draws.

Scopes come from the names of layers, cut at `/` (ONNX, Keras, TensorFlow) or, where no name has one, at `.` (PyTorch). A scope
with more members than a screen takes in is divided into blocks of neighbours, so that a graph of ten thousand layers opens as
fast as one of a hundred. For instance:

    features/0/conv                  features
    features/0/norm                    0: conv, norm
    features/1/conv        →           1: conv
    classifier                       classifier
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_MEMBERS = 120
"""Members of a scope that are drawn side by side; of more, neighbours form blocks."""
_BLOCK = 50
_DEEPEST = 12
LONGEST_TEXT = 400
"""Characters of an attribute that are shown."""


@dataclass
class GraphNode:
    """A layer, an input or an output."""

    name: str
    kind: str
    type: str
    """Of its first result, such as 1x64x56x56xi8."""
    tensors: tuple[str, ...] = ()
    """The names of its results."""
    device: str = ""
    """`npu`, `cpu`, `convert`, `input` or `output`; empty where a form has no devices."""
    bits: int = 0
    """Of an element of its first result."""
    macs: int = 0
    parameters: int = 0
    subgraph: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    scope: int = 0


@dataclass
class Scope:
    """A group of nodes and scopes that the page can fold."""

    name: str
    parent: int
    """By number; -1 for the whole graph, which is number 0."""


@dataclass
class StudioGraph:
    """Nodes in the order in which they run."""

    form: str
    """`original`, `float`, `integer` or `compiled`."""
    nodes: list[GraphNode] = field(default_factory=list)
    edges: list[tuple[int, int, str]] = field(default_factory=list)
    """From, to, and the type of the tensor between them."""
    scopes: list[Scope] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain values, without what is empty: ten thousand nodes have many empty fields."""
        return {
            "form": self.form,
            "nodes": [
                {key: value for key, value in vars(node).items() if value or key == "scope"}
                for node in self.nodes
            ],
            "edges": self.edges,
            "scopes": [vars(scope) for scope in self.scopes],
        }


def scope_of(name: str, separator: str) -> tuple[str, ...]:
    """The scopes that a layer is in, from the outermost.

    >>> scope_of("/features/3/conv/Conv", "/")
    ('features', '3', 'conv')
    """
    return tuple(part for part in name.split(separator)[:-1] if part)[:_DEEPEST]


def put_in_scopes(drawn: StudioGraph) -> None:
    """Give each node its scope; scopes are numbered in the order in which they begin."""
    inner = [node for node in drawn.nodes if node.device not in ("input", "output")]
    separator = "/" if any("/" in node.name for node in inner) else "."
    drawn.scopes = [Scope("", -1)]
    numbers: dict[tuple[int, str], int] = {}
    for node in inner:
        at = 0
        for part in scope_of(node.name, separator):
            key = at, part
            if key not in numbers:
                numbers[key] = len(drawn.scopes)
                drawn.scopes.append(Scope(part, at))
            at = numbers[key]
        node.scope = at
    _dissolve_lone_scopes(drawn)
    _divide_large_scopes(drawn)


def _dissolve_lone_scopes(drawn: StudioGraph) -> None:
    """A scope with one member groups nothing: the member moves up, and a nested scope takes the name along."""
    members = [0] * len(drawn.scopes)
    for node in drawn.nodes:
        members[node.scope] += 1
    for scope in drawn.scopes[1:]:
        members[scope.parent] += 1
    for scope in drawn.scopes[1:]:
        while scope.parent > 0 and members[scope.parent] == 1:
            above = drawn.scopes[scope.parent]
            scope.name, scope.parent = f"{above.name}/{scope.name}", above.parent
    for node in drawn.nodes:
        while node.scope > 0 and members[node.scope] == 1:
            node.scope = drawn.scopes[node.scope].parent
    used: set[int] = {0}
    for node in drawn.nodes:
        at = node.scope
        while at not in used:
            used.add(at)
            at = drawn.scopes[at].parent
    new = {old: number for number, old in enumerate(sorted(used))}
    for node in drawn.nodes:
        node.scope = new[node.scope]
    drawn.scopes = [
        Scope(scope.name, new.get(scope.parent, -1))
        for number, scope in enumerate(drawn.scopes)
        if number in used
    ]


def _divide_large_scopes(drawn: StudioGraph) -> None:
    """Divide scopes with many members into blocks of neighbours, in the order in which they run."""
    members: list[list[GraphNode | Scope]] = [[] for _ in drawn.scopes]
    placed: set[int] = {0}
    for node in drawn.nodes:
        members[node.scope].append(node)
        at = node.scope
        while at not in placed:
            placed.add(at)
            members[drawn.scopes[at].parent].append(drawn.scopes[at])
            at = drawn.scopes[at].parent
    for number, of_scope in enumerate(members):
        if len(of_scope) > MOST_MEMBERS:
            _divide(drawn, number, of_scope)


def _divide(drawn: StudioGraph, number: int, members: Sequence[GraphNode | Scope]) -> None:
    # 10,000 members become 100 blocks of 100; 121 members become 3 blocks of at most 50.
    size = max(_BLOCK, -(-len(members) // 100))
    for start in range(0, len(members), size):
        block = members[start : start + size]
        drawn.scopes.append(Scope(f"{start + 1} to {start + len(block)}", number))
        for member in block:
            if isinstance(member, GraphNode):
                if member.device not in ("input", "output"):
                    member.scope = len(drawn.scopes) - 1
            else:
                member.parent = len(drawn.scopes) - 1
