"""The escape hatch: any node as `top.onnx`, its result types from ONNX's own inference.

An operator that is only a function of others, and newer than what ONNX Runtime knows, is expanded into its body first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from onnx import TypeProto, numpy_helper
from onnx.defs import OpSchema, get_schema

from npuc.errors import InvalidModelError, UnsupportedTypeError
from npuc.frontend.onnx.fold import MAX_OPSET
from npuc.frontend.onnx.lifting import lift_constants
from npuc.frontend.onnx.node import OnnxNode
from npuc.frontend.onnx.reader import element_type
from npuc.frontend.onnx.scope import Meaning, OnnxScope
from npuc.frontend.onnx.upgrade import upgrade, upgrade_graph
from npuc.frontend.onnx.validity import infer_outputs
from npuc.ir import DYNAMIC, Value, Weight, dtype_of, location, shape_of, tensor_type, top
from npuc.ir.onnx_attributes import encode_attribute

BASE_OPSET = 21
"""The operator set that exported models use unless an op needs a newer one."""
_DATA_LIMIT = 1024


def schema_of(op_type: str, domain: str, opset: int) -> OpSchema | None:
    """ONNX's own definition of an operator, or None."""
    try:
        return get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def captured_names(graph: onnx.GraphProto) -> list[str]:
    """Outer names that a subgraph uses, in order of first use."""
    inner = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    captured: dict[str, None] = {}
    for node in graph.node:
        names = list(node.input)
        for attribute in node.attribute:
            for nested in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                names += captured_names(nested)
        captured.update(dict.fromkeys(name for name in names if name and name not in inner))
        inner |= set(node.output)
    captured.update(dict.fromkeys(o.name for o in graph.output if o.name and o.name not in inner))
    return list(captured)


def type_proto(value: Meaning) -> TypeProto:
    """The ONNX type of a meaning."""
    dtype = value.dtype if isinstance(value, Weight) else dtype_of(value.type)
    proto = TypeProto()
    proto.tensor_type.elem_type = dtype.onnx
    shape: tuple[int, ...] | None = value.shape if isinstance(value, Weight) else _known_shape(value)
    if shape is not None:
        proto.tensor_type.shape.SetInParent()
        for size in shape:
            dim = proto.tensor_type.shape.dim.add()
            if size != DYNAMIC:
                dim.dim_value = size
    return proto


def _known_shape(value: Value) -> tuple[int, ...] | None:
    try:
        return shape_of(value)
    except TypeError:
        return None


def to_type(proto: TypeProto, what: str) -> Any:
    """The IR type of an ONNX type."""
    kind = proto.WhichOneof("value")
    if kind != "tensor_type":
        names = {"sequence_type": "a sequence", "optional_type": "an optional", "map_type": "a map"}
        raise UnsupportedTypeError(f"{what} is {names.get(str(kind), 'of no known type')}, not a tensor")
    tensor = proto.tensor_type
    dtype = element_type(tensor.elem_type, what)
    if not tensor.HasField("shape"):
        return tensor_type(None, dtype)
    dims = [
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else DYNAMIC for d in tensor.shape.dim
    ]
    return tensor_type(dims, dtype)


def _from_branches(proto: onnx.NodeProto) -> dict[str, TypeProto]:
    """The types that a control-flow node's own subgraphs declare for its outputs, ranks only."""
    for attribute in proto.attribute:
        if not attribute.HasField("g"):
            continue
        skip = {"If": 0, "Loop": 1}.get(proto.op_type, 0)
        types = {}
        for name, info in zip(proto.output, attribute.g.output[skip:], strict=False):
            if info.type.WhichOneof("value") != "tensor_type":
                types[name] = info.type
            elif info.type.tensor_type.elem_type:
                bare = TypeProto()
                bare.tensor_type.elem_type = info.type.tensor_type.elem_type
                types[name] = bare
        return types
    return {}


