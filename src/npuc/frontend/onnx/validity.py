"""Does a node keep to ONNX's own definition of its operator? Asked before any C++ code sees it.

ONNX's shape inference and ONNX Runtime trust a node to have enough inputs, and attributes of the right kinds;
on one that has not, they may read where nothing is. So `check_node` comes first, and `infer_outputs` is the only way
to that inference from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx
from onnx import AttributeProto, TensorProto, TypeProto, shape_inference
from onnx.defs import OpSchema

from npuc.arithmetic.dtypes import DTYPES
from npuc.errors import InvalidModelError
from npuc.ir import DType

_MAX_DEPTH = 16
_TYPE_NAMES = {dtype.name: f"tensor({TensorProto.DataType.Name(dtype.onnx).lower()})" for dtype in DTYPES}
_EQUATION = re.compile(r"[A-Za-z., >-]*")
_VARIADIC, _SINGLE = OpSchema.FormalParameterOption.Variadic, OpSchema.FormalParameterOption.Single


@dataclass(frozen=True)
class _Form:
    """What a schema says about the form of a node, read once: each look into the C++ object is slow."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    needed: tuple[int, ...]
    attributes: dict[str, int]
    required: tuple[str, ...]
    types: tuple[tuple[str | None, frozenset[str]], ...]
    """For each input the name of its type (None: a type of its own each time), and the types that it may be; the last may be
    repeated."""


@cache
def _form(op_type: str, domain: str, since: int) -> _Form:
    schema = onnx.defs.get_schema(op_type, since, domain)
    return _Form(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple(i for i, parameter in enumerate(schema.inputs) if parameter.option == _SINGLE),
        {
            name: AttributeProto.AttributeType.Value(str(attribute.type).rpartition(".")[2])
            for name, attribute in schema.attributes.items()
        },
        tuple(name for name, attribute in schema.attributes.items() if attribute.required),
        tuple(_allowed(parameter) for parameter in schema.inputs),
    )


def _allowed(parameter: OpSchema.FormalParameter) -> tuple[str | None, frozenset[str]]:
    # What a Loop carries is variadic and not homogeneous: a counter beside states of float.
    return parameter.type_str if parameter.is_homogeneous else None, frozenset(parameter.types)


def check_node(proto: onnx.NodeProto, schema: OpSchema, opset: int, label: str, depth: int = 0) -> None:
    """Raise `InvalidModelError` if the node cannot be one of this operator."""
    form = _form(schema.name, schema.domain, schema.since_version)
    if depth > _MAX_DEPTH:
        raise InvalidModelError(f"{label}: its graphs are nested more than {_MAX_DEPTH} deep")
    for what, names, (least, most) in (
        ("input", proto.input, form.inputs),
        ("output", proto.output, form.outputs),
    ):
        if not least <= len(names) <= most:
            bounds = (
                f"{least}"
                if least == most
                else f"{least} to {most}"
                if most < 1 << 20
                else f"at least {least}"
            )
            raise InvalidModelError(f"{label}: it has {len(names)} {what}s; {schema.name} takes {bounds}")
    for index in form.needed:
        if index < len(proto.input) and not proto.input[index]:
            raise InvalidModelError(f"{label}: input {index} is missing")
    given = set()
    for attribute in proto.attribute:
        given.add(attribute.name)
        expected = form.attributes.get(attribute.name)
        if expected is not None and attribute.type != expected:
            kind = AttributeProto.AttributeType.Name(expected)
            raise InvalidModelError(f"{label}: the attribute '{attribute.name}' is not of the type {kind}")
        if attribute.ref_attr_name:
            raise InvalidModelError(f"{label}: the attribute '{attribute.name}' has no value")
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            _check_graph(graph, opset if schema.domain == "" else None, label, depth + 1)
    for name in form.required:
        if name not in given:
            raise InvalidModelError(f"{label}: the attribute '{name}' is missing")
    _check_split(proto, {}, label)
    if schema.name == "Einsum":
        # ONNX's parser of equations does not end on letters outside of ASCII.
        equation = next((a.s.decode("latin-1") for a in proto.attribute if a.name == "equation"), "")
        if not _EQUATION.fullmatch(equation):
            raise InvalidModelError(f"{label}: its equation '{equation}' is not one")


def check_types(proto: onnx.NodeProto, schema: OpSchema, dtypes: Sequence[DType | None], label: str) -> None:
    """Raise `InvalidModelError` if the element types of the inputs are none that the operator takes together."""
    types = _form(schema.name, schema.domain, schema.since_version).types
    bindings: dict[str, DType] = {}
    for index, dtype in enumerate(dtypes):
        if dtype is None or not types:
            continue
        variable, allowed = types[min(index, len(types) - 1)]
        if _TYPE_NAMES[dtype.name] not in allowed:
            raise InvalidModelError(
                f"{label}: its input '{proto.input[index]}' is {dtype.name}, which it does not take"
            )
        if variable is not None and bindings.setdefault(variable, dtype) is not dtype:
            raise InvalidModelError(
                f"{label}: its inputs are {bindings[variable].name} and {dtype.name}, but must be of one type"
            )


