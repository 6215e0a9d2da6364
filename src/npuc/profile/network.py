"""The network of a compiled model as nodes and edges, from the notes that the compiler leaves for tools.

A file without notes, or with ones that make no sense, has one node a subgraph: how subgraphs hang together is part of the
program itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from npuc.profile.plan import entry_of
from npuc.program.model import CompiledModel, CpuSubgraph, NpuSubgraph

MOST_EDGES = 50_000
Device = Literal["npu", "cpu", "convert", "input", "output"]


@dataclass(frozen=True)
class Node:
    """A layer, a subgraph, or an end of the network."""

    name: str
    kind: str
    device: Device
    layer: int | None = None
    """Its number in the layer table."""
    type: str = ""
    """Of its result, such as 1x64x56x56xi8."""
    subgraph: str = ""
    """The subgraph that it is in, or is."""


@dataclass(frozen=True)
class NetworkGraph:
    """Nodes in an order in which they can run."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    """From and to, by number."""


@dataclass(frozen=True)
class _Noted:
    """A layer as the compiler noted it."""

    kind: str
    type: str
    reads: tuple[int | str, ...]


@dataclass(frozen=True)
class _Part:
    """A subgraph as the compiler noted it."""

    first: int
    """The number of its first layer."""
    layers: list[_Noted]
    makes: dict[str, int]
    """Tensor to the number of the layer that it is from."""


def network_of(compiled: CompiledModel) -> NetworkGraph:
    """The graph of a model."""
    graph = NetworkGraph()
    producers: dict[str, int] = {}
    """Tensor to the node that it is from."""

    def add(node: Node, sources: list[int]) -> int:
        graph.nodes.append(node)
        number = len(graph.nodes) - 1
        if len(graph.edges) < MOST_EDGES:
            graph.edges.extend((source, number) for source in dict.fromkeys(sources))
        return number

    def type_of(name: str) -> str:
        tensor = tensors.get(name)
        return "" if tensor is None else "x".join([*map(str, tensor.shape), tensor.dtype])

    tensors = {tensor.name: tensor for tensor in compiled.tensors}
    for name in compiled.inputs:
        producers[name] = add(Node(name, "input", "input", type=type_of(name)), [])
    notes = _notes(compiled)
    for subgraph in compiled.subgraphs:
        if subgraph.name in notes:
            part = notes[subgraph.name]
            nodes: dict[int, int] = {}
            for number, layer in enumerate(part.layers, part.first):
                sources = [
                    nodes[read] if isinstance(read, int) else producers[read]
                    for read in layer.reads
                    if isinstance(read, int) or read in producers
                ]
                node = Node(compiled.layers[number], layer.kind, "npu", number, layer.type, subgraph.name)
                nodes[number] = add(node, sources)
            producers.update({name: nodes[number] for name, number in part.makes.items()})
            continue
        name, kind, device = _title(subgraph)
        sources = [producers[name] for name in subgraph.inputs if name in producers]
        node = Node(name, kind, device, None, type_of(next(iter(subgraph.outputs), "")), subgraph.name)
        producers.update(dict.fromkeys(subgraph.outputs, add(node, sources)))
    for name in compiled.outputs:
        sources = [producers[name]] if name in producers else []
        add(Node(name, "output", "output", type=type_of(name)), sources)
    return graph


def _title(subgraph: Any) -> tuple[str, str, Device]:
    """Name, kind and device of a subgraph that is one node."""
    if isinstance(subgraph, NpuSubgraph):
        return subgraph.name, "subgraph", "npu"
    if isinstance(subgraph, CpuSubgraph):
        return ", ".join(subgraph.reasons) or subgraph.name, subgraph.name, "cpu"
    return subgraph.name, "conversion", "convert"


def _notes(compiled: CompiledModel) -> dict[str, _Part]:
    """The notes on all subgraphs of the NPU; empty unless they are about all layers."""
    parts: dict[str, _Part] = {}
    at = 0
    for subgraph in compiled.subgraphs:
        if isinstance(subgraph, NpuSubgraph):
            part = _part(entry_of(compiled, subgraph.name), at)
            if part is None:
                return {}
            parts[subgraph.name] = part
            at += len(part.layers)
    return parts if at == len(compiled.layers) else {}


def _part(entry: dict[str, Any], at: int) -> _Part | None:
    layers, makes = entry.get("layers"), entry.get("makes")
    if not isinstance(layers, list) or not isinstance(makes, dict):
        return None
    noted = []
    for number, layer in enumerate(layers, at):
        match layer:
            case [str(kind), str(type_), list(reads)] if all(
                isinstance(read, str) or (type(read) is int and at <= read < number) for read in reads
            ):
                noted.append(_Noted(kind, type_, tuple(reads)))
            case _:
                return None
    known = {
        name: layer for name, layer in makes.items() if type(layer) is int and at <= layer < at + len(noted)
    }
    return _Part(at, noted, known)
