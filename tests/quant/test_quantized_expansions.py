"""Ops of QDQ files that need a rewrite, but only move or compare elements: on the NPU, with the integers of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc import flow
from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions
from npuc.program.model import CpuSubgraph, NpuSubgraph
from npuc.sim import Simulator, sanitize
from npuc.target import load_target


def qdq_model(middle: list[onnx.NodeProto], shape: tuple[int, ...], constants: dict[str, Array]) -> Any:
    """x, quantized, through nodes from `xd` to `m`, quantized again."""
    initial = {"scale": np.float32(0.05), "zero": np.int8(3)} | constants
    nodes = []
    for source, target in (("x", "xd"), ("m", "y")):
        nodes.append(helper.make_node("QuantizeLinear", [source, "scale", "zero"], [f"{target}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{target}_q", "scale", "zero"], [target]))
    graph = helper.make_graph(
        [*nodes[:2], *middle, *nodes[2:]],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in initial.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return onnx.shape_inference.infer_shapes(model)


def node(kind: str, *inputs: str, to: str = "m", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [to], name=to, **attributes)


POOL = {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}
CASES: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], dict[str, Array]]] = {
    "gather elements": (
        [node("GatherElements", "xd", "i", axis=1)],
        (4, 5),
        {"i": np.array([[0, 1], [2, 3], [4, 0], [1, -1]])},
    ),
    "gather nd": ([node("GatherND", "xd", "i")], (4, 5), {"i": np.array([[0, 1], [2, 3], [3, 4]])}),
    "gather of two axes": (
        [node("Gather", "xd", "i", axis=1)],
        (4, 5, 3),
        {"i": np.array([[0, 1], [2, 3]])},
    ),
    "max pool of volumes": ([node("MaxPool", "xd", **POOL)], (1, 3, 4, 6, 6), {}),
    "two in a row": (
        [node("MaxPool", "xd", to="p", **POOL), node("Gather", "p", "i", axis=2)],
        (1, 3, 4, 6, 6),
        {"i": np.array([[1, 0], [0, 0]])},
    ),
}


def compiled(path: Path) -> Any:
    network = flow.expanded(flow.network_to_quantize(path))
    options = CompileOptions(1, island_threshold=0)
    return flow.compile_network(flow.quantize_network(network).graph, load_target("edge-4t"), options).model


@pytest.mark.parametrize("case", CASES)
def test_elements_that_only_move_or_are_compared_keep_their_types(case: str, tmp_path: Path) -> None:
    middle, shape, constants = CASES[case]
    onnx.save(qdq_model(middle, shape, constants), tmp_path / "m.onnx")
    model = compiled(tmp_path / "m.onnx")
    assert not any(isinstance(part, CpuSubgraph) for part in model.subgraphs)
    assert any(isinstance(part, NpuSubgraph) for part in model.subgraphs)
    x = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    (expected,) = ort.InferenceSession(tmp_path / "m.onnx").run(None, x)
    np.testing.assert_array_equal(Simulator(model).run(x)["y"], expected)
    assert not sanitize(model, x)


def test_what_needs_types_that_the_file_does_not_state_stays_whole(tmp_path: Path) -> None:
    """An average of volumes would need a type between its two pools; beside it, the max pool stays as it is."""
    middle = [node("MaxPool", "xd", to="p", **POOL), node("AveragePool", "p", **POOL)]
    onnx.save(qdq_model(middle, (1, 3, 4, 6, 6), {}), tmp_path / "m.onnx")
    model = compiled(tmp_path / "m.onnx")
    reasons = [
        reason
        for part in model.subgraphs
        if isinstance(part, CpuSubgraph)
        for reason in part.reasons.values()
    ]
    assert [reason.removeprefix("it stayed float: ") for reason in reasons] == [
        "it has 3 spatial axes, not 2",
        "it is not a plain window of two axes",
    ]
