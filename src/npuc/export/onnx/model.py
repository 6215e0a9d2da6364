"""A whole program as one ONNX model.

Inputs and outputs have the program's own names; every other value has the user's name for it where that is free.
Weights are declared, not copied: `ExportedModel.external` says which initializer stands for which weight, and the
caller decides whether to hand them over in memory (the float engine) or to write them (`file`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto

from npuc.export.onnx.emitter import Emitter, tensor_proto
from npuc.export.onnx.registry import Rule, rule_for
from npuc.export.onnx.widen import emit_widened, needs_widening
from npuc.ir import (
    DYNAMIC,
    Graph,
    Value,
    Weight,
    dtype_of,
    layer_name,
    result_names,
    shape_of,
    top,
    value_name,
)
from npuc.origins import nearest, unknown_tensor

OPSET: Final = 21
IR_VERSION: Final = 10
_NEWER_IR_VERSION: Final = {22: 10, 23: 11, 24: 12, 25: 12, 26: 13}
# Element types that came after the base opset, wholly or (bf16) for most operators.
_TYPES_SINCE: Final = {"bf16": 22, "f4E2M1FN": 23, "f8E8M0FNU": 24, "i2": 25, "ui2": 25}
_DEFAULT_DOMAINS: Final = ("", "ai.onnx")

ALL_TENSORS: Final = "all tensors"
"""As `fetch`: every computed tensor that has a name."""

Fetch = Sequence[str] | Literal["all tensors"]


@dataclass(frozen=True)
class ExportedModel:
    """A model, the weights that it only declares, and where the tensors that were asked for come out."""

    proto: ModelProto
    external: dict[str, Weight]
    """Initializer name to weight, for the initializers with external data."""
    fetched: dict[str, str]
    """The name that was asked for to the name of a model output."""
    names: dict[Value, str] = field(default_factory=dict)
    """Values of the program, by their names in the model."""


def to_onnx(
    graph: Graph, fetch: Fetch = (), special: Callable[[Any], Rule | None] | None = None
) -> ExportedModel:
    """The program as an ONNX model, with the tensors or layers named by `fetch` as further outputs.

    `special` gives the rules of ops that are not to be written as `top` ops are.

    >>> from npuc.ir import tensor_type
    >>> graph = Graph.empty([("x", tensor_type((2,), "f32"))])
    >>> relu = top.Relu.make(graph.inputs[0].value, name="y")
    >>> graph.block.add_op(relu)
    >>> graph.set_outputs([("y", relu.y)])
    >>> [node.op_type for node in to_onnx(graph).proto.graph.node]
    ['Relu']
    """
    fetches = find_tensors(graph, fetch)
    opsets = _opsets(graph)
    emit = Emitter(graph, opsets[""])
    inputs, outputs = graph.inputs, graph.outputs
    input_values = {port.value for port in inputs}
    for port in inputs:
        emit.bind(port.value, emit.names.take(port.name))
    copies: list[tuple[str, Value]] = []
    for port in outputs:
        direct = graph.constant(port.value) is None and not emit.bound(port.value)
        if port.value in input_values and emit.name(port.value) == port.name:
            continue
        name = emit.names.take(port.name)
        if direct:
            emit.bind(port.value, name)
        else:
            copies.append((name, port.value))
    # All values have their names before any rule makes up new ones, so that the user's names win.
    for op in graph.ops:
        if isinstance(op, top.WeightOp):
            emit.begin(op)
            emit.bind(op.output, emit.weight(op.ref))
        else:
            for value in op.results:
                emit.name(value)
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            emit.begin(op)
            own = special(op) if special is not None else None
            if own is not None:
                own(op, emit)
            elif needs_widening(op):
                emit_widened(op, emit)
            else:
                rule_for(op)(op, emit)
    emit.begin(None)
    for name, source in copies:
        emit("Identity", source, to=name)

    infos = {port.name: _info(port.name, port.value) for port in outputs}
    fetched: dict[str, str] = {}
    for requested, source in fetches.items():
        name = emit.name(source)
        if name not in infos and (source in input_values or graph.constant(source) is not None):
            name = emit("Identity", source, to=emit.names.take(f"{name}/fetched"))
        infos.setdefault(name, _info(name, source))
        fetched[requested] = name

    proto = ModelProto(ir_version=_NEWER_IR_VERSION.get(opsets[""], IR_VERSION), producer_name="npuc")
    # The domains of custom ops that rules of plugins write come last.
    opsets |= {node.domain: 1 for node in emit.nodes if node.domain not in (*opsets, *_DEFAULT_DOMAINS)}
    for domain, version in opsets.items():
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.name = "main"
    proto.graph.input.extend(_info(port.name, port.value) for port in inputs)
    proto.graph.output.extend(infos.values())
    # A rule may take a weight under another shape; the initializer of its own shape is then not needed, and ONNX
    # Runtime, which drops it, refuses to be given a value for it.
    read = set(_reads(emit.nodes))
    proto.graph.initializer.extend(tensor for tensor in emit.initializers if tensor.name in read)
    proto.graph.node.extend(emit.nodes)
    external = {name: weight for name, weight in emit.external.items() if name in read}
    names: dict[Value, str] = {value: emit.name(value) for op in graph.ops for value in op.results}
    return ExportedModel(proto, external, fetched, names)


def _reads(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """All names that nodes, or the graphs inside them, read."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _reads(graph.node)
                yield from (output.name for output in graph.output)


