"""Names inside graph attributes (the branches of an If, the body of a Loop).

A subgraph refers to outer tensors by name and must not define a name that the outer graph has. Outer names may have
changed since import, so references are renamed to the exported names and local definitions that would collide get new
ones. A local definition hides a captured name of the same spelling, at every depth.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import AttributeProto, GraphProto

from npuc.export.onnx.emitter import Names


def rename_captures(attribute: AttributeProto, outer: Mapping[str, str], names: Names) -> None:
    """Rename, in place, what the graphs of an attribute capture and define."""
    for graph in (*([attribute.g] if attribute.type == AttributeProto.GRAPH else ()), *attribute.graphs):
        _rename(graph, outer, names)


def _rename(graph: GraphProto, outer: Mapping[str, str], names: Names) -> None:
    scope = dict(outer)

    def define(name: str) -> str:
        scope[name] = names.take(name)
        return scope[name]

    for value in graph.input:
        value.name = define(value.name)
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        # An initializer with the name of an input is that input's default.
        tensor.name = scope[tensor.name] if scope.get(tensor.name) in inputs else define(tensor.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = define(sparse.values.name)
    for node in graph.node:
        node.input[:] = [scope.get(name, name) if name else "" for name in node.input]
        for attribute in node.attribute:
            rename_captures(attribute, scope, names)
        node.output[:] = [define(name) if name else "" for name in node.output]
    for value in (*graph.output, *graph.value_info):
        value.name = scope.get(value.name, value.name)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = scope.get(annotation.tensor_name, annotation.tensor_name)
