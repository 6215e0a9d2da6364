"""A file that brings its arithmetic keeps it on a target that has it: the compiled program gives the original's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.flow import compile_network, network_to_quantize, quantize_network
from npuc.ir import npu
from npuc.quant.config import QuantizationConfig
from npuc.quant.own_arithmetic import own_arithmetic
from npuc.runtime.runner import Runner
from npuc.sim import simulate
from npuc.target import load_target
from support.hostile.isolation import command_line
from support.networks.tflite import run_litert
from support.networks.tflite_quantized import inputs, quantized_network


@pytest.mark.parametrize("dtype", ["i8", "ui8"])
def test_a_compiled_tflite_file_has_the_bits_of_litert(dtype: str, tmp_path: Path) -> None:
    data = quantized_network(dtype)
    path, program = tmp_path / "model.tflite", tmp_path / "model.npu"
    path.write_bytes(data)
    status, out, err = command_line("compile", str(path), "--target", "edge-4t", "-o", str(program))
    assert status == 0, err
    assert "the model's own, requantized as by LiteRT (double_rounding)" in out and "0 float" in out
    with Runner(program) as runner:
        for feed in inputs(dtype, 5):
            wanted = run_litert(data, feed)["y"]
            assert len(np.unique(wanted)) > 3
            np.testing.assert_array_equal(runner.run(feed)["y"], wanted)


@pytest.mark.parametrize("dtype", ["i8", "ui8"])
def test_it_costs_cycles_in_sums_only(dtype: str, tmp_path: Path) -> None:
    path, target = tmp_path / "model.tflite", load_target("edge-4t")
    path.write_bytes(quantized_network(dtype))
    graph = network_to_quantize(path)
    cycles = [
        simulate(compile_network(quantize_network(graph, None, config, target).graph, target).model).total
        for config in (None, QuantizationConfig(scheme="int8"))
    ]
    # TFLite's addition rescales its operands first; all else is the same work.
    assert cycles[1] <= cycles[0] <= 1.02 * cycles[1], cycles


def test_a_target_without_it_says_so() -> None:
    found = own_arithmetic(True, load_target("bm1684x-like"))
    assert found.kind == "float_scale" and not found.kept
    assert "bm1684x-like has no double_rounding, which LiteRT uses" in found.words
    # Scales of a file are no powers of two: a target that prefers shifts takes another kind, if it has one.
    assert own_arithmetic(False, load_target("vipnano-like")).kind == "float_scale"


def test_a_scheme_that_was_asked_for_wins(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(quantized_network("i8"))
    asked = QuantizationConfig(scheme="int8")
    made = quantize_network(network_to_quantize(path), None, asked, load_target("edge-4t")).graph
    assert {op.kind for op in made.ops if isinstance(op, npu.Conv)} == {"single_rounding"}


def _with_pairs() -> onnx.ModelProto:
    """A convolution between QuantizeLinear and DequantizeLinear; weights of 7 bits, which every processor adds up exactly."""
    random = np.random.default_rng(0)
    constants: dict[str, Any] = {
        "s_x": np.float32(0.02), "z_x": np.int8(-5), "s_w": (random.uniform(1, 3, 8) / 500).astype(np.float32),
        "z_w": np.zeros(8, np.int8), "w": random.integers(-63, 64, (8, 4, 3, 3)).astype(np.int8),
        "s_y": np.float32(0.037), "z_y": np.int8(11),
    }  # fmt: skip
    constants["b"] = random.integers(-4000, 4000, 8).astype(np.int32)
    constants["s_b"] = constants["s_x"] * constants["s_w"]
    constants["z_b"] = np.zeros(8, np.int32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s_x", "z_x"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "s_x", "z_x"], ["x_d"]),
        helper.make_node("DequantizeLinear", ["w", "s_w", "z_w"], ["w_d"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "s_b", "z_b"], ["b_d"], axis=0),
        helper.make_node("Conv", ["x_d", "w_d", "b_d"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "s_y", "z_y"], ["y_q"]),
        helper.make_node("DequantizeLinear", ["y_q", "s_y", "z_y"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "pairs",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 9, 9))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, 9, 9))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_compiled_onnx_file_has_the_bits_of_onnx_runtime(tmp_path: Path) -> None:
    path, target = tmp_path / "model.onnx", load_target("edge-4t")
    onnx.save(_with_pairs(), str(path))
    done = quantize_network(network_to_quantize(path), None, None, target)
    assert done.own_arithmetic == "the model's own, requantized as by ONNX Runtime (float_scale)"
    judge = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    with Runner(compile_network(done.graph, target).model) as runner:
        for _ in range(4):
            x = random.normal(size=(1, 4, 9, 9)).astype(np.float32)
            np.testing.assert_array_equal(runner.run({"x": x})["y"], judge.run(None, {"x": x})[0])
