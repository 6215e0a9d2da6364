"""The commands on TensorFlow Lite files, and the check of their import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import ImportOptions, check_model, import_model, input_names, network_to_quantize
from npuc.ir import dtype_of, load_graph, top
from npuc.quant.prequantized import is_quantized
from support.hostile.isolation import command_line
from support.networks.tflite import Net, run_litert
from support.networks.tflite_quantized import inputs, quantized_network

RNG = np.random.default_rng(0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A quantized convolution, a pool and a layer."""
    net = Net()
    x = net.input("pixels", (1, 8, 8, 3), "i8", (0.02, -5))
    weight = net.constant(
        RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8), ([0.01, 0.02, 0.01, 0.03], 0, 0)
    )
    bias = net.constant(np.zeros(4, np.int32), ([2e-4, 4e-4, 2e-4, 6e-4], 0))
    window = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    y = net.op("CONV_2D", [x, weight, bias], "i8", "Conv2DOptions", (0.1, 3), **window)
    y = net.op("MEAN", [y, net.constant(np.array([1, 2], np.int32))], "i8", "ReducerOptions", (0.05, 3))
    dense = net.constant(RNG.integers(-127, 128, (5, 4)).astype(np.int8), (0.02, 0))
    y = net.op("FULLY_CONNECTED", [y, dense, None], "i8", "FullyConnectedOptions", (0.1, 0))
    path = tmp_path / "model.tflite"
    path.write_bytes(net.data({"scores": y}))
    return path


