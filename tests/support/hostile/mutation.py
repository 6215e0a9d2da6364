"""Deterministic damage to models: mutation `seed` of a model is always the same bytes.

Half of the mutations work on the bytes of a file (flips, deletions, insertions, swapped blocks, truncation); the other
half on the decoded message, where what they make is still a well-formed protobuf: swapped inputs, other names, absurd
dimensions, other element types and attribute values, nodes dropped, doubled, moved.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import onnx
from onnx import AttributeProto

_NUMBERS = (0, 1, -1, 2, 3, 7, -2, 255, 65536, 2**31 - 1, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -1.0, 1e-30, 1e30, 3.5, float("nan"), float("inf"), -float("inf"))
_TEXTS = (
    b"",
    b"NOTSET",
    b"SAME_UPPER",
    b"VALID",
    b"linear",
    b"cubic",
    b"nearest",
    b"reverse",
    b"\xff\xfe",
    b"x" * 300,
)
_OPS = (
    "Add", "MatMul", "Conv", "Concat", "Reshape", "Relu", "Gather", "Cast", "If", "Loop", "Scan", "Slice", "Split",
    "Transpose", "Softmax", "MaxPool", "LSTM", "GRU", "Resize", "TopK", "NonZero", "Expand", "Tile", "Range",
    "ConstantOfShape", "OneHot", "Pad", "Squeeze", "Unsqueeze", "ReduceSum", "BatchNormalization", "Gemm", "Einsum",
    "Where", "QuantizeLinear", "DequantizeLinear", "ConvTranspose", "CumSum", "EyeLike", "GridSample", "RoiAlign",
    "NonMaxSuppression", "GatherND", "ScatterND", "ScatterElements", "GatherElements", "DepthToSpace", "SpaceToDepth",
    "LpPool", "MaxUnpool", "Upsample", "Compress", "Unique", "DFT", "STFT", "HannWindow", "MelWeightMatrix", "Col2Im",
    "CenterCropPad", "AffineGrid", "Attention", "SequenceEmpty", "Optional", "StringConcat", "NoSuchOperator",
)  # fmt: skip


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 3, 8))):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _delete(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 1, 2, 8, 100))]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(
        (rng.randbytes(rng.choice((1, 2, 8, 64))), b"\xff" * 12, b"\x80" * 12, b"\x00" * 8)
    )


def _swap_blocks(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((1, 4, 16, 64))
    a, b = (rng.randrange(max(1, len(data) - size)) for _ in range(2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _repeat_block(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((2, 16, 128))
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + size]


BYTES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip, _flip, _flip, _replace, _delete, _insert, _swap_blocks, _truncate, _repeat_block,
)  # fmt: skip


def graphs_of(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The main graph and all that are nested in it."""
    graphs, stack = [], [model.graph]
    while stack:
        graph = stack.pop()
        graphs.append(graph)
        for node in graph.node:
            for attribute in node.attribute:
                stack += [attribute.g] if attribute.HasField("g") else []
                stack += attribute.graphs
    return graphs


def _names(graph: onnx.GraphProto) -> list[str]:
    names = [info.name for info in (*graph.input, *graph.initializer)]
    names += [name for node in graph.node for name in node.output]
    return [name for name in names if name] or ["x"]


def _node(graph: onnx.GraphProto, rng: random.Random) -> onnx.NodeProto | None:
    return rng.choice(graph.node) if graph.node else None


