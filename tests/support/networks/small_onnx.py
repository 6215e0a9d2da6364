"""Two small models that the tests of the command line use."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def image_model(batch: int | str = 1, seed: int = 1) -> onnx.ModelProto:
    """conv, relu, mean over the image, a product: scores of five classes for an 8 x 8 rgb image."""
    rng = np.random.default_rng(seed)
    weights = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
        "m": rng.standard_normal((4, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "m"], ["scores"], name="classify"),
    ]
    graph = helper.make_graph(
        nodes,
        "image",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def two_input_model() -> onnx.ModelProto:
    """sum = table[ids] + x"""
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["g"], name="lookup"),
        helper.make_node("Add", ["g", "x"], ["sum"], name="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [3]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2]),
        ],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [3, 2])],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