def test_import_says_who_agreed(model: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    status, out, _ = command_line("import", str(model), "-o", str(model.with_suffix(".mlir")))
    assert status == 0 and "agrees with LiteRT on the original: 1 output and 2 intermediate tensors" in out
    assert "pixels 1x8x8x3xi8" in out and "scores 1x5xi8" in out


def test_a_wrong_import_is_seen(model: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    graph = import_model(model)
    scale = next(op for op in graph.ops if isinstance(op, top.WeightOp) and op.ref == "mean5/scale")
    other = graph.add_weight("other", np.float32(0.08))
    graph.block.insert_op_before(other, scale)
    scale.output.replace_all_uses_with(other.output)
    report = check_model(model, graph, ImportOptions())
    assert not report.passed


def test_without_litert_nothing_is_compared(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    report = check_model(model, import_model(model), ImportOptions())
    assert "LiteRT" in report.impossible and "pip install ai-edge-litert" in report.impossible


def test_a_part_of_a_model_cannot_be_checked(model: Path) -> None:
    options = ImportOptions(outputs=("conv_2d3",))
    report = check_model(model, import_model(model, options), options)
    assert "whole models only" in report.impossible


def test_quantize_keeps_the_models_own_integers(model: Path) -> None:
    to = model.with_suffix(".int.mlir")
    status, out, _ = command_line("quantize", str(model), "-o", str(to))
    assert status == 0 and "0 float" in out and "the model's own quantization" in out
    feed = {"pixels": RNG.integers(-128, 128, (1, 8, 8, 3)).astype(np.int8)}
    found = IntegerEngine(load_graph(to)).run(feed)["scores"]
    np.testing.assert_array_equal(found, run_litert(model.read_bytes(), feed)["scores"])


def test_force_float_drops_it(model: Path) -> None:
    graph = network_to_quantize(model, force_float=True)
    assert graph.arithmetic == "" and not is_quantized(graph)
    assert {"top.conv", "top.avg_pool", "top.matmul"} <= {op.name for op in graph.ops}
    # The network's own input and output are reals, too.
    assert [dtype_of(port.type).name for port in (*graph.inputs, *graph.outputs)] == ["f32", "f32"]


@pytest.mark.parametrize("dtype", ["i8", "ui8"])
def test_what_force_float_leaves_is_the_float_network_behind(dtype: str, tmp_path: Path) -> None:
    data = quantized_network(dtype, softmax=False)
    path, zero = tmp_path / "model.tflite", 3 if dtype == "i8" else 131
    path.write_bytes(data)
    engine = FloatEngine(network_to_quantize(path, force_float=True), threads=1)
    for feed in inputs(dtype, 3):
        reals = np.float32(0.02) * (feed["x"].astype(np.float32) - zero)
        wanted = np.float32(0.09) * (run_litert(data, feed)["y"].astype(np.float32) - zero)
        assert np.abs(engine.run({"x": reals})["y"] - wanted).max() < 0.09, "one step of the output"


@pytest.mark.parametrize("dtype", ["i8", "ui8"])
def test_force_float_quantizes_anew(dtype: str, tmp_path: Path) -> None:
    path, program = tmp_path / "model.tflite", tmp_path / "model.npu"
    path.write_bytes(quantized_network(dtype))
    status, _, err = command_line("quantize", str(path), "--random", "-o", str(tmp_path / "m.mlir"))
    assert status == 2 and "add --force-float" in err
    options = ("--force-float", "--random", "-o")
    status, out, err = command_line("quantize", str(path), *options, str(tmp_path / "m.mlir"))
    assert status == 0 and "0 float" in out, err
    status, out, err = command_line("compile", str(path), "--target", "edge-4t", *options, str(program))
    assert status == 0 and "0 float" in out, err
    # The fix that an integer network's refusal names works, too.
    for command, name in (("quantize", "again.mlir"), ("compile", "again.npu")):
        given = (command, str(tmp_path / "m.mlir"), "--target", "edge-4t", *options, str(tmp_path / name))
        status, _, err = command_line(*given)
        assert status == 2 and "integer network already" in err and "the original model" in err


def test_a_relu_that_was_left_to_saturation_comes_back(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", (1, 4, 4, 3), "i8", (0.02, 0))
    weight = net.constant(RNG.integers(-127, 128, (5, 1, 1, 3)).astype(np.int8), (0.01, 0))
    window: dict[str, Any] = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    bias = net.constant(np.zeros(5, np.int32), (2e-4, 0))
    y = net.op("CONV_2D", [x, weight, bias], "i8", "Conv2DOptions", (0.02, -128), **window)
    data = net.data({"y": y})
    (tmp_path / "m.tflite").write_bytes(data)
    graph = network_to_quantize(tmp_path / "m.tflite", force_float=True)
    feed = RNG.integers(-60, 60, (1, 4, 4, 3)).astype(np.int8)
    found = FloatEngine(graph, threads=1).run({"x": feed.astype(np.float32) * np.float32(0.02)})["y"]
    wanted = (run_litert(data, {"x": feed})["y"].astype(np.float32) + 128) * np.float32(0.02)
    assert found.min() == 0 and np.abs(found - wanted).max() < 0.02


def test_run_takes_the_file(model: Path) -> None:
    status, out, _ = command_line("run", str(model), "--random")
    assert status == 0 and "scores" in out


def test_pictures_are_in_the_order_of_the_format(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    net = Net()
    x = net.input("x", (1, 8, 8, 3))
    y = net.op("MEAN", [x, net.constant(np.array([1, 2], np.int32))], "f32", "ReducerOptions")
    (tmp_path / "m.tflite").write_bytes(net.data(y))
    for more in ((), ("--fuse-preprocess",)):
        status, out, error = command_line(
            "import", str(tmp_path / "m.tflite"), "--mean", "1,2,3", "-o", str(tmp_path / "m.mlir"), *more
        )
        assert status == 0 and "agrees with LiteRT" in out, error
    (port,) = load_graph(tmp_path / "m.mlir").inputs
    assert port.preprocess is not None and port.preprocess["layout"] == "nhwc"


def test_input_names(model: Path) -> None:
    assert input_names(model) == ("pixels",)


@pytest.mark.parametrize("keep", [9, 100, 700])
def test_a_truncated_file_is_called_so(model: Path, keep: int) -> None:
    model.write_bytes(model.read_bytes()[:keep])
    status, _, error = command_line("import", str(model))
    assert status == 2 and "E102" in error and "truncated or damaged" in error and "TensorFlow Lite" in error


def test_an_operator_that_is_not_known_is_refused_by_the_command(tmp_path: Path) -> None:
    net = Net()
    y: Any = net.op("ATAN2", [net.input("x", (2,)), net.input("z", (2,))])
    (tmp_path / "m.tflite").write_bytes(net.data(y))
    status, _, error = command_line("import", str(tmp_path / "m.tflite"))
    assert status == 2 and "E209" in error and "ATAN2" in error and y.name in error
