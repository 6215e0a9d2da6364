"""A graph of the studio as Model Explorer takes it: nodes with namespaces, and data of layers that it paints them with.

The field names are Model Explorer's. Data is matched to nodes by the names of their tensors, so it fits any form of a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuc.studio.graphs import StudioGraph

# From light to dark in one hue: more is darker, to every eye.
_GRADIENT = [{"stop": 0, "bgColor": "#fff7e6"}, {"stop": 1, "bgColor": "#b35806"}]


def explorer_graph(graph: StudioGraph, name: str) -> dict[str, Any]:
    """The graph as plain data.

    >>> from npuc.studio.graphs import GraphNode, Scope
    >>> one = StudioGraph("float", [GraphNode("a/x", "conv", "1xf32", ("x",), scope=1)], [], [Scope("", -1), Scope("a", 0)])
    >>> node = explorer_graph(one, "net")["nodes"][0]
    >>> node["namespace"], node["label"], node["outputsMetadata"][0]["attrs"][0]
    ('a', 'conv', {'key': 'tensor_name', 'value': 'x'})
    """
    namespaces = [_path(graph, number) for number in range(len(graph.scopes))]
    nodes = [
        {
            "id": str(number),
            "label": node.kind,
            "namespace": namespaces[node.scope],
            "attrs": [{"key": key, "value": str(value)} for key, value in _facts(node).items()],
            "incomingEdges": [],
            "outputsMetadata": [
                {
                    "id": str(at),
                    "attrs": [
                        {"key": "tensor_name", "value": tensor},
                        *([{"key": "tensor_shape", "value": node.type}] if not at else []),
                    ],
                }
                for at, tensor in enumerate(node.tensors)
            ],
        }
        for number, node in enumerate(graph.nodes)
    ]
    for begin, end, _ in graph.edges:
        edges: Any = nodes[end]["incomingEdges"]
        edges.append(
            {"sourceNodeId": str(begin), "sourceNodeOutputId": "0", "targetNodeInputId": str(len(edges))}
        )
    return {"id": name, "nodes": nodes}


def _path(graph: StudioGraph, number: int) -> str:
    """The names of the scopes around a scope and its own, as a path."""
    parts: list[str] = []
    at = number
    while at > 0:
        parts.append(graph.scopes[at].name)
        at = graph.scopes[at].parent
    return "/".join(reversed(parts))


def _facts(node: Any) -> dict[str, Any]:
    facts = {"name": node.name, "device": node.device, "MACs": node.macs, "parameters": node.parameters}
    return {key: value for key, value in (facts | node.attributes).items() if value}


def node_data(graph_name: str, title: str, values: Mapping[str, float]) -> dict[str, Any]:
    """Numbers of layers in the form of Model Explorer's node data files.

    >>> node_data("net", "time in µs", {"x": 1.5})["net"]["results"]
    {'x': {'value': 1.5}}
    """
    results = {name: {"value": value} for name, value in values.items()}
    return {graph_name: {"name": title, "results": results, "gradient": _GRADIENT}}
