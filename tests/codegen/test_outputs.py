"""Outputs and other tensors of odd kinds: constants, inputs, one value under two names, scalars, and open shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npuc import lang
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.codegen.preflight import check_options
from npuc.engine import IntegerEngine
from npuc.errors import CompileError
from npuc.flow import import_model, quantize_network
from npuc.ir import Graph, print_graph
from npuc.program.file import load_compiled, save_compiled
from npuc.quant import SCHEMES, quantize
from npuc.runtime import Runner
from npuc.sim import Simulator
from npuc.target import load_target

RNG = np.random.default_rng(0)
X, S = lang.input("x", (1, 4, 8, 8)), lang.input("s", ())
Y = lang.conv(X, RNG.uniform(-0.3, 0.3, (4, 4, 3, 3)).astype(np.float32), pads=1)
MOST = lang.reduce(Y, kind="max", axes=(0, 1, 2, 3), keepdims=False)


def constant(kind: type[np.generic]) -> lang.Tensor:
    return lang.constant(RNG.integers(0, 9, (2, 3)).astype(kind))


@pytest.mark.parametrize(
    "outputs",
    [
        {"a": Y, "b": Y, "c": Y},
        {"y": Y, "z": X},
        {"y": Y, "x": X},
        {"z": X},
        {"y": Y, "k": constant(np.float32)},
        {"k": constant(np.int64), "y": Y},
        {"y": lang.reduce(Y, kind="sum", axes=(0, 1, 2, 3), keepdims=False)},
        {"y": lang.cos(MOST), "z": MOST},
        {"y": lang.div(Y, lang.exp(MOST)), "z": lang.floor(MOST)},
        {"y": Y * S, "z": lang.cos(S), "s": S},
        {"y": lang.relu(S), "z": lang.relu(S)},
    ],
    ids=lambda outputs: ",".join(outputs),
)
def test_every_way_to_run_gives_the_outputs_of_graph_mode(
    outputs: dict[str, lang.Tensor], tmp_path: Path
) -> None:
    graph = lang.build(outputs)
    made = quantize(graph, dict.fromkeys(["x", "s", *graph.tensor_names()], (-3.0, 3.0)), SCHEMES["int8"])
    before = print_graph(made)
    done = compile_program(made, load_target("edge-4t"))
    assert print_graph(made) == before
    save_compiled(done.model, tmp_path / "model.npu")
    inputs = random_inputs(made, 1)
    wanted = IntegerEngine(made, raw=True).run(inputs)
    assert list(wanted) == list(outputs)
    for found in (
        Simulator(done.model).run(inputs),
        Runner(load_compiled(tmp_path / "model.npu")).run(inputs),
    ):
        assert list(found) == list(outputs)
        for name, array in wanted.items():
            assert found[name].shape == array.shape == outputs[name].shape, name
            np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.fixture
def detector(tmp_path: Path) -> Graph:
    """A network whose last node selects as many boxes as there are."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Reshape", ["c", "shape"], ["boxes"]),
        helper.make_node("ReduceMax", ["boxes"], ["most"], axes=[2], keepdims=0),
        helper.make_node("Unsqueeze", ["most", "one"], ["scores"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "limit"], ["kept"], name="select"),
    ]
    weight = RNG.uniform(-0.3, 0.3, (4, 3, 3, 3)).astype(np.float32)
    constants = {"w": weight, "shape": np.array([1, 64, 4]), "one": np.array([1]), "limit": np.array([5])}
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("kept", TensorProto.INT64, [None, 3])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "detector.onnx"))
    return import_model(tmp_path / "detector.onnx")


def test_an_output_of_an_open_shape_is_refused_with_a_way_out(detector: Graph) -> None:
    target = load_target("edge-4t")
    ranges = dict.fromkeys(["x", *detector.tensor_names()], (-3.0, 3.0))
    made = quantize_network(detector, ranges, target=target).graph
    with pytest.raises(
        CompileError, match=r"\? x 3, depends on the data \(NonMaxSuppression 'select'\)"
    ) as caught:
        compile_program(made, target)
    assert "kept" in str(caught.value) and "--outputs" in (caught.value.fix or "")
    with pytest.raises(CompileError, match="depends on the data"):
        check_options(detector, target, CompileOptions())
