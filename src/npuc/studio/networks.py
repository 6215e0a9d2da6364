"""Networks of npuc and compiled programs as graphs of the page."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from npuc.ir import Graph, shown_name, top, value_name
from npuc.ir.dtypes import dtype_of
from npuc.profile.network import network_of
from npuc.profile.summary import macs_of, short_type, summarize
from npuc.program.model import CompiledModel
from npuc.studio.graphs import LONGEST_TEXT, GraphNode, StudioGraph, put_in_scopes
from npuc.studio.maps import constant_record


def graph_of_network(graph: Graph, form: str) -> StudioGraph:
    """A network in Top or Npu IR."""
    drawn = StudioGraph(form)
    names = graph.distinct_names()
    makers: dict[object, int] = {}
    for port in graph.inputs:
        makers[port.value] = len(drawn.nodes)
        kind = short_type(port.type)
        bits = dtype_of(port.type).bits
        drawn.nodes.append(GraphNode(port.name, "input", kind, (port.name,), "input", bits))
    parameters = iter(summarize(graph).layers)
    for op in graph.ops:
        if isinstance(op, top.WeightOp):
            continue
        layer, number = next(parameters), len(drawn.nodes)
        drawn.nodes.append(
            GraphNode(
                name=shown_name(op),
                kind=layer.kind.removeprefix("npu."),
                type=layer.outputs[0] if layer.outputs else "",
                tensors=tuple(names[value] for value in op.results),
                bits=dtype_of(op.results[0].type).bits if op.results else 0,
                macs=macs_of(op),
                parameters=layer.parameters,
                attributes={key: _words(value) for key, value in op.properties.items()},
            )
        )
        for value in dict.fromkeys(op.operands):
            if value in makers:
                drawn.edges.append((makers[value], number, short_type(value.type)))
        makers.update(dict.fromkeys(op.results, number))
    for port in graph.outputs:
        kind = short_type(port.type)
        drawn.nodes.append(
            GraphNode(port.name, "output", kind, (names[port.value],), "output", dtype_of(port.type).bits)
        )
        if port.value in makers:
            drawn.edges.append((makers[port.value], len(drawn.nodes) - 1, kind))
    put_in_scopes(drawn)
    return drawn


def graph_of_program(compiled: CompiledModel) -> StudioGraph:
    """A compiled model: its layers where the file notes them, else its subgraphs."""
    drawn = StudioGraph("compiled")
    network = network_of(compiled)
    for node in network.nodes:
        bits = "".join(filter(str.isdigit, node.type.rpartition("x")[2].split("<")[0]))
        drawn.nodes.append(
            GraphNode(
                name=node.name,
                kind=node.kind,
                type=node.type,
                tensors=(node.name,),
                device=node.device,
                bits=int(bits) if bits else 0,
                subgraph=node.subgraph,
            )
        )
    drawn.edges = [(begin, end, network.nodes[begin].type) for begin, end in network.edges]
    put_in_scopes(drawn)
    return drawn


def operands_of_network(graph: Graph, layer: str) -> list[dict[str, Any]] | None:
    """What the op reads that makes a tensor, constants with a histogram and their first map; None if there is no such op."""
    names = graph.distinct_names()
    for op in graph.ops:
        if not isinstance(op, top.WeightOp) and layer in (names[value] for value in op.results):
            fields = _operand_fields(op)
            return [
                {"field": fields.get(value, ""), **_operand(graph, value, names)} for value in op.operands
            ]
    return None


@lru_cache(4096)
def _words(attribute: Any) -> str:
    """An attribute as text; networks of many layers have few different ones."""
    text = str(attribute)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _operand_fields(op: Any) -> dict[Any, str]:
    """The name that the definition of an op gives each operand."""
    fields: dict[Any, str] = {}
    for name, _ in op.get_irdl_definition().operands:
        value = getattr(op, name)
        for single in value if isinstance(value, tuple | list) else (value,):
            if single is not None:
                fields.setdefault(single, name)
    return fields


def _operand(graph: Graph, value: Any, names: Any) -> dict[str, Any]:
    record: dict[str, Any] = {"name": names.get(value) or value_name(value), "type": short_type(value.type)}
    constant = graph.constant(value)
    return record if constant is None else record | constant_record(constant)
