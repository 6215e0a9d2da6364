"""A network as its file states it: nodes, edges and types of an ONNX file, without importing it.

The page opens with this form. An import infers types, lifts constants and verifies the result, which takes seconds for ten
thousand nodes and is of no use to somebody who wants to see what the file has; here the protobuf is decoded and walked once.
What a file does not state, such as the type of a tensor between two layers, stays empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from onnx import AttributeProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from npuc.errors import NpucError
from npuc.frontend.onnx.reader import OnnxSource
from npuc.ir.dtypes import dtype_of
from npuc.studio.graphs import LONGEST_TEXT, GraphNode, StudioGraph, put_in_scopes
from npuc.studio.maps import constant_record

_MOST_SHOWN = 64
"""Elements of a list among the attributes."""


def graph_of_file(source: OnnxSource) -> StudioGraph:
    """The graph of an ONNX file."""
    graph = source.model.graph
    drawn = StudioGraph("original")
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {sparse.values.name: sparse.values for sparse in graph.sparse_initializer}
    types = _Types([*graph.value_info, *graph.output, *graph.input])
    makers: dict[str, int] = {}
    for port in graph.input:
        if port.name not in constants:
            makers[port.name] = len(drawn.nodes)
            kind, bits = types[port.name]
            drawn.nodes.append(GraphNode(port.name, "input", kind, (port.name,), "input", bits))
    sizes = {name: max(0, math.prod(tensor.dims)) for name, tensor in constants.items()}
    for number, node in enumerate(graph.node):
        results = tuple(filter(None, node.output))
        reads = dict.fromkeys(node.input)
        kind, bits = types[results[0]] if results else ("", 0)
        place = len(drawn.nodes)
        drawn.nodes.append(
            GraphNode(
                name=_name(node, number),
                kind=node.op_type,
                type=kind,
                tensors=results,
                bits=bits,
                parameters=sum(sizes.get(name, 0) for name in reads) if sizes else 0,
                attributes=_attributes(node),
            )
        )
        for name in reads:
            if name in makers:
                drawn.edges.append((makers[name], place, types[name][0]))
        for name in results:
            makers[name] = place
    for port in graph.output:
        kind, bits = types[port.name]
        drawn.nodes.append(GraphNode(port.name, "output", kind, (port.name,), "output", bits))
        if port.name in makers:
            drawn.edges.append((makers[port.name], len(drawn.nodes) - 1, kind))
    put_in_scopes(drawn)
    return drawn


def operands_of_file(source: OnnxSource, layer: str) -> list[dict[str, Any]] | None:
    """What the node reads that makes a tensor; constants with a histogram and their first map. None if there is no such node."""
    graph = source.model.graph
    node = next((node for node in graph.node if layer in node.output), None)
    if node is None:
        return None
    constants = {tensor.name: tensor for tensor in graph.initializer}
    types = _Types([*graph.value_info, *graph.output, *graph.input])
    own = [("value", attribute.t) for attribute in node.attribute if attribute.type == AttributeProto.TENSOR]
    return [
        {"field": "", "name": name, "type": types[name][0]}
        if name not in constants
        else _constant(source, "", name, constants[name])
        for name in filter(None, node.input)
    ] + [_constant(source, field, tensor.name or layer, tensor) for field, tensor in own]


def _constant(source: OnnxSource, field: str, name: str, tensor: TensorProto) -> dict[str, Any]:
    record = {"field": field, "name": name, "type": _tensor_words(tensor)}
    try:
        return record | constant_record(source.weight(tensor).array())
    except NpucError:  # the graph is worth seeing where a weight is not
        return record


def _name(node: NodeProto, number: int) -> str:
    """Of a node; one without a name is called after what it makes."""
    return node.name or next(filter(None, node.output), f"{node.op_type} {number}")


class _Types(dict[str, tuple[str, int]]):
    """Types and bits of tensors by name, decoded when they are asked for; what is not stated is empty."""

    def __init__(self, entries: Iterable[ValueInfoProto]) -> None:
        super().__init__()
        self._stated = {entry.name: entry.type for entry in entries}

    def __missing__(self, name: str) -> tuple[str, int]:
        known = _type_words(self._stated[name]) if name in self._stated else ("", 0)
        self[name] = known
        return known


def _type_words(kind: TypeProto) -> tuple[str, int]:
    """A type as elsewhere in npuc, such as 1x3x224x224xf32; a size without a number is its name, or a question mark."""
    if not kind.HasField("tensor_type"):
        return (kind.WhichOneof("value") or "").removesuffix("_type"), 0
    tensor = kind.tensor_type
    try:
        element = dtype_of(tensor.elem_type)
    except KeyError:
        return "", 0
    if not tensor.HasField("shape"):
        return f"*x{element.name}", element.bits
    sizes = [
        str(dim.dim_value) if dim.HasField("dim_value") else _text(dim.dim_param) or "?"
        for dim in tensor.shape.dim
    ]
    return "x".join([*sizes, element.name])[:LONGEST_TEXT], element.bits


def _tensor_words(tensor: TensorProto) -> str:
    try:
        element = dtype_of(tensor.data_type).name
    except KeyError:
        element = f"type {tensor.data_type}"
    return "x".join([*map(str, tensor.dims), element])[:LONGEST_TEXT]


def _attributes(node: NodeProto) -> dict[str, str]:
    attributes = {attribute.name: _words(attribute)[:LONGEST_TEXT] for attribute in node.attribute}
    if node.domain:
        attributes["domain"] = node.domain
    return attributes


def _words(attribute: AttributeProto) -> str:
    """The value of an attribute as text."""
    kind = attribute.type
    if kind == AttributeProto.INT:
        return str(attribute.i)
    if kind == AttributeProto.FLOAT:
        return f"{attribute.f:.7g}"
    if kind == AttributeProto.STRING:
        return _text(attribute.s)
    if kind == AttributeProto.TENSOR:
        return _tensor_words(attribute.t)
    if kind == AttributeProto.GRAPH:
        return f"a graph of {len(attribute.g.node)} nodes"
    lists: dict[int, Any] = {
        AttributeProto.INTS: attribute.ints,
        AttributeProto.FLOATS: [f"{value:.7g}" for value in attribute.floats[:_MOST_SHOWN]],
        AttributeProto.STRINGS: [_text(value) for value in attribute.strings[:_MOST_SHOWN]],
    }
    if kind not in lists:
        return (
            AttributeProto.AttributeType.Name(kind).lower()
            if kind in AttributeProto.AttributeType.values()
            else ""
        )
    return ", ".join(map(str, lists[kind][:_MOST_SHOWN]))


def _text(value: str | bytes) -> str:
    """Text that may be none: protobuf hands over bytes that are not UTF-8 as they are."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
