"""Views: flattening a picture whose channels come last moves nothing, other orders do, and both modes agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import compile_program
from npuc.engine import IntegerEngine
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.sim import run, sanitize
from npuc.target import load_target

TARGET = load_target("edge-4t")


@pytest.mark.parametrize(
    ("order", "kinds"),
    [
        ((0, 2, 3, 1), ["conv", "matmul"]),
        ((0, 3, 2, 1), ["conv", "permute", "reshape", "matmul"]),
        ((0, 1, 3, 2), ["conv", "permute", "reshape", "matmul"]),
    ],
)
def test_channels_last_are_flattened_for_nothing(
    tmp_path: Path, order: tuple[int, ...], kinds: list[str]
) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Transpose", ["a"], ["b"], perm=order),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "m"], ["y"]),
    ]
    layers = compiled(tmp_path, nodes, [1, 3, 6, 5], {"w": (4, 3, 3, 3), "m": (120, 7)})
    assert layers == kinds


@pytest.mark.parametrize(("order", "moves"), [((0, 3, 1, 2), False), ((0, 2, 1, 3), True)])
def test_a_row_becomes_a_picture_for_nothing(tmp_path: Path, order: tuple[int, ...], moves: bool) -> None:
    shape = [(1, 6, 5, 4)[axis] for axis in order]
    nodes = [
        helper.make_node("MatMul", ["x", "m"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=order),
        helper.make_node("Conv", ["c", "w"], ["y"], pads=[1] * 4),
    ]
    weights = {"m": (7, 120), "w": (3, shape[1], 3, 3)}
    layers = compiled(tmp_path, nodes, [1, 7], weights, np.array([1, 6, 5, 4]))
    assert ("permute" in layers) == moves and layers[-1] == "conv"


def test_an_input_that_is_reshaped_is_loaded_by_rows(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["y"], pads=[1] * 4),
    ]
    layers = compiled(tmp_path, nodes, [1, 600], {"w": (2, 1, 3, 3)}, np.array([1, 1, 30, 20]), rows=30)
    assert layers == ["conv"]


def compiled(
    folder: Path,
    nodes: list[onnx.NodeProto],
    shape: list[int],
    weights: dict[str, tuple[int, ...]],
    reshaped: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None,
    rows: int = 0,
) -> list[str]:
    """The layers of a network, after both modes have agreed on it; `rows` that its input is loaded by."""
    rng = np.random.default_rng(2)
    constants = [
        numpy_helper.from_array(rng.standard_normal(size).astype(np.float32), name)
        for name, size in weights.items()
    ]
    if reshaped is not None:
        constants.append(numpy_helper.from_array(reshaped.astype(np.int64), "shape"))
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_empty_tensor_value_info("y"),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], constants)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    loaded = network_to_quantize(path)
    ranges = ranges_from(loaded, random_data(loaded, 1, 0), schemes_of(loaded, None, TARGET), "max")
    integer = quantize_network(loaded, ranges, None, TARGET).graph
    done = compile_program(integer, TARGET)
    assert sanitize(done.model) == []
    inputs = random_inputs(integer, 5)
    wanted, found = IntegerEngine(integer).run(inputs), run(done.model, inputs)
    assert all(np.array_equal(np.asarray(found[name]), np.asarray(wanted[name])) for name in wanted)
    if rows:
        assert [tensor.storage.rows for tensor in done.parts[0].network.inputs] == [rows]
    return [layer.kind for layer in done.parts[0].network.layers]
