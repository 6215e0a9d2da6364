"""From the ONNX model of a CPU subgraph to its section of host operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference

from npuc.codegen.host_ops import elementwise, linear, movement, reduction, selection  # noqa: F401 - rules
from npuc.codegen.host_ops.builder import DTYPES, Builder, HostTensor, refused
from npuc.codegen.host_ops.custom import rule_of_plugin, with_plugin_types
from npuc.codegen.host_ops.rules import RULES, Node, NoHostOperator
from npuc.program.layout import MOST_AXES
from npuc.program.model import Tensor

_Type = tuple[str, tuple[int, ...] | None]


def host_section(model: bytes, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bytes:
    """The host operators of a subgraph; where C lacks one, a section that says so."""
    proto = ModelProto.FromString(model)
    try:
        return _lower(proto, inputs, outputs).section().encoded()
    except NoHostOperator as refusal:
        return refused(str(refusal)).encoded()


def _lower(proto: ModelProto, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Builder:
    build = Builder()
    values: dict[str, HostTensor] = {}
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype in DTYPES and array.size and array.ndim <= MOST_AXES:
            values[tensor.name] = build.constant(array)
    for number, port in enumerate(inputs):
        values[port.name] = build.input(number, port)
    types = _types(with_plugin_types(proto, _types))
    for node in proto.graph.node:
        build.layer = node.name or node.output[0]
        try:
            _apply(node, values, types, build)
        except NoHostOperator as refusal:
            title = f"{node.domain}:{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
            raise NoHostOperator(f"{title} of the layer '{build.layer}': {refusal}") from None
    for number, port in enumerate(outputs):
        value = values.get(port.name)
        if value is None or prod(value.shape) != prod(port.shape) or value.rows is not None:
            raise NoHostOperator(f"the output '{port.name}' has another shape than the file states")
        build.output(build.view(value, port.shape), number, port)
    return build


def _apply(
    node: NodeProto, values: dict[str, HostTensor], types: Mapping[str, _Type], build: Builder
) -> None:
    rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else rule_of_plugin(node)
    if rule is None:
        raise NoHostOperator("C has no such operator")
    operands: list[HostTensor | None] = []
    for name in node.input:
        if name and name not in values:
            raise NoHostOperator(f"'{name}' has an element type or a size that C has not")
        operands.append(values[name] if name else None)
    applied = Node(node, operands, [types.get(name, ("", None)) for name in node.output], build, {})
    for index, name in enumerate(node.output):
        if name and applied.types[index][0] not in DTYPES.values():
            raise NoHostOperator("C does not compute with the element type of its result")
    rule(applied, build)
    for index, value in applied.results.items():
        if len(value.shape) > MOST_AXES:
            raise NoHostOperator(f"its result has more than {MOST_AXES} axes")
        if index < len(node.output) and node.output[index]:
            values[node.output[index]] = value


def _types(proto: ModelProto) -> dict[str, _Type]:
    """Element type and, where it is known, shape of every tensor."""
    graph = shape_inference.infer_shapes(proto, data_prop=True).graph
    types: dict[str, _Type] = {}
    for info in (*graph.value_info, *graph.output):
        tensor = info.type.tensor_type
        if tensor.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
            continue
        sizes = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in tensor.shape.dim]
        known = tensor.HasField("shape") and all(size > 0 for size in sizes)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        types[info.name] = DTYPES.get(dtype, str(dtype)), tuple(sizes) if known else None
    return types
