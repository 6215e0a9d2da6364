"""Operators of plugins in C among host operators: the C runtime calls them by domain and name (native/include/npu_plugin.h)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from onnx import ModelProto, NodeProto, helper, numpy_helper

from npuc.arithmetic.dtypes import dtype_of
from npuc.codegen.host_ops.builder import Builder, real
from npuc.codegen.host_ops.rules import Node, NoHostOperator, Rule
from npuc.errors import NpucError
from npuc.kernels.custom import KERNELS, custom_nodes
from npuc.kernels.native_ops import NativeKernel, infer
from npuc.program.host_ops import MOST_OPERANDS

_MOST_ATTRIBUTES = 32
_Types = Mapping[str, tuple[str, tuple[int, ...] | None]]


def rule_of_plugin(node: NodeProto) -> Rule | None:
    """The rule of a node whose operator a plugin in C has; None if none is loaded."""
    return _custom if isinstance(KERNELS.get((node.domain, node.op_type)), NativeKernel) else None


def _custom(node: Node, build: Builder) -> None:
    count = len(node.proto.output)
    if len(node.inputs) + count > MOST_OPERANDS or not all(node.proto.input) or not all(node.proto.output):
        raise NoHostOperator(f"it has more than {MOST_OPERANDS} tensors, or leaves some out")
    inputs = [node.static(index) for index in range(len(node.inputs))]
    numbers = [*_text(node.proto.domain), *_text(node.proto.op_type), len(node.proto.attribute)]
    if len(node.proto.attribute) > _MOST_ATTRIBUTES:
        raise NoHostOperator(f"it has more than {_MOST_ATTRIBUTES} attributes")
    for attribute in node.proto.attribute:
        numbers += _attribute(attribute.name, node.attribute(attribute.name))
    build.add("custom", inputs, [node.output(index) for index in range(count)], *numbers)


def _text(text: str) -> list[int]:
    """A text as numbers: how many follow, and its bytes with zeros behind them.

    >>> _text("ab")
    [1, 25185]
    """
    data = text.encode() + b"\0"
    data += bytes(-len(data) % 8)
    return [len(data) // 8, *struct.unpack(f"<{len(data) // 8}q", data)]


def _attribute(name: str, value: Any) -> list[int]:
    if isinstance(value, str):
        return [2, 1, *_text(name), *_text(value)]
    several = list(value) if isinstance(value, list | tuple) else [value]
    if all(isinstance(item, int) for item in several):
        return [0, len(several), *_text(name), *several]
    if all(isinstance(item, int | float) for item in several):
        return [1, len(several), *_text(name), *(real(float(item)) for item in several)]
    raise NoHostOperator(f"its attribute '{name}' is neither numbers nor a text")


def with_plugin_types(proto: ModelProto, types_of: Callable[[ModelProto], _Types]) -> ModelProto:
    """The model with the types of what operators of plugins make, which ONNX's inference does not know."""
    typed = ModelProto()
    typed.CopyFrom(proto)
    initial = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    declared = {value.name for value in proto.graph.output}
    for index in custom_nodes(proto):
        node = proto.graph.node[index]
        kernel = KERNELS.get((node.domain, node.op_type))
        if not isinstance(kernel, NativeKernel) or declared.issuperset(node.output):
            continue
        known = {name: (dtype_of(array.dtype).name, array.shape) for name, array in initial.items()}
        known |= {name: (kind, shape) for name, (kind, shape) in types_of(typed).items() if shape is not None}
        known |= {
            value.name: (
                dtype_of(value.type.tensor_type.elem_type).name,
                tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
            )
            for value in proto.graph.input
        }
        if any(name not in known for name in node.input):
            continue
        attributes = {item.name: _plain(helper.get_attribute_value(item)) for item in node.attribute}
        try:
            results = infer(kernel.op, [known[name] for name in node.input], attributes, len(node.output))
        except NpucError:
            continue
        typed.graph.value_info.extend(
            helper.make_tensor_value_info(name, dtype_of(kind).onnx, shape)
            for name, (kind, shape) in zip(node.output, results, strict=True)
        )
    return typed


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
