"""Nodes that npuc has no form for: custom ops of a domain of their own, so that an import never fails because of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuc.errors import NpucError
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor
from npuc.frontend.tensorflow.graph import TensorflowNode
from npuc.frontend.tensorflow.tensors import element_type, read_shape
from npuc.frontend.tensorflow.wire import WireMessage, as_float, signed
from npuc.ir import DYNAMIC, tensor_type

DOMAIN = "npuc.tensorflow"


def custom(
    c: ChannelsLastBuilder, node: TensorflowNode, tensors: Sequence[LayoutTensor], count: int
) -> list[LayoutTensor]:
    """A custom op with the node's plain attributes; shapes are known where the file states them."""
    values = c.onnx(
        node.op,
        [c.value(x) for x in tensors],
        [_type(node, tensors, index) for index in range(count)],
        f"npuc has no form of TensorFlow's {node.op}",
        attributes_of(node),
        domain=DOMAIN,
    )
    return [LayoutTensor(value) for value in values]


def _type(node: TensorflowNode, tensors: Sequence[LayoutTensor], index: int) -> Any:
    code = next((code for key in ("T", "dtype", "DstT", "out_type") if (code := node.type_code(key))), 0)
    dtype = element_type(code, node.label) if code else tensors[0].dtype
    stated = node.attributes.get("_output_shapes")
    listed = None if stated is None else stated.part(1)
    shapes = [] if listed is None else list(listed.parts(7))
    shape = read_shape(shapes[index]) if index < len(shapes) else None
    return tensor_type(None if shape is None else [DYNAMIC if n == -1 else n for n in shape], dtype)


def attributes_of(node: TensorflowNode) -> dict[str, Any]:
    """The attributes of a node that are numbers, texts and lists of numbers."""
    attributes: dict[str, Any] = {}
    for name, message in node.attributes.items():
        if name.startswith("_"):
            continue
        for number, value in message.fields():
            try:
                plain = _plain(number, value)
            except NpucError:
                continue
            if plain is not None:
                attributes[name] = plain
    return attributes


def _plain(number: int, value: int | WireMessage) -> Any:
    if isinstance(value, int):
        return signed(value) if number == 3 else as_float(value) if number == 4 else value
    if number == 2 and value.size <= 4096:
        return value.data
    listed = [signed(n) for n in value.varints(3)] if number == 1 else []
    return listed or None