def embed(proto: ModelProto, weights: Mapping[str, Weight]) -> None:
    """Write the bytes of weights into the initializers that declare them."""
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(tensor_proto(tensor.name, weights[tensor.name]))


def find_tensors(graph: Graph, names: Fetch) -> dict[str, Value]:
    """The values of tensor or layer names; `ALL_TENSORS` is every computed one."""
    if not names:
        return {}
    tensors: dict[str, Value] = {value_name(port.value): port.value for port in graph.inputs}
    computed: dict[str, Value] = {}
    layers: dict[str, Value] = {}
    for op in graph.ops:
        for name, value in zip(result_names(op), op.results, strict=True):
            if name and name not in tensors:
                tensors[name] = value
                if not isinstance(op, top.WeightOp):
                    computed[name] = value
        if op.results:
            layers.setdefault(layer_name(op), op.results[0])
    if names == ALL_TENSORS:
        return computed
    matches: dict[str, Value] = {}
    for name in names:
        match = tensors.get(name) or layers.get(name)
        if match is None:
            match = tensors.get(graph.origins.nodes.get(name, ""))
        if match is None:
            known = [tensor_name for tensor_name in tensors if tensor_name]
            if not nearest(name, known, graph.origins):
                # A layer whose tensor has no name is known by its own.
                known += layers
            raise unknown_tensor(name, known, graph.origins)
        matches[name] = match
    return matches


def _opsets(graph: Graph) -> dict[str, int]:
    opsets = {"": OPSET}
    for op in graph.ops:
        for value in op.results:
            since = _TYPES_SINCE.get(dtype_of(value.type).name, 0)
            opsets[""] = max(opsets[""], since)
        if isinstance(op, top.Onnx):
            domain = "" if op.domain in _DEFAULT_DOMAINS else op.domain
            opsets[domain] = max(opsets.get(domain, 1), op.version)
    return opsets


def _info(name: str, value: Value) -> ValueInfoProto:
    kind = TypeProto()
    kind.tensor_type.elem_type = dtype_of(value.type).onnx
    try:
        shape = shape_of(value)
    except TypeError:
        return ValueInfoProto(name=name, type=kind)
    kind.tensor_type.shape.SetInParent()
    for size in shape:
        dim = kind.tensor_type.shape.dim.add()
        if size != DYNAMIC:
            dim.dim_value = size
    return ValueInfoProto(name=name, type=kind)


__all__ = ["ALL_TENSORS", "ExportedModel", "Fetch", "embed", "find_tensors", "to_onnx"]
