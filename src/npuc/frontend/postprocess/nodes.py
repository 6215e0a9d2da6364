"""ONNX nodes under construction, and how they become ops of a graph.

All of them become `top.onnx`: post-processing is float arithmetic on few numbers, and coordinates of boxes would not survive
eight bits. Types come from ONNX's own shape inference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, shape_inference

from npuc.arrays import Array
from npuc.errors import InternalError
from npuc.frontend.onnx.escape import to_type
from npuc.ir import Graph, Value, top
from npuc.ir.dtypes import dtype_of, shape_of
from npuc.ir.names import location, value_name
from npuc.ir.onnx_attributes import encode_attribute
from npuc.ir.top.escape import POSTPROCESSING

OPSET = 18


class Nodes:
    """Nodes in order. A call adds one and returns the name of its output; arrays become constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def __call__(self, kind: str, *inputs: str | Array, **attributes: Any) -> str:
        """A node with one output."""
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: str | Array, **attributes: Any) -> list[str]:
        """A node with so many outputs."""
        base = f"postprocess/{len(self.nodes)}_{kind}"
        names = [base if count == 1 else f"{base}:{index}" for index in range(count)]
        given = [operand if isinstance(operand, str) else self._constant(operand) for operand in inputs]
        self.nodes.append(helper.make_node(kind, given, names, name=base, **attributes))
        return names

    def _constant(self, array: Array) -> str:
        name = f"postprocess/constant_{len(self.constants)}"
        self.constants[name] = np.array(array, order="C")
        return name


def ints(*values: int) -> Array:
    """A constant list of integers, as ONNX wants shapes and axes."""
    return np.array(values, np.int64)


def real(value: float) -> Array:
    """A constant of rank 0."""
    return np.array(value, np.float32)


def append_nodes(
    graph: Graph, nodes: Nodes, known: Mapping[str, Value], outputs: Sequence[tuple[str, str]]
) -> None:
    """Append nodes to a graph; `known` has the values that they start from, `outputs` new names and names of nodes."""
    types = _types(nodes, known)
    values: dict[str, Value] = dict(known)
    # The return is written again behind the new ops.
    ends = [(port.name, port.value) for port in graph.outputs]
    graph.block.erase_op(graph.terminator)
    renamed = {node: title for title, node in outputs}
    for name, array in nodes.constants.items():
        weight = graph.add_weight(name, array)
        graph.block.add_op(weight)
        values[name] = weight.output
    for node in nodes.nodes:
        properties = {
            "op_type": node.op_type,
            "domain": "",
            "version": onnx.defs.get_schema(node.op_type, OPSET).since_version,
            "onnx_attributes": {attribute.name: encode_attribute(attribute) for attribute in node.attribute},
            "arguments": list(range(len(node.input))),
            "captures": [],
            "outputs_used": list(range(len(node.output))),
            "reason": POSTPROCESSING,
        }
        op = top.Onnx.create(
            operands=[values[name] for name in node.input],
            result_types=[types[name] for name in node.output],
            properties={key: top.Onnx.attribute_of(key, value) for key, value in properties.items()},
            location=location([renamed.get(name, name) for name in node.output], node.name),
        )
        graph.block.add_op(op)
        values.update(zip(node.output, op.results, strict=True))
    graph.set_outputs([(title, values[node]) for title, node in outputs] or ends)


def remove_nodes(graph: Graph) -> None:
    """Take appended nodes away again: what they started from are the outputs."""
    added = [op for op in graph.ops if isinstance(op, top.Onnx) and op.reason == POSTPROCESSING]
    inside = {result for op in added for result in op.results}
    starts = dict.fromkeys(
        value
        for op in added
        for value in op.operands
        if value not in inside and not isinstance(value.owner, top.WeightOp)
    )
    graph.set_outputs([(value_name(value) or "", value) for value in starts])
    for op in reversed(added):
        graph.block.erase_op(op)


def _types(nodes: Nodes, known: Mapping[str, Value]) -> dict[str, Any]:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(value.type).numpy)), shape_of(value)
        )
        for name, value in known.items()
    ]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in nodes.constants.items()]
    graph = helper.make_graph(nodes.nodes, "postprocess", inputs, [], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    types = {info.name: to_type(info.type, info.name) for info in inferred.graph.value_info}
    missing = [name for node in nodes.nodes for name in node.output if name not in types]
    if missing:
        raise InternalError(f"the type of '{missing[0]}' is not known")
    return types
