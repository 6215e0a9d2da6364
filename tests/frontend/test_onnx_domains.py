"""Operators of other domains: ONNX Runtime's own, and the quantization of AMD's tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.engine import FloatEngine, IntegerEngine, session_options
from npuc.errors import InvalidModelError
from npuc.flow import check_model, import_model, network_to_quantize, quantize_network
from npuc.frontend.onnx import ImportOptions, import_onnx
from npuc.ir import top
from npuc.sim import Simulator
from npuc.target import load_target
from support.networks.backend import machine
from support.programs.equal_modes import check

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(9)
X = RNG.uniform(-2, 2, (2, 4, 6)).astype(np.float32)
IMAGE = RNG.uniform(-2, 2, (1, 3, 8, 8)).astype(np.float32)


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, Any], weights: dict[str, Any], *outputs: str
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, FLOAT, array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    domains = {node.domain for node in nodes} | {""}
    opsets = [helper.make_opsetid(domain, 17 if not domain else 1) for domain in sorted(domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def floats(*shape: int) -> Any:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


OWN: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("Gelu", {"x": X}, {}, {}),
    ("BiasGelu", {"x": X}, {"b": floats(6)}, {}),
    ("FastGelu", {"x": X}, {"b": floats(6)}, {}),
    ("FastGelu", {"x": X}, {}, {}),
    ("QuickGelu", {"x": X}, {}, {"alpha": 1.5}),
    ("QuickGelu", {"x": X}, {}, {"alpha": 1.0}),
    ("FusedMatMul", {"x": X}, {"w": floats(5, 6)}, {"transB": 1, "alpha": 0.5}),
    ("FusedMatMul", {"x": X, "y": floats(2, 4, 3)}, {}, {"transA": 1}),
    ("FusedGemm", {"x": X[0]}, {"w": floats(6, 5), "c": floats(5)}, {"activation": "Relu"}),
    ("FusedConv", {"x": IMAGE}, {"w": floats(4, 3, 3, 3), "b": floats(4)}, {"activation": "Relu"}),
    ("FusedConv", {"x": IMAGE}, {"w": floats(4, 3, 3, 3)}, {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ("FusedConv", {"x": IMAGE}, {"w": floats(4, 3, 1, 1)}, {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
    ("SkipLayerNormalization", {"x": X, "s": floats(2, 4, 6)}, {name: floats(6) for name in "gbe"}, {"epsilon": 1e-5}),
    ("SkipLayerNormalization", {"x": X, "s": floats(2, 4, 6)}, {"g": floats(6)}, {}),
    ("SkipSimplifiedLayerNormalization", {"x": X, "s": floats(2, 4, 6)}, {"g": floats(6)}, {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "inputs", "weights", "attributes"), OWN, ids=[f"{o[0]}{i}" for i, o in enumerate(OWN)]
)
def test_operators_of_onnx_runtime(
    op: str, inputs: dict[str, Any], weights: dict[str, Any], attributes: dict[str, Any]
) -> None:
    node = helper.make_node(op, [*inputs, *weights], ["out"], "node", domain="com.microsoft", **attributes)
    proto = model([node], inputs, weights, "out")
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), session_options(1), providers=["CPUExecutionProvider"]
    )
    graph = import_onnx(proto)
    assert not any(isinstance(op, top.Onnx) for op in graph.ops)
    (expected,) = session.run(None, inputs)
    np.testing.assert_allclose(FloatEngine(graph).run(inputs)["out"], expected, rtol=2e-4, atol=2e-5)


def test_the_sum_of_a_skip_is_an_output_too() -> None:
    names = ["x", "s", "g"]
    node = helper.make_node(
        "SkipLayerNormalization", names, ["y", "", "", "sum"], "n", domain="com.microsoft"
    )
    inputs = {"x": X, "s": floats(2, 4, 6)}
    graph = import_onnx(model([node], inputs, {"g": floats(6)}, "y", "sum"))
    np.testing.assert_allclose(FloatEngine(graph).run(inputs)["sum"], inputs["x"] + inputs["s"], rtol=1e-6)


def test_an_operator_without_a_rule_runs_in_onnx_runtime() -> None:
    node = helper.make_node("Inverse", ["x"], ["out"], "n", domain="com.microsoft")
    square = {"x": np.eye(3, dtype=np.float32) * 2}
    proto = model([node], square, {}, "out")
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_tensor_value_info("out", FLOAT, (3, 3)))
    graph = import_onnx(proto)
    np.testing.assert_allclose(FloatEngine(graph).run(square)["out"], np.eye(3) / 2)


def fixed(array: Any, position: int, bits: int = 8) -> Any:
    grid = np.rint(array * 2.0**position)
    return (np.clip(grid, -(1 << (bits - 1)), (1 << (bits - 1)) - 1) / 2.0**position).astype(np.float32)


def vitis_network(weights: dict[str, Any], text: bool = False) -> onnx.ModelProto:
    """A convolution as vai_q_onnx writes it with FixNeuron."""

    def fix(source: str, result: str, position: int, bits: int = 8) -> onnx.NodeProto:
        values = (
            {"pos": str(position), "bit_width": str(bits)} if text else {"pos": position, "bit_width": bits}
        )
        return helper.make_node(
            "FixNeuron", [source], [result], f"fix_{result}", domain="ai.onnx.contrib", **values
        )

    nodes = [
        fix("x", "xq", 6),
        fix("w", "wq", 7),
        fix("b", "bq", 7),
        helper.make_node("Conv", ["xq", "wq", "bq"], ["y"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["r"], "relu"),
        fix("r", "out", 4),
    ]
    return model(nodes, {"x": IMAGE}, weights, "out")


@pytest.mark.parametrize("text", [False, True])
def test_fix_neurons(tmp_path: Path, text: bool) -> None:
    weights = {"w": floats(4, 3, 3, 3), "b": floats(4)}
    path = tmp_path / "net.onnx"
    onnx.save(vitis_network(weights, text), str(path))
    graph = import_model(path)
    assert any(isinstance(op, top.Dequantize) for op in graph.ops)
    assert not any(isinstance(op, top.Onnx) for op in graph.ops)
    plain = model(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1] * 4), helper.make_node("Relu", ["y"], ["out"])],
        {"x": IMAGE}, {"w": fixed(weights["w"], 7), "b": fixed(weights["b"], 7)}, "out",
    )  # fmt: skip
    (expected,) = onnxruntime.InferenceSession(plain.SerializeToString()).run(None, {"x": fixed(IMAGE, 6)})
    np.testing.assert_array_equal(FloatEngine(graph).run({"x": IMAGE})["out"], fixed(expected, 4))
    # The check of the import runs the original: ONNX Runtime with a kernel for the op that it does not know.
    report = check_model(path, graph, ImportOptions())
    assert report.passed and not report.impossible


def test_fix_neurons_are_quantization_that_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(vitis_network({"w": floats(4, 3, 3, 3), "b": floats(4)}), str(path))
    float_graph = network_to_quantize(path)
    integers = quantize_network(float_graph, None, None, load_target("edge-4t")).graph
    got = IntegerEngine(integers).run({"x": IMAGE})["out"]
    expected = FloatEngine(import_model(path)).run({"x": IMAGE})["out"]
    assert np.abs(got - expected).max() <= 2.0**-4  # one step: rounding at ties


def test_fewer_bits_are_a_narrower_range() -> None:
    node = helper.make_node(
        "FixNeuron", ["x"], ["out"], "f", domain="com.vai.quantize", quant_pos=2, bit_width=4
    )
    graph = import_onnx(model([node], {"x": X}, {}, "out"))
    np.testing.assert_array_equal(FloatEngine(graph).run({"x": 3 * X})["out"], fixed(3 * X, 2, 4))


@pytest.mark.parametrize(
    "domain", [("com.vai.quantize", "Vitis"), ("com.amd.quark", "Extended"), ("com.microsoft", "")]
)
def test_quantize_and_dequantize_of_other_domains(domain: tuple[str, str]) -> None:
    nodes = [
        helper.make_node(f"{domain[1]}QuantizeLinear", ["x", "s", "z"], ["q"], "a", domain=domain[0]),
        helper.make_node(f"{domain[1]}DequantizeLinear", ["q", "s", "z"], ["out"], "b", domain=domain[0]),
    ]
    steps = {"s": np.array(0.001, np.float32), "z": np.array(7, np.int16)}
    graph = import_onnx(model(nodes, {"x": X}, steps, "out"))
    assert [type(op) for op in graph.ops if not isinstance(op, top.WeightOp)] == [
        top.Quantize,
        top.Dequantize,
    ]
    np.testing.assert_allclose(FloatEngine(graph).run({"x": X})["out"], X, atol=0.0006)


@pytest.mark.parametrize("attributes", [{"bit_width": 17, "pos": 1}, {"bit_width": 8, "pos": 1000}])
def test_what_no_integer_has_stays_a_custom_op(attributes: dict[str, int]) -> None:
    node = helper.make_node("FixNeuron", ["x"], ["out"], "f", domain="ai.onnx.contrib", **attributes)
    proto = model([node], {"x": X}, {}, "out")
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("out", FLOAT, X.shape))
    assert any(isinstance(op, top.Onnx) for op in import_onnx(proto).ops)


def test_an_attribute_that_is_no_number_is_refused() -> None:
    node = helper.make_node("FixNeuron", ["x"], ["out"], "f", domain="ai.onnx.contrib", pos="many")
    with pytest.raises(InvalidModelError, match="'pos' is no whole number"):
        import_onnx(model([node], {"x": X}, {}, "out"))


@pytest.mark.parametrize("bits", [9, 12, 15])
def test_widths_between_8_and_16_are_kept(tmp_path: Path, bits: int) -> None:
    """The file's integers, with their saturation, in the program of a machine that has the width or a wider one."""

    def fix(source: str, result: str, position: int) -> onnx.NodeProto:
        return helper.make_node(
            "FixNeuron",
            [source],
            [result],
            f"fix_{result}",
            domain="ai.onnx.contrib",
            pos=position,
            bit_width=bits,
        )

    nodes = [
        fix("x", "xq", bits - 1),
        fix("w", "wq", bits - 2),
        helper.make_node("Conv", ["xq", "wq"], ["y"], "conv", pads=[1, 1, 1, 1]),
        fix("y", "out", bits - 1),
    ]
    path = tmp_path / "net.onnx"
    onnx.save(model(nodes, {"x": IMAGE}, {"w": floats(4, 3, 3, 3)}, "out"), str(path))
    graph = import_model(path)
    assert {op.to for op in graph.ops if isinstance(op, top.Quantize)} == {f"i{bits}"}
    report = check_model(path, graph, ImportOptions())
    assert report.passed and not report.impossible
    expected = FloatEngine(graph).run({"x": 3 * IMAGE})["out"]
    assert np.abs(expected).max() == 1.0  # -1 is the least: results saturate
    for target in (machine(64 << 10), load_target("edge-4t")):
        integers = quantize_network(network_to_quantize(path), None, None, target).graph
        done = check(integers, target, 1)
        assert done is not None and not integers.float_reasons
        got = Simulator(done.model).run({"x": 3 * IMAGE})["out"]
        assert np.abs(got - expected).max() <= 2.0 ** (1 - bits)
