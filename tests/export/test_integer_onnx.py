"""The integer form of quantized networks: graph mode's bits in ONNX Runtime, whatever it optimizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuc import lang
from npuc.calib.random_inputs import random_inputs
from npuc.engine import IntegerEngine
from npuc.errors import ExportError, UsageError
from npuc.export.exact import to_integer_onnx
from npuc.export.qdq import export_quantized_onnx
from npuc.flow import import_model, quantize_network
from npuc.ir import Graph
from npuc.quant import SCHEMES
from npuc.quant.prequantized import is_quantized
from support.judges.onnx_runtime import run_in_onnx_runtime
from support.networks.quantized import (
    ARITHMETICS,
    CASES,
    case_network,
    case_parameters,
    quantized_on_random_data,
)

UNWRITTEN = ("l2_norm", "double_rounding")
"""TFLite's own L2 norm of 8 bits."""


def assert_same_bits(graph: Graph, path: Path, seeds: int = 1) -> None:
    export_quantized_onnx(graph, path, "integer")
    for seed in range(seeds):
        inputs = random_inputs(graph, seed=seed + 20)
        expected = IntegerEngine(graph).run(inputs)
        for optimized in (False, True):
            theirs = run_in_onnx_runtime(path, inputs, optimized=optimized)
            for name, values in expected.items():
                np.testing.assert_array_equal(theirs[name], values, err_msg=f"{name}, optimized: {optimized}")


@pytest.mark.parametrize("name", case_parameters())
def test_every_op_has_graph_modes_bits(name: str, tmp_path: Path) -> None:
    assert_same_bits(quantized_on_random_data(case_network(name)), tmp_path / "net.onnx")


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("name", ["conv", "softmax"])
def test_every_arithmetic_has_graph_modes_bits(name: str, arithmetic: str, tmp_path: Path) -> None:
    assert_same_bits(
        quantized_on_random_data(case_network(name), ARITHMETICS[arithmetic]), tmp_path / "net.onnx"
    )


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("name", CASES)
def test_every_op_in_every_arithmetic(name: str, arithmetic: str, tmp_path: Path) -> None:
    graph = quantized_on_random_data(case_network(name), ARITHMETICS[arithmetic])
    if (name, arithmetic) == UNWRITTEN:
        with pytest.raises(
            ExportError, match=r"npu.norm 'y' has no integer form in ONNX: TFLite's 8-bit L2 norm"
        ):
            to_integer_onnx(graph)
        return
    assert_same_bits(graph, tmp_path / "net.onnx", seeds=2)


def test_sums_of_more_bits_than_int64_holds_with_their_multiplier(tmp_path: Path) -> None:
    """16-bit activations and weights: sums of 40 bits times multipliers of 31."""
    x = lang.input("x", (1, 64, 6, 6))
    weight = np.random.default_rng(0).standard_normal((4, 64, 3, 3)).astype("f4")
    network = lang.build({"y": lang.conv(lang.mul(lang.sub(x, 0.5), 2.0), weight, pads=1)})
    for scheme in (SCHEMES["int16-weights"], ARITHMETICS["int16"]):
        assert_same_bits(quantized_on_random_data(network, scheme), tmp_path / "net.onnx")


def test_products_are_integer_operators_of_unsigned_bytes() -> None:
    """uint8 x int8 would saturate on processors without VNNI."""
    proto = to_integer_onnx(quantized_on_random_data(case_network("conv"))).proto
    kinds = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    (node,) = [node for node in proto.graph.node if node.op_type == "ConvInteger"]
    assert kinds[node.input[1]] == onnx.TensorProto.UINT8
    assert proto.opset_import[0].version < 21


@pytest.mark.parametrize("name", ["onnx/mnist.onnx", "onnx/cifar10_resnet20.onnx"])
def test_shared_networks(shared: Path, name: str, tmp_path: Path) -> None:
    assert_same_bits(quantized_on_random_data(import_model(shared / "models" / name)), tmp_path / "net.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "transformers/cifar10_vit.onnx",
        "onnx/shufflenet_v2_int8.onnx",
        "onnx/ultraface_rfb_320.onnx",
        "tflite/resnet8_int8.tflite",
        "tflite/kws_int8.tflite",
        "tflite/micro_speech_int8.tflite",
    ],
)
def test_more_shared_networks(shared: Path, name: str, tmp_path: Path) -> None:
    network = import_model(shared / "models" / name)
    graph = quantize_network(network).graph if is_quantized(network) else quantized_on_random_data(network)
    assert_same_bits(graph, tmp_path / "net.onnx")


def test_what_is_refused_is_named() -> None:
    floats = quantized_on_random_data(case_network("conv"), SCHEMES["bf16"])
    with pytest.raises(ExportError, match=r"npu.cast .* has no integer form in ONNX.*--scheme int8"):
        to_integer_onnx(floats)
    with pytest.raises(UsageError, match=r"no form 'integers'.*qdq, integer"):
        export_quantized_onnx(floats, "net.onnx", "integers")