def _infer(
    proto: onnx.NodeProto,
    schema: OpSchema | None,
    meanings: dict[str, Meaning],
    opset: int,
    declared: Callable[[str], TypeProto | None],
    label: str,
) -> dict[str, TypeProto]:
    inferred: dict[str, TypeProto] = {}
    if schema is not None:
        types = {name: type_proto(meaning) for name, meaning in meanings.items()}
        data = {
            name: numpy_helper.from_array(meaning.array(), name)
            for name, meaning in meanings.items()
            if isinstance(meaning, Weight)
            and meaning.nbytes <= _DATA_LIMIT
            and meaning.dtype.name != "string"
        }
        inferred = infer_outputs(proto, schema, opset, types, data, label)
    if any(attribute.HasField("g") for attribute in proto.attribute):
        inferred = {**_from_branches(proto), **inferred}
    inferred = {name: kind for name, kind in inferred.items() if _is_known(kind)}
    for name in proto.output:
        if name and name not in inferred:
            kind = declared(name)
            if kind is not None and _is_known(kind):
                inferred[name] = kind
    return inferred


def _is_known(kind: TypeProto) -> bool:
    which = kind.WhichOneof("value")
    return which is not None and (which != "tensor_type" or kind.tensor_type.elem_type != 0)


def emit_onnx(
    scope: OnnxScope, node: OnnxNode, reason: str, declared: Callable[[str], TypeProto | None]
) -> dict[str, Value]:
    """Append a `top.onnx` op for a node; returns its outputs by name."""
    proto, constants = upgrade(node)
    domain = node.domain
    opset = max(node.opset, BASE_OPSET) if domain == "" else node.opset
    if domain == "" and opset > MAX_OPSET:
        opset = MAX_OPSET
    schema = schema_of(proto.op_type, domain, opset)
    if schema is None and domain == "":
        raise InvalidModelError(f"{node.label}: there is no operator '{node.op_type}' in opset {node.opset}")
    operands: list[Value] = []
    arguments: list[int] = []
    meanings: dict[str, Meaning] = {}
    first = next((name for name in node.outputs if name), node.op_type)
    for index, name in enumerate(proto.input):
        if index in constants:
            name = proto.input[index] = f"{first}/input{index}"
            meaning: Meaning | None = Weight.of(constants[index])
        elif name == "":
            arguments.append(-1)
            continue
        else:
            meaning = scope.lookup(name)
        if meaning is None:
            raise InvalidModelError(f"{node.label}: its input '{name}' is not defined anywhere before it")
        meanings[name] = meaning
        arguments.append(len(operands))
        operands.append(scope.value(meaning, name))
    captures: list[str] = []
    captured: dict[str, Meaning] = {}
    lifted: dict[str, Meaning] = {}

    def lift(name: str, weight: Weight) -> str:
        inner = f"{first}/{name}"
        while inner in lifted:
            inner += "'"
        lifted[inner] = weight
        return inner

    for attribute in proto.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            upgrade_graph(graph, scope.opsets[""])
            lift_constants(graph, scope.source, lift)
            for name in captured_names(graph):
                if name in captures:
                    continue
                meaning = lifted.get(name) or scope.lookup(name)
                if meaning is None:
                    raise InvalidModelError(f"{node.label}: its subgraph uses '{name}', which is not defined")
                captures.append(name)
                captured[name] = meaning
                operands.append(scope.value(meaning, name))
    inferred = _infer(proto, schema, {**meanings, **captured}, opset, declared, node.label)
    used = [index for index, name in enumerate(node.outputs) if name]
    types = []
    for index in used:
        name = node.outputs[index]
        if name not in inferred:
            if meanings:
                # An operator of a foreign domain: nothing is known but that such ops keep their element type.
                guess = TypeProto()
                guess.tensor_type.elem_type = type_proto(next(iter(meanings.values()))).tensor_type.elem_type
                inferred[name] = guess
            else:
                raise UnsupportedTypeError(f"{node.label}: the type of its output '{name}' is not known")
        types.append(to_type(inferred[name], f"{node.label}: its output '{name}'"))
    since = schema.since_version if schema is not None else opset
    op = top.Onnx.create(
        operands=operands,
        result_types=types,
        properties={
            key: top.Onnx.attribute_of(key, value)
            for key, value in {
                "op_type": proto.op_type,
                "domain": domain,
                "version": since,
                "onnx_attributes": {a.name: encode_attribute(a) for a in proto.attribute},
                "arguments": arguments,
                "captures": captures,
                "outputs_used": used,
                "reason": reason,
            }.items()
        },
        location=location([scope.unique(node.outputs[index]) for index in used], node.proto.name or None),
    )
    scope.graph.block.add_op(op)
    return {node.outputs[index]: value for index, value in zip(used, op.results, strict=True)}
