"""The lowest operator set that a finished model is valid under, and means the same.

The rules write nodes as operator set 21 has them. Many tools read older sets only, and most nodes mean the same there: an
operator is given a new version for a type or an attribute that few networks use. A node may go down to an older version of its
operator if that has all its attributes, takes its numbers of inputs and outputs and their types, and leaves attributes that the
node does not state at the same default. Operators whose meaning changed without any of that are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, shape_inference

FLOOR: Final = 13
"""QuantizeLinear has an axis from here on."""
_IR_VERSIONS: Final = ((21, 10), (19, 9), (15, 8), (FLOOR, 7))
"""The IR version that came with an operator set."""
_MEANS_SOMETHING_ELSE_BEFORE: Final = {
    "GroupNormalization": 21,  # scales were those of groups, and are those of channels
    "Resize": 19,  # sizes that do not fill a pixel were cut elsewhere
    "AveragePool": 19,  # ceil mode counted positions behind the padding
    "BatchNormalization": 15,
}


def use_lowest_opset(model: ModelProto) -> None:
    """Give a model of one domain the lowest operator set and IR version that it is valid under, in place."""
    if [entry.domain for entry in model.opset_import] != [""] or not model.graph.node:
        return
    types = _element_types(model)
    needed = max(_lowest(node, types, model.opset_import[0].version) for node in _nodes(model.graph))
    version = max(FLOOR, needed)
    if version >= model.opset_import[0].version:
        return
    model.opset_import[0].version = version
    model.ir_version = next(ir for since, ir in _IR_VERSIONS if version >= since)


def _nodes(graph: GraphProto) -> Iterable[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _element_types(model: ModelProto) -> dict[str, int]:
    """The element type of every tensor that has a name."""
    inferred = shape_inference.infer_shapes(model).graph
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        types[info.name] = info.type.tensor_type.elem_type
    return types


def _lowest(node: NodeProto, types: Mapping[str, int], version: int) -> int:
    """The oldest version of its operator that a node can have."""
    schema = defs.get_schema(node.op_type, version, node.domain)
    least = _MEANS_SOMETHING_ELSE_BEFORE.get(node.op_type, FLOOR)
    while schema.since_version > least:
        try:
            older = defs.get_schema(node.op_type, schema.since_version - 1, node.domain)
        except defs.SchemaError:
            break
        if not _means_the_same(node, older, schema, types):
            break
        schema = older
    return int(schema.since_version)


def _means_the_same(node: NodeProto, older: Any, newer: Any, types: Mapping[str, int]) -> bool:
    stated = {attribute.name for attribute in node.attribute}
    if older.deprecated or not stated <= older.attributes.keys():
        return False
    for name in newer.attributes.keys() & older.attributes.keys() - stated:
        if _default(newer.attributes[name]) != _default(older.attributes[name]):
            return False
    sides = (
        (node.input, older.inputs, older.min_input, older.max_input),
        (node.output, older.outputs, older.min_output, older.max_output),
    )
    for names, formals, least, most in sides:
        if not least <= len(names) <= most:
            return False
        for index, name in enumerate(names):
            formal = formals[min(index, len(formals) - 1)]
            if name and name in types and _type_name(types[name]) not in formal.types:
                return False
    return True


def _default(attribute: Any) -> Any:
    value: AttributeProto = attribute.default_value
    return helper.get_attribute_value(value) if value.type else None


def _type_name(element: int) -> str:
    return f"tensor({TensorProto.DataType.Name(element).lower()})" if element else ""
