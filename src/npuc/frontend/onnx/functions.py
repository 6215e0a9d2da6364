"""Functions: those of a model are inlined, and an operator that is only a function of others has its body.

ONNX defines many operators by a body of simpler ones. Where ONNX Runtime is too old for the operator, the body runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from onnx import inliner

from npuc.errors import InvalidModelError, ResourceLimitError
from npuc.frontend.onnx.escape import type_proto
from npuc.frontend.onnx.node import OnnxNode
from npuc.frontend.onnx.reader import OnnxSource
from npuc.frontend.onnx.scope import OnnxScope

_MAX_NODES = 1_000_000


def inline_functions(source: OnnxSource) -> None:
    """Replace the calls of a model's own functions by their bodies; one that calls itself is refused."""
    model = source.model
    if not model.functions:
        return
    calls = {(function.domain, function.name): _called(function.node) for function in model.functions}
    done: set[tuple[str, str]] = set()

    def visit(key: tuple[str, str], path: tuple[tuple[str, str], ...]) -> None:
        if key in path:
            raise InvalidModelError(f"the function '{key[1]}' calls itself")
        if key in done:
            return
        for called in sorted(calls[key] & calls.keys()):
            visit(called, (*path, key))
        done.add(key)

    for key in sorted(calls):
        visit(key, ())
    _check_expansion(model)
    try:
        source.model = inliner.inline_local_functions(model)
    except Exception as error:  # the C++ side raises several kinds
        raise InvalidModelError(f"its functions cannot be inlined: {error}") from error


def _called(nodes: Iterable[onnx.NodeProto]) -> set[tuple[str, str]]:
    operators = set()
    for node in nodes:
        operators.add((node.domain, node.op_type))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                operators |= _called(attribute.g.node)
    return operators


def _check_expansion(model: onnx.ModelProto) -> None:
    """Functions that call others twice double at every level: count the nodes before they are made."""
    bodies = {(function.domain, function.name): function.node for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(nodes: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in bodies and key not in sizes:
                sizes[key] = size(bodies[key])
            total += sizes.get(key, 1)
            total += sum(size(attribute.g.node) for attribute in node.attribute if attribute.HasField("g"))
        return total

    if (total := size(model.graph.node)) > _MAX_NODES:
        raise ResourceLimitError(f"its functions expand to {total} nodes, the limit is {_MAX_NODES}")


def bound_nodes(body: onnx.FunctionProto, call: OnnxNode) -> list[onnx.NodeProto]:
    """The nodes of a function body with the attributes of a call filled in."""
    attributes = {attribute.name: attribute for attribute in body.attribute_proto}
    attributes.update(call.attributes)
    return [_bind(proto, attributes) for proto in body.node]


def _bind(proto: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function body with its attribute references resolved."""
    bound = onnx.NodeProto()
    bound.CopyFrom(proto)
    del bound.attribute[:]
    for attribute in proto.attribute:
        if attribute.ref_attr_name:
            given = attributes.get(attribute.ref_attr_name)
            if given is None:
                continue
            copy = bound.attribute.add()
            copy.CopyFrom(given)
            copy.name = attribute.name
        else:
            bound.attribute.add().CopyFrom(attribute)
    return bound


def function_body(schema: Any, node: OnnxNode, scope: OnnxScope) -> onnx.FunctionProto | None:
    """The body that ONNX's schema gives for a node (it may depend on the types of its inputs), or None."""
    body = onnx.FunctionProto()
    if schema.has_function:
        body.CopyFrom(schema.function_body)
        return body
    if not schema.has_context_dependent_function:
        return None
    types = []
    for name in node.inputs:
        meaning = scope.lookup(name) if name else None
        types.append(type_proto(meaning).SerializeToString() if meaning is not None else b"")
    try:
        data = schema.get_context_dependent_function(node.proto.SerializeToString(), types)
        body.ParseFromString(data)
    except Exception:  # the C++ side raises several kinds; the op then stays as it is
        return None
    return body if body.node else None
