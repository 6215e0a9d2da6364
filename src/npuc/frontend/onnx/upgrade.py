"""Old spellings of nodes that stay ONNX: what moved from attribute to input, and what was renamed.

A `top.onnx` op is written back under one recent operator set, so a node of an older one is brought up to date first.
Most changes between versions only add types; the table has those that do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import OnnxNode


@dataclass(frozen=True)
class Moved:
    """An attribute that became an input."""

    attribute: str
    index: int
    since: int
    convert: Callable[[Any], Array]


def _ints(value: Any) -> Array:
    return np.array(value, np.int64)


def _one(value: Any) -> Array:
    return np.array([value], np.int64)


def _scalar(value: Any) -> Array:
    return np.array(value, np.int64)


def _float(value: Any) -> Array:
    return np.array(value, np.float32)


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
_MOVED: dict[str, list[Moved]] = {
    "Squeeze": [Moved("axes", 1, 13, _ints)],
    "Unsqueeze": [Moved("axes", 1, 13, _ints)],
    "ReduceSum": [Moved("axes", 1, 13, _ints)],
    **{f"Reduce{kind}": [Moved("axes", 1, 18, _ints)] for kind in _REDUCTIONS},
    "Split": [Moved("split", 1, 13, _ints)],
    "Pad": [Moved("pads", 1, 11, _ints), Moved("value", 2, 11, _float)],
    "Slice": [Moved("starts", 1, 10, _ints), Moved("ends", 2, 10, _ints), Moved("axes", 3, 10, _ints)],
    "TopK": [Moved("k", 1, 10, _one)],
    "Clip": [Moved("min", 1, 11, _float), Moved("max", 2, 11, _float)],
    "Dropout": [Moved("ratio", 1, 12, _float)],
    "DFT": [Moved("axis", 2, 20, _scalar)],
    "Upsample": [Moved("scales", 1, 9, _float)],
    "Reshape": [Moved("shape", 1, 5, _ints)],
}
_MAX_DEPTH = 16
_LEGACY_ATTRIBUTES = {"consumed_inputs", "broadcast", "is_test", "spatial"}


def upgrade(node: OnnxNode) -> tuple[onnx.NodeProto, dict[int, Array]]:
    """The node in recent spelling, and the constants that are new inputs of it by position."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    new: dict[int, Array] = {}
    for moved in _MOVED.get(node.op_type, ()):
        if node.opset < moved.since and node.has(moved.attribute):
            new[moved.index] = moved.convert(
                onnx.helper.get_attribute_value(node.attributes[moved.attribute])
            )
    for index in sorted(new):
        while len(proto.input) <= index:
            proto.input.append("")
    gone = {moved.attribute for moved in _MOVED.get(node.op_type, ()) if node.opset < moved.since}
    if node.opset < 7:
        gone |= _LEGACY_ATTRIBUTES
    kept = [attribute for attribute in node.proto.attribute if attribute.name not in gone]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    make = onnx.helper.make_attribute
    if node.op_type == "Scatter":
        proto.op_type = "ScatterElements"
    elif node.op_type == "Split" and node.opset < 18 and 1 not in new and len(node.inputs) < 2:
        proto.attribute.append(make("num_outputs", len(node.outputs)))
    elif node.op_type == "RoiAlign" and node.opset < 16:
        proto.attribute.append(make("coordinate_transformation_mode", "output_half_pixel"))
    elif node.op_type == "Upsample" or (node.op_type == "Resize" and node.opset < 11):
        proto.op_type = "Resize"
        scales = new.pop(1, None)
        inputs = [proto.input[0], "", proto.input[1]]
        if scales is not None:
            new[2] = scales
        del proto.input[:]
        proto.input.extend(inputs)
        for attribute in proto.attribute:
            if attribute.name == "mode" and attribute.s == b"bilinear":
                attribute.s = b"linear"
        proto.attribute.append(make("coordinate_transformation_mode", "asymmetric"))
        proto.attribute.append(make("nearest_mode", "floor"))
    return proto, new


def upgrade_graph(graph: onnx.GraphProto, opset: int, depth: int = 0) -> None:
    """Bring the nodes of a subgraph up to date in place; new inputs become Constant nodes."""
    if depth > _MAX_DEPTH:
        raise InvalidModelError(f"its graphs are nested more than {_MAX_DEPTH} deep")
    nodes: list[onnx.NodeProto] = []
    for index, old in enumerate(graph.node):
        node = OnnxNode.of(old, opset)
        proto, constants = upgrade(node) if node.domain == "" else (old, {})
        for position, array in constants.items():
            name = f"{next(iter(old.output), 'node')}/{index}/input{position}"
            proto.input[position] = name
            tensor = onnx.numpy_helper.from_array(array)
            nodes.append(onnx.helper.make_node("Constant", [], [name], value=tensor))
        for attribute in proto.attribute:
            for nested in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                upgrade_graph(nested, opset, depth + 1)
        nodes.append(proto)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
