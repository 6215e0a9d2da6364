"""Outputs that are made by their parts: the heads of a detector are stored where the output has them, and both modes agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.debug.compiled import CompiledLayers
from npuc.engine import IntegerEngine
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.ir import Graph
from npuc.sim import run, sanitize
from npuc.target import load_target


def heads(order: list[int], axis: int, more: list[onnx.NodeProto] | None = None) -> list[onnx.NodeProto]:
    """Two heads of a detector of three channels, flattened, concatenated and turned."""
    return [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "v"], ["b"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Reshape", ["a", "flat"], ["c"]),
        helper.make_node("Reshape", ["b", "flat"], ["d"]),
        helper.make_node("Concat", ["c", "d"], ["e"], axis=axis),
        helper.make_node("Transpose", ["e"], ["y"], perm=order),
        *(more or []),
    ]


@pytest.mark.parametrize("target", ["edge-1t", "server-32t"])
def test_heads_are_stored_to_their_places_in_the_output(tmp_path: Path, target: str) -> None:
    done, graph = compiled(tmp_path, heads([0, 2, 1], 2), target)
    network = done.parts[0].network
    assert [layer.kind for layer in network.layers] == ["conv", "conv", "requant"]
    assert [(part.shape, at) for part, (_, at) in network.stored_results.items()] == [
        ((1, 48, 3), 0),
        ((1, 3, 4, 3), 144),
    ]
    assert_agree(done, graph)


def test_the_output_is_seen_by_a_debugger(tmp_path: Path) -> None:
    done, graph = compiled(tmp_path, heads([0, 2, 1], 2), "edge-1t")
    inputs = random_inputs(graph, 5)
    seen: dict[str, Any] = {}

    def visit(tensor: Any) -> bool:
        seen[tensor.name] = tensor.values
        return False

    CompiledLayers(done.model).trace(inputs, visit)
    wanted = IntegerEngine(graph).run(inputs)["y"]
    shapes = [array.shape for array in seen.values()]
    assert shapes.count((1, 60, 3)) == 2  # as integers, and as the real numbers that they stand for
    assert any(np.array_equal(array, wanted) for array in seen.values())


@pytest.mark.parametrize(
    ("order", "axis", "moves"),
    [
        ([2, 1, 0], 2, []),  # a batch of one may stand anywhere
        ([1, 2, 0], 2, ["reshape", "reshape", "concat", "copy"]),
        ([0, 2, 1], 1, ["concat"]),  # along the channels, the parts lie side by side
    ],
)
def test_what_cannot_be_a_view_is_moved(
    tmp_path: Path, order: list[int], axis: int, moves: list[str]
) -> None:
    nodes = heads(order, axis)
    if axis == 1:
        nodes[1] = helper.make_node("Conv", ["a", "v"], ["b"], pads=[1] * 4)
    done, graph = compiled(tmp_path, nodes, "edge-1t")
    kinds = [layer.kind for layer in done.parts[0].network.layers]
    assert [kind for kind in kinds if kind not in ("conv", "requant")] == moves
    assert_agree(done, graph)


def test_an_output_that_is_read_again_is_a_layer(tmp_path: Path) -> None:
    more = [helper.make_node("MatMul", ["y", "m"], ["z"])]
    done, graph = compiled(tmp_path, heads([0, 2, 1], 2, more), "edge-1t", ("y", "z"))
    assert "concat" in [layer.kind for layer in done.parts[0].network.layers]
    assert_agree(done, graph)


def test_a_part_that_is_read_again_is_stored_once(tmp_path: Path) -> None:
    """The first head is read by the second: from local memory, or from its place in the output."""
    done, graph = compiled(tmp_path, heads([0, 2, 1], 2), "edge-1t", level=0)
    assert done.parts[0].network.joined
    assert_agree(done, graph)


def compiled(
    folder: Path,
    nodes: list[onnx.NodeProto],
    target_name: str,
    outputs: tuple[str, ...] = ("y",),
    level: int = 2,
) -> tuple[Compilation, Graph]:
    """A small detector, compiled."""
    target = load_target(target_name)
    rng = np.random.default_rng(2)
    shapes = {"w": (3, 3, 3, 3), "v": (3, 3, 3, 3), "m": (3, 4)}
    read = {name for node in nodes for name in node.input}
    constants = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
        if name in read
    ]
    constants.append(numpy_helper.from_array(np.array([1, 3, -1], np.int64), "flat"))
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 6])]
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "net", ports, ends, constants)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    loaded = network_to_quantize(path)
    ranges = ranges_from(loaded, random_data(loaded, 1, 0), schemes_of(loaded, None, target), "max")
    integer = quantize_network(loaded, ranges, None, target).graph
    return compile_program(integer, target, CompileOptions(level)), integer


def assert_agree(done: Compilation, graph: Graph) -> None:
    """Graph mode and instruction mode give the same bits, and the program is clean."""
    assert sanitize(done.model) == []
    inputs = random_inputs(graph, 5)
    wanted, found = IntegerEngine(graph).run(inputs), run(done.model, inputs)
    assert all(np.array_equal(np.asarray(found[name]), np.asarray(wanted[name])) for name in wanted)