def _check_graph(graph: onnx.GraphProto, opset: int | None, label: str, depth: int) -> None:
    for node in graph.node:
        if node.domain not in ("", "ai.onnx") or opset is None:
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, "")
        except onnx.defs.SchemaError:
            continue
        inner = f"{label}, in its subgraph: {node.op_type} node '{node.name or next(iter(node.output), '')}'"
        check_node(node, schema, opset, inner, depth)


def _check_attention(proto: onnx.NodeProto, types: Mapping[str, TypeProto], label: str) -> None:
    """ONNX Runtime divides by the size of a head, whatever the attributes make of it."""
    if proto.op_type != "Attention" or proto.domain not in ("", "ai.onnx"):
        return
    heads = {attribute.name: attribute.i for attribute in proto.attribute}
    for name, which in zip(proto.input, ("q_num_heads", "kv_num_heads", "kv_num_heads"), strict=False):
        dims = list(types[name].tensor_type.shape.dim) if name in types else []
        count = heads.get(which, 0)
        if len(dims) == 3 and dims[2].HasField("dim_value") and (count < 1 or dims[2].dim_value % count):
            raise InvalidModelError(
                f"{label}: {which} = {count} does not divide {dims[2].dim_value} channels"
            )
        if len(dims) == 4 and which in heads and count < 1:
            raise InvalidModelError(f"{label}: {which} = {count}")


def _check_split(proto: onnx.NodeProto, types: Mapping[str, TypeProto], label: str) -> None:
    """ONNX's inference, and ONNX Runtime, look for a size for every output, however few there are."""
    if proto.op_type != "Split" or proto.domain not in ("", "ai.onnx"):
        return
    counts = [len(a.ints) for a in proto.attribute if a.name == "split"]
    counts += [a.i for a in proto.attribute if a.name == "num_outputs"]
    if len(proto.input) > 1 and proto.input[1] in types:
        dims = types[proto.input[1]].tensor_type.shape.dim
        counts += [dim.dim_value for dim in dims if dim.HasField("dim_value")]
    for count in counts:
        if count != len(proto.output):
            raise InvalidModelError(f"{label}: it has {len(proto.output)} outputs, but sizes for {count}")


def _infer_control(
    proto: onnx.NodeProto,
    imports: Sequence[onnx.OperatorSetIdProto],
    types: Mapping[str, TypeProto],
    data: Mapping[str, TensorProto],
) -> dict[str, TypeProto]:
    """A node with subgraphs: `types` has those of the outer tensors that they use, so it is made a model of its own."""
    if not _is_standard(proto):
        return {}
    inputs = [onnx.ValueInfoProto(name=name, type=kind) for name, kind in types.items() if name not in data]
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "node", inputs, outputs, list(data.values()))
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    return {
        info.name: info.type for info in (*inferred.value_info, *inferred.output) if info.name in proto.output
    }


def _is_standard(proto: onnx.NodeProto) -> bool:
    """True if a node and all in its subgraphs are ONNX's own: the inference of other domains is less careful.

    It is with `Split`, too, and in a subgraph its sizes cannot be checked before (see `_check_split`).
    """
    if proto.op_type == "Split":
        return False
    return proto.domain in ("", "ai.onnx") and all(
        _is_standard(node)
        for attribute in proto.attribute
        if attribute.HasField("g")
        for node in attribute.g.node
    )


def infer_outputs(
    proto: onnx.NodeProto,
    schema: OpSchema,
    opset: int,
    types: Mapping[str, TypeProto],
    data: Mapping[str, TensorProto],
    label: str,
) -> dict[str, TypeProto]:
    """The types of a node's outputs by ONNX's own inference; those that it cannot tell are left out."""
    check_node(proto, schema, opset, label)
    _check_attention(proto, types, label)
    _check_split(proto, types, label)
    imports = [onnx.helper.make_opsetid(proto.domain, opset)]
    if proto.domain:
        imports.append(onnx.helper.make_opsetid("", 21))
    try:
        if any(attribute.HasField("g") for attribute in proto.attribute):
            return _infer_control(proto, imports, types, data)
        given = {name: kind for name, kind in types.items() if name in proto.input}
        return shape_inference.infer_node_outputs(
            schema, proto, given, dict(data), opset_imports=imports, ir_version=10
        )
    except Exception:  # the C++ side raises several kinds, and what it cannot infer may still be declared
        return {}
