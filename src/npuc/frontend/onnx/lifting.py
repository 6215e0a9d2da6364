"""Constants of a subgraph that stays ONNX are lifted out of it, to be weights like all others.

The text of a `top.onnx` op holds its subgraphs; their tensors belong in the weight file. A lifted tensor is captured
from outside under a new name, because the branches of an `If` may use one name for different tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from npuc.frontend.onnx.reader import OnnxSource
from npuc.ir import Weight

SMALL = 64
"""Tensors up to this many elements stay where they are."""


def lift_constants(
    graph: onnx.GraphProto,
    source: OnnxSource,
    define: Callable[[str, Weight], str],
    renamed: dict[str, str] | None = None,
) -> None:
    """Take the large constants out of a graph, in place; `define` makes them known outside and gives their names."""
    names = dict(renamed or {})
    for info in graph.input:
        names.pop(info.name, None)
    own_outputs = {info.name for info in graph.output}
    inputs = {info.name for info in graph.input}
    kept = []
    for tensor in graph.initializer:
        names.pop(tensor.name, None)
        weight = source.weight(tensor)
        if tensor.name in own_outputs or tensor.name in inputs or _stays(tensor, weight):
            kept.append(_inlined(tensor, weight))
        else:
            names[tensor.name] = define(tensor.name, weight)
    del graph.initializer[:]
    graph.initializer.extend(kept)
    nodes = []
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None and node.output[0] not in own_outputs:
            weight = source.weight(value)
            if not _stays(value, weight):
                names[node.output[0]] = define(node.output[0], weight)
                continue
        for name in node.output:
            names.pop(name, None)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.CopyFrom(_inlined(attribute.t, source.weight(attribute.t)))
            for nested in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                lift_constants(nested, source, define, names)
        nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del graph.node[:]
    graph.node.extend(nodes)


def _stays(tensor: onnx.TensorProto, weight: Weight) -> bool:
    in_message = tensor.data_location != onnx.TensorProto.EXTERNAL
    elements = 1
    for size in weight.shape:
        elements *= size
    return (in_message and elements <= SMALL) or not weight.dtype.storage


def _inlined(tensor: onnx.TensorProto, weight: Weight) -> onnx.TensorProto:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return tensor
    return onnx.numpy_helper.from_array(weight.array(), tensor.name)
