"""Subgraphs of an ONNX model that a parser plugin takes for one layer, by the names of nodes or by a pattern.

    start_nodes, end_nodes = ["div"], ["sub"]                    # all nodes on the paths between them

    pattern_nodes = [("gate", "HardSigmoid"), ("out", "Mul")]    # each place in the network that looks like this
    pattern_edges = [("gate", "out", {"src_out_port": 0, "dst_in_port": 1})]

`infer_shape` of such a plugin gets a list for each node through which tensors come in, and one for each node at which the
subgraph ends: what these read from outside. A tensor is in the first list that could have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import NodeProto, helper

from npuc.errors import PluginError
from npuc.export.compass.text import DOMAIN
from npuc.frontend.onnx.node_groups import Edge, nodes_between, nodes_like
from npuc.frontend.onnx.structure import uses
from npuc.frontend.onnx.subgraphs import RULES, onnx_nodes


@dataclass(frozen=True)
class Subgraph:
    """What one layer stands for."""

    nodes: Mapping[str, NodeProto]
    """By their names, or by those of the pattern; those at which the subgraph ends are last."""
    inputs: tuple[tuple[str, ...], ...]
    """Tensors from outside, by the node that reads them."""

    @property
    def tensors(self) -> list[str]:
        """All tensors from outside, in the order in which the layer reads them."""
        return [name for names in self.inputs for name in names]

    @property
    def info(self) -> dict[str, Any]:
        """The attributes of each node."""
        return {
            name: {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
            for name, node in self.nodes.items()
        }


class SubgraphRules:
    """The rules of the plugins of a model, and the subgraphs that they found."""

    def __init__(self) -> None:
        RULES[:] = [rule for rule in RULES if rule.domain != DOMAIN]
        self.subgraphs: list[Subgraph] = []

    def add(self, cls: Any, op_type: str) -> None:
        """Let the subgraphs of a plugin become nodes of the domain of layers, which state their number here."""
        numbers: dict[int, int] = {}

        def find(nodes: Sequence[NodeProto]) -> list[list[NodeProto]]:
            groups = []
            for subgraph in subgraphs_of(cls, nodes):
                group = list(subgraph.nodes.values())
                numbers[id(group[0])] = len(self.subgraphs)
                self.subgraphs.append(subgraph)
                groups.append(group)
            return groups

        onnx_nodes(
            DOMAIN,
            op_type,
            find,
            lambda group: {"subgraph": numbers[id(group[0])]},
            lambda group: self.subgraphs[numbers[id(group[0])]].tensors,
        )


def subgraphs_of(cls: Any, nodes: Sequence[NodeProto]) -> list[Subgraph]:
    """The subgraphs of a graph that a plugin takes for a layer each."""
    if cls.start_nodes is not None:
        starts, ends = list(cls.start_nodes), list(cls.end_nodes)
        members = {node.name: node for node in nodes_between(nodes, starts, ends)}
        if not members:
            return []
        lost = [name for name in [*starts, *ends] if name not in members]
        if lost:
            raise PluginError(f"{cls.__name__}: no path of its subgraph goes through the node '{lost[0]}'")
        _check_entries(cls, members, {*starts, *ends}, nodes)
        return [_subgraph(members, starts, ends)]
    kinds = {name: str(kind["op"] if isinstance(kind, dict) else kind) for name, kind in cls.pattern_nodes}
    edges = [_edge(cls, entry, kinds) for entry in cls.pattern_edges]
    subgraphs = []
    for match in nodes_like(nodes, kinds, edges):
        inside = {id(node) for node in match.values()}
        produced = {name for node in match.values() for name in node.output}
        read = {name for node in nodes if id(node) not in inside for name in uses(node)}
        used = {name for node in match.values() for name in uses(node)}
        enters = [name for name, node in match.items() if set(uses(node)) - produced]
        leaves = [
            name for name, node in match.items() if any(out in read or out not in used for out in node.output)
        ]
        subgraphs.append(_subgraph(match, enters, leaves))
    return subgraphs


def _check_entries(
    cls: Any, members: Mapping[str, NodeProto], stated: set[str], nodes: Sequence[NodeProto]
) -> None:
    """An error if what other nodes compute comes in where the plugin does not say so: its layer would not see it."""
    outside = {
        tensor for node in nodes if node.name not in members and node.op_type != "Constant" for tensor in node.output
    }  # fmt: skip
    for name, node in members.items():
        if name not in stated and not outside.isdisjoint(uses(node)):
            raise PluginError(
                f"{cls.__name__}: the node '{name}' inside of its subgraph reads the result of a node outside",
                fix="Add it to start_nodes",
            )


def _edge(cls: Any, entry: Any, kinds: Mapping[str, str]) -> Edge:
    source, reader, *rest = entry
    ports: Mapping[str, Any] = rest[0] if rest else {}
    if source not in kinds or reader not in kinds:
        raise PluginError(f"{cls.__name__}: the edge {entry} joins nodes that pattern_nodes does not name")
    return Edge(source, reader, ports.get("src_out_port"), ports.get("dst_in_port"))


def _subgraph(members: Mapping[str, NodeProto], starts: Sequence[str], ends: Sequence[str]) -> Subgraph:
    produced = {name for node in members.values() for name in node.output}
    placed: set[str] = set()
    inputs = []
    for name in [*starts, *ends]:
        own = [
            tensor
            for tensor in dict.fromkeys(members[name].input)
            if tensor and tensor not in produced | placed
        ]
        placed.update(own)
        inputs.append(tuple(own))
    order = [name for name in members if name not in ends] + list(dict.fromkeys(ends))
    return Subgraph({name: members[name] for name in order}, tuple(inputs))


__all__ = ["Subgraph", "SubgraphRules", "subgraphs_of"]
