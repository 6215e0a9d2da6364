"""Quantized networks as QDQ files: ONNX Runtime computes them within a step, and npuc reads them back to the same integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuc import lang
from npuc.calib.random_inputs import random_inputs
from npuc.cli.app import run_command
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import ExportError
from npuc.export.qdq import export_quantized_onnx, to_qdq, to_qdq_onnx
from npuc.flow import import_model, quantize_network, save_graph
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, npu, top
from npuc.ir.dtypes import quant_of
from npuc.quant import SCHEMES, quantize
from npuc.quant.prequantized import is_quantized
from support.graphs import build
from support.judges.onnx_runtime import run_in_onnx_runtime
from support.networks.quantized import (
    ARITHMETICS,
    FLOAT_SCALE,
    case_network,
    case_parameters,
    quantized_on_random_data,
)

RECURRENT = ("lstm", "gru", "rnn")
LARGEST = {"lstm": 2, "gru": 3, "exp": 2}
"""Steps between a case and ONNX Runtime where it may be more than one, under kinds that round as precisely as floats."""
SMALL = ("onnx/mnist.onnx", "onnx/cifar10_resnet20.onnx", "tflite/kws_int8.tflite")
LARGE = (
    "transformers/cifar10_vit.onnx",
    "onnx/shufflenet_v2_int8.onnx",
    "onnx/ultraface_rfb_320.onnx",
    "tflite/resnet8_int8.tflite",
    "onnx/mobilenet_v2.onnx",
    "caffe/squeezenet_v1.1.caffemodel",
)


def step_of(graph: Graph) -> float:
    """The step of the first output; 1 where it has integers."""
    owner: Any = graph.outputs[0].value.owner
    kind = quant_of(owner.operands[0]) if isinstance(owner, npu.Dequantize) else None
    return 1.0 if kind is None else kind.scale


def imported_again(path: Path) -> Graph:
    return quantize_network(import_model(path)).graph


@pytest.mark.parametrize("name", case_parameters())
def test_an_op_is_within_a_step_and_comes_back(name: str, tmp_path: Path) -> None:
    graph = quantized_on_random_data(case_network(name))
    path = tmp_path / "net.onnx"
    export_quantized_onnx(graph, path)
    onnx.checker.check_model(str(path), full_check=True)
    again = imported_again(path)
    inputs = random_inputs(graph, seed=5)
    expected = IntegerEngine(graph).run(inputs)["y"]
    away = np.abs(run_in_onnx_runtime(path, inputs)["y"].astype(np.float64) - expected) / step_of(graph)
    assert away.max() < LARGEST.get(name, 1) + 0.01
    assert (away > 0.5).mean() < 0.25
    ours = IntegerEngine(again).run(inputs)["y"]
    if name in RECURRENT:  # their last states have no type in the file, and they stay float
        assert np.abs(ours - expected).max() / step_of(graph) < LARGEST.get(name, 1) + 0.01
    else:
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_every_arithmetic_comes_back_to_its_integers(arithmetic: str, tmp_path: Path) -> None:
    x = lang.input("x", (1, 4, 8, 8))
    rng = np.random.default_rng(0)
    y = lang.conv(
        x, rng.standard_normal((6, 4, 3, 3)).astype("f4"), rng.standard_normal(6).astype("f4"), pads=1
    )
    y = lang.add(y, lang.conv(x, rng.standard_normal((6, 4, 1, 1)).astype("f4")), relu=True)
    y = lang.avg_pool(lang.max_pool(y, kernel=(2, 2), strides=(2, 2)), kernel=(2, 2), strides=(2, 2))
    y = lang.matmul(
        lang.reshape(y, shape=(1, 24)),
        rng.standard_normal((24, 5)).astype("f4"),
        rng.standard_normal(5).astype("f4"),
    )
    graph = quantized_on_random_data(lang.build({"y": y}), ARITHMETICS[arithmetic])
    path = tmp_path / "net.onnx"
    export_quantized_onnx(graph, path)
    again = imported_again(path)
    for ours, theirs in zip(_products(graph), _products(again), strict=True):
        for name in ("weight", "bias", "multiplier", "shift", "factor"):
            before, after = graph.constant(getattr(ours, name)), again.constant(getattr(theirs, name))
            assert (before is None) == (after is None), name
            if before is not None and after is not None:
                np.testing.assert_array_equal(before.astype(np.float64), after.astype(np.float64))
    inputs = random_inputs(graph, seed=7)
    np.testing.assert_array_equal(
        IntegerEngine(again).run(inputs)["y"], IntegerEngine(graph).run(inputs)["y"]
    )


def _products(graph: Graph) -> list[Any]:
    return [op for op in graph.ops if isinstance(op, npu.Conv | npu.MatMul)]


@pytest.mark.parametrize("name", ["conv, relu6", "depthwise", "matmul of rank 3", "max pool"])
@pytest.mark.parametrize("scheme", ["float_scale", "float_scale uint8"])
def test_layers_with_weights_have_the_bits_of_onnx_runtimes_integer_kernels(
    name: str, scheme: str, tmp_path: Path
) -> None:
    graph = quantized_on_random_data(case_network(name), ARITHMETICS[scheme])
    path = tmp_path / "net.onnx"
    export_quantized_onnx(graph, path)
    for seed in range(3):
        inputs = random_inputs(graph, seed=seed)
        np.testing.assert_array_equal(
            run_in_onnx_runtime(path, inputs, optimized=True)["y"], IntegerEngine(graph).run(inputs)["y"]
        )


def _shared_network(shared: Path, name: str, tmp_path: Path) -> None:
    options = ImportOptions(input_shapes={"input": (1, 3, 224, 224)}) if "mobilenet" in name else None
    network = import_model(shared / "models" / name, options)
    prequantized = is_quantized(network)
    graph = quantize_network(network).graph if prequantized else quantized_on_random_data(network)
    path = tmp_path / "net.onnx"
    export_quantized_onnx(graph, path)
    inputs = random_inputs(graph, seed=11)
    expected = IntegerEngine(graph, threads=2).run(inputs)
    theirs = run_in_onnx_runtime(path, inputs)
    assert theirs.keys() == expected.keys()
    ours = IntegerEngine(imported_again(path), threads=2).run(inputs)
    for output, values in expected.items():
        np.testing.assert_array_equal(ours[output], values)
        flat, other = values.astype(np.float64).reshape(-1), theirs[output].astype(np.float64).reshape(-1)
        norms = np.linalg.norm(flat) * np.linalg.norm(other)
        assert norms == 0 or flat @ other / norms > 0.99


@pytest.mark.parametrize("name", SMALL)
def test_shared_networks(shared: Path, name: str, tmp_path: Path) -> None:
    _shared_network(shared, name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_more_shared_networks(shared: Path, name: str, tmp_path: Path) -> None:
    _shared_network(shared, name, tmp_path)


@pytest.mark.parametrize(
    ("scheme", "opset", "ir_version", "kind"),
    [
        ("int8", 13, 7, onnx.TensorProto.INT8),
        ("uint8-weights", 13, 7, onnx.TensorProto.UINT8),
        ("int4-weights", 21, 10, onnx.TensorProto.INT4),
        ("int16-weights", 21, 10, onnx.TensorProto.INT16),
    ],
)
def test_operator_set_and_types_are_those_that_are_used(
    scheme: str, opset: int, ir_version: int, kind: int
) -> None:
    proto = to_qdq_onnx(quantized_on_random_data(case_network("conv"), SCHEMES[scheme])).proto
    assert (proto.opset_import[0].version, proto.ir_version) == (opset, ir_version)
    (weight,) = [tensor for tensor in proto.graph.initializer if tensor.name.endswith("weight_quantized")]
    assert weight.data_type == kind
    biases = [tensor for tensor in proto.graph.initializer if tensor.name.endswith("bias_quantized")]
    assert [tensor.data_type for tensor in biases] == [onnx.TensorProto.INT32]


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        export_quantized_onnx(quantized_on_random_data(case_network("conv, relu6")), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tensors_keep_their_names(tmp_path: Path) -> None:
    x = lang.input("x", (1, 4))
    y = lang.matmul(x, np.eye(4, dtype=np.float32), name="hidden")
    graph = quantized_on_random_data(lang.build({"y": lang.sigmoid(y, name="gate")}))
    names = {name for node in to_qdq_onnx(graph).proto.graph.node for name in node.output}
    assert {"hidden", "hidden_quantized", "gate", "gate_quantized", "y"} <= names


def test_a_table_of_no_known_function_is_looked_up(tmp_path: Path) -> None:
    graph = quantized_on_random_data(case_network("sigmoid"))
    (table,) = [op for op in graph.ops if isinstance(op, npu.Table)]
    ref = table.table.owner.ref  # type: ignore[union-attr]
    stored = graph.weights
    graph.weights = stored.copy()
    reversed_entries = np.ascontiguousarray(stored.array(ref)[::-1])
    weight = graph.add_weight("reversed", reversed_entries)
    graph.block.insert_op_before(weight, table)
    table.operands[1] = weight.output
    path = tmp_path / "net.onnx"
    export_quantized_onnx(graph, path)
    inputs = random_inputs(graph, seed=3)
    expected = IntegerEngine(graph).run(inputs)["y"]
    assert "Gather" in [node.op_type for node in onnx.load(path).graph.node]
    np.testing.assert_array_equal(run_in_onnx_runtime(path, inputs)["y"], expected)
    np.testing.assert_array_equal(IntegerEngine(imported_again(path)).run(inputs)["y"], expected)


@pytest.mark.parametrize("scheme", ["bf16", "f16"])
def test_short_floats_are_casts_around_float_ops(scheme: str, tmp_path: Path) -> None:
    graph = quantized_on_random_data(case_network("conv, relu6"), SCHEMES[scheme])
    path = tmp_path / "net.onnx"
    export_quantized_onnx(graph, path)
    inputs = random_inputs(graph, seed=3)
    expected = IntegerEngine(graph).run(inputs)["y"]
    np.testing.assert_allclose(run_in_onnx_runtime(path, inputs)["y"], expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("scheme", ["bf16", "f16", "f32"])
def test_tables_of_floats_are_their_functions_with_their_parameters(scheme: str, tmp_path: Path) -> None:
    def layers(b: Any, x: Any) -> Any:
        return b(
            top.Clip,
            b(top.Elu, b(top.Sigmoid, x, name="s"), alpha=0.25, name="e"),
            min=0.3,
            max=0.6,
            name="y",
        )

    float_graph = build({"x": ((2, 3, 4, 5), "f32")}, layers)
    graph = quantize(float_graph, {}, SCHEMES[scheme])
    assert sum(op.name == "npu.float_table" for op in graph.ops) == (2 if scheme == "f32" else 3)
    inputs = random_inputs(graph, seed=3)
    path = tmp_path / "net.onnx"
    export_quantized_onnx(graph, path)
    expected = IntegerEngine(graph).run(inputs)["y"]
    error = {"bf16": 0.004, "f16": 0.0005, "f32": 1e-6}[scheme]
    np.testing.assert_allclose(run_in_onnx_runtime(path, inputs)["y"], expected, atol=error)
    np.testing.assert_allclose(FloatEngine(float_graph).run(inputs)["y"], expected, atol=error)


def test_block_floating_point_is_refused_with_its_op(tmp_path: Path) -> None:
    graph = quantized_on_random_data(case_network("conv"), SCHEMES["mx9"])
    with pytest.raises(
        ExportError, match=r"npu.block_pack .* no type for the block floating point mx9.*int8"
    ) as caught:
        to_qdq(graph)
    assert "; npu.block_conv 'y' cannot be written" in caught.value.message, "all layers are named"
    assert caught.value.fix is not None and caught.value.fix.count("--scheme int8") == 1


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], root: Path) -> None:
    network, out = tmp_path / "net.int.mlir", tmp_path / "net.onnx"
    save_graph(quantized_on_random_data(case_network("conv"), FLOAT_SCALE), network)
    assert run_command(["export", "onnx", str(network), "-o", str(out), "--external-data"]) == 0
    assert (tmp_path / "net.onnx.data").exists()
    onnx.checker.check_model(str(out))
    assert (
        run_command(["export", "onnx", str(root / "examples/digits.onnx"), "-o", str(out), "--form", "qdq"])
        == 2
    )
    assert "is a float one" in capsys.readouterr().err
    program = root / "tests/golden_files/program-v2.npu"
    assert run_command(["export", "onnx", str(program), "-o", str(out)]) == 2
    assert "holds instructions" in capsys.readouterr().err