def _retarget_input(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is not None and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(
            (*_names(graph), *_names(graph), "", "nowhere")
        )


def _swap_inputs(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is not None and len(node.input) > 1:
        inputs = list(node.input)
        rng.shuffle(inputs)
        node.input[:] = inputs


def _change_arity(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is None:
        return
    field = rng.choice((node.input, node.input, node.output))
    if field and rng.random() < 0.5:
        del field[rng.randrange(len(field)) :]
    else:
        field.append(rng.choice((*_names(graph), "fresh", "")))


def _rename_output(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is not None and node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice((*_names(graph), "fresh", "", "ü\n'\"%s{}"))


def _drop_node(graph: onnx.GraphProto, rng: random.Random) -> None:
    if graph.node:
        del graph.node[rng.randrange(len(graph.node))]


def _double_node(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is not None:
        copy = graph.node.add()
        copy.CopyFrom(node)
        if rng.random() < 0.5:
            copy.output[:] = [f"{name}.copy" for name in copy.output]


def _shuffle_nodes(graph: onnx.GraphProto, rng: random.Random) -> None:
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    rng.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def _change_operator(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is not None:
        if rng.random() < 0.85:
            node.op_type = rng.choice(_OPS)
        else:
            node.domain = rng.choice(("custom", "ai.onnx.ml", "com.microsoft", "ai.onnx", "no.such.domain"))


def _set_number(values: Any, rng: random.Random, choices: tuple[Any, ...]) -> None:
    action = rng.random()
    if values and action < 0.6:
        values[rng.randrange(len(values))] = rng.choice(choices)
    elif values and action < 0.8:
        del values[rng.randrange(len(values))]
    else:
        values.append(rng.choice(choices))


def _change_attribute(graph: onnx.GraphProto, rng: random.Random) -> None:
    candidates = [attribute for node in graph.node for attribute in node.attribute]
    if not candidates:
        return
    attribute = rng.choice(candidates)
    action = rng.random()
    if action < 0.1:
        attribute.type = rng.choice(AttributeProto.AttributeType.values())
    elif action < 0.15:
        attribute.name = rng.choice(("axis", "axes", "to", "body", "nonsense", ""))
    elif action < 0.2:
        attribute.ref_attr_name = "elsewhere"
    elif attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(_NUMBERS)
    elif attribute.type == AttributeProto.INTS:
        _set_number(attribute.ints, rng, _NUMBERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(_FLOATS)
    elif attribute.type == AttributeProto.FLOATS:
        _set_number(attribute.floats, rng, _FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice(_TEXTS)
    elif attribute.type == AttributeProto.STRINGS:
        _set_number(attribute.strings, rng, _TEXTS)
    elif attribute.type == AttributeProto.TENSOR:
        _damage_tensor(attribute.t, rng)


_ATTRIBUTES = (
    "axis", "axes", "kernel_shape", "pads", "strides", "dilations", "group", "perm", "keepdims", "to", "size", "mode",
    "blocksize", "num_outputs", "hidden_size", "direction", "equation", "output_shape", "epsilon", "k", "value",
)  # fmt: skip


def _add_attribute(graph: onnx.GraphProto, rng: random.Random) -> None:
    node = _node(graph, rng)
    if node is None:
        return
    ints = [rng.choice(_NUMBERS) for _ in range(rng.randrange(1, 5))]
    value = rng.choice((rng.choice(_NUMBERS), ints, rng.choice(_FLOATS), rng.choice(_TEXTS)))
    node.attribute.append(onnx.helper.make_attribute(rng.choice(_ATTRIBUTES), value))


def _drop_attribute(graph: onnx.GraphProto, rng: random.Random) -> None:
    nodes = [node for node in graph.node if node.attribute]
    if nodes:
        node = rng.choice(nodes)
        del node.attribute[rng.randrange(len(node.attribute))]


def _damage_tensor(tensor: onnx.TensorProto, rng: random.Random) -> None:
    action = rng.randrange(5)
    if action == 0:
        _set_number(tensor.dims, rng, _NUMBERS)
    elif action == 1:
        tensor.data_type = rng.choice((*range(0, 27), 9999, -1))
    elif action == 2 and tensor.raw_data:
        raw = bytearray(tensor.raw_data)
        for _ in range(rng.choice((1, 2, 8))):
            raw[rng.randrange(len(raw))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        tensor.raw_data = bytes(raw[: rng.choice((len(raw), len(raw), len(raw) // 2))])
    elif action == 3:
        for field in (tensor.int64_data, tensor.int32_data, tensor.float_data):
            if field:
                _set_number(field, rng, (0, 1, -1, 7, 2**30, -(2**30)))
    else:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key = rng.choice(("location", "offset", "length"))
        entry.value = rng.choice(
            ("weights.bin", "../weights.bin", "/etc/hostname", "*", "1", "-1", str(2**63), "x", "")
        )


def _change_constant(graph: onnx.GraphProto, rng: random.Random) -> None:
    if graph.initializer:
        _damage_tensor(rng.choice(graph.initializer), rng)


def _change_constant_value(graph: onnx.GraphProto, rng: random.Random) -> None:
    """Another value in a small integer constant: a shape, an axis, a trip count."""
    small = [t for t in graph.initializer if t.data_type == onnx.TensorProto.INT64 and _is_sound(t)]
    if small:
        tensor = rng.choice(small)
        values = onnx.numpy_helper.to_array(tensor).copy()
        if values.size:
            values.reshape(-1)[rng.randrange(values.size)] = rng.choice(_NUMBERS)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def _is_sound(tensor: onnx.TensorProto) -> bool:
    return not tensor.external_data and prod(tensor.dims) == len(tensor.raw_data) // 8 + len(
        tensor.int64_data
    )


def _drop_constant(graph: onnx.GraphProto, rng: random.Random) -> None:
    if graph.initializer:
        del graph.initializer[rng.randrange(len(graph.initializer))]


def _change_port(graph: onnx.GraphProto, rng: random.Random) -> None:
    ports = [*graph.input, *graph.input, *graph.output, *graph.value_info]
    if not ports:
        return
    port = rng.choice(ports)
    action = rng.randrange(6)
    dims = port.type.tensor_type.shape.dim
    if action == 0:
        port.name = rng.choice((*_names(graph), "fresh", ""))
    elif action == 1:
        port.type.tensor_type.elem_type = rng.choice((*range(0, 27), 9999))
    elif action == 2 and dims:
        rng.choice(dims).dim_value = rng.choice(_NUMBERS)
    elif action == 3 and dims:
        del dims[rng.randrange(len(dims))]
    elif action == 4:
        dims.add().dim_value = rng.choice(_NUMBERS)
    else:
        port.ClearField("type")
        if rng.random() < 0.5:
            port.type.sequence_type.elem_type.tensor_type.elem_type = 1


def _drop_port(graph: onnx.GraphProto, rng: random.Random) -> None:
    field = rng.choice((graph.input, graph.output))
    if field:
        del field[rng.randrange(len(field))]


def _exchange_graphs(model: onnx.ModelProto, rng: random.Random) -> None:
    graphs = graphs_of(model)[1:]
    if len(graphs) > 1:
        a, b = rng.sample(graphs, 2)
        copy = onnx.GraphProto.FromString(b.SerializeToString())
        a.CopyFrom(copy)


def _change_opset(model: onnx.ModelProto, rng: random.Random) -> None:
    if model.opset_import and rng.random() < 0.9:
        rng.choice(model.opset_import).version = rng.choice((*range(0, 30), 999, -1, 2**62))
    else:
        del model.opset_import[:]


def _change_function(model: onnx.ModelProto, rng: random.Random) -> None:
    if not model.functions:
        return _change_opset(model, rng)
    function = rng.choice(model.functions)
    action = rng.randrange(6)
    if action == 0 and function.node:
        node = rng.choice(function.node)
        node.op_type, node.domain = function.name, function.domain
    elif action == 1:
        function.name = rng.choice(("twice", "soft", "scaled", "", "Add"))
    elif action == 2:
        function.domain = rng.choice(("", "custom", "ai.onnx"))
    elif action == 3 and function.node:
        del function.node[rng.randrange(len(function.node))]
    elif action == 4:
        del function.input[:]
    else:
        _change_opset(model, rng)
    return None


_GRAPH: tuple[Callable[[onnx.GraphProto, random.Random], None], ...] = (
    _retarget_input, _retarget_input, _swap_inputs, _change_arity, _rename_output, _drop_node, _double_node,
    _shuffle_nodes, _change_operator, _change_operator, _change_attribute, _change_attribute, _change_attribute,
    _add_attribute, _drop_attribute, _change_constant, _change_constant, _change_constant_value, _change_constant_value,
    _drop_constant, _change_port, _change_port, _drop_port,
)  # fmt: skip
_MODEL: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    _exchange_graphs, _change_opset, _change_function,
)  # fmt: skip


def mutated(original: bytes, seed: int) -> bytes:
    """Mutation number `seed` of a serialized model: even seeds damage bytes, odd ones the message."""
    rng = random.Random(seed)
    if seed % 2 == 0:
        data = bytearray(original)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if data:
                rng.choice(BYTES)(data, rng)
        return bytes(data)
    model = onnx.ModelProto.FromString(original)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if rng.random() < 0.12:
            rng.choice(_MODEL)(model, rng)
        else:
            rng.choice(_GRAPH)(rng.choice(graphs_of(model)), rng)
    return model.SerializeToString()
