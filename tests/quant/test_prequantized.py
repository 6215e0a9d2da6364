"""Models that bring their own quantization keep it; ONNX Runtime's integer kernels are the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc import lang
from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import QuantizationError, UsageError
from npuc.flow import compile_network, import_model, network_to_quantize, quantize_network, save_graph
from npuc.ir import Graph
from npuc.ir.dtypes import quant_of
from npuc.quant import SCHEMES
from npuc.quant.config import QuantizationConfig
from npuc.quant.prequantized import Prequantized, is_quantized
from npuc.runtime.engine import CompiledEngine
from npuc.target import load_target


def session(model: Any) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    # Exact sums of integer products on processors without VNNI, too.
    options.add_session_config_entry("session.x64quantprecision", "1")
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def cosine(a: Array, b: Array) -> float:
    return float(np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.fixture(scope="module")
def statically_quantized(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The demo network through onnxruntime.quantization."""
    quantization = pytest.importorskip(
        "onnxruntime.quantization", reason="onnxruntime.quantization is not usable"
    )
    with np.load(root / "examples/digits_samples.npz") as file:
        images = file["image"][:30]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.rest = iter([{"image": image[None]} for image in images])

        def get_next(self) -> Any:
            return next(self.rest, None)

    def make(form: str, activation: str, weight: str, per_channel: bool) -> Path:
        path: Path = tmp_path_factory.mktemp("qdq") / "model.onnx"
        quantization.quantize_static(
            str(root / "examples/digits.onnx"),
            str(path),
            Reader(),
            quant_format=quantization.QuantFormat[form],
            activation_type=quantization.QuantType[activation],
            weight_type=quantization.QuantType[weight],
            per_channel=per_channel,
        )
        return path

    return make


@pytest.mark.parametrize(
    ("form", "activation", "weight", "per_channel"),
    [
        ("QDQ", "QUInt8", "QInt8", True),
        ("QDQ", "QInt8", "QInt8", False),
        ("QDQ", "QUInt8", "QUInt8", False),
        ("QOperator", "QUInt8", "QInt8", True),
    ],
)
def test_the_same_bits_as_onnx_runtime(
    root: Path,
    statically_quantized: Callable[..., Path],
    form: str,
    activation: str,
    weight: str,
    per_channel: bool,
) -> None:
    path = statically_quantized(form, activation, weight, per_channel)
    graph = import_model(path)
    assert is_quantized(graph)
    done = quantize_network(graph)
    done.graph.verify()
    assert sum(op.name.startswith("npu.") for op in done.graph.ops) > 10
    judge, engine = session(path), IntegerEngine(done.graph)
    with np.load(root / "examples/digits_samples.npz") as file:
        for image in file["image"][30:80]:
            expected = judge.run(None, {"image": image[None]})[0]
            np.testing.assert_array_equal(engine.run({"image": image[None]})["logits"], expected)


def test_sixteen_bits(root: Path, statically_quantized: Callable[..., Path]) -> None:
    path = statically_quantized("QDQ", "QInt16", "QInt8", True)
    made = quantize_network(import_model(path)).graph
    step = quant_of(made.outputs[0].value.owner.operands[0])  # type: ignore[union-attr]
    assert step is not None and step.dtype.name == "i16"
    with np.load(root / "examples/digits_samples.npz") as file:
        inputs = {"image": file["image"][40:41]}
    expected = session(path).run(None, inputs)[0]
    assert np.abs(IntegerEngine(made).run(inputs)["logits"] - expected).max() <= 4.01 * step.scale


def test_types_without_kernels_stay_float_and_right(
    root: Path, statically_quantized: Callable[..., Path]
) -> None:
    path = statically_quantized("QDQ", "QUInt16", "QInt8", True)
    graph = import_model(path)
    done = quantize_network(graph)
    assert done.outcome.integer == 0
    reason = "the model gives it ui16 activations, and there are no kernels for them"
    assert done.graph.float_reasons["pool"] == reason
    weighted = [layer for layer in done.outcome.layers if layer.kind in ("conv", "matmul", "add", "avg_pool")]
    assert weighted and {layer.reason for layer in weighted} == {reason}
    with np.load(root / "examples/digits_samples.npz") as file:
        inputs = {"image": file["image"][:1]}
    exact = FloatEngine(graph, threads=1).run(inputs)["logits"]
    np.testing.assert_allclose(FloatEngine(done.graph, threads=1).run(inputs)["logits"], exact, atol=1e-3)


@pytest.mark.parametrize("kind", ["float_scale", "single_rounding"])
def test_shufflenet(shared: Path, kind: str) -> None:
    path = shared / "models/onnx/shufflenet_v2_int8.onnx"
    network = Prequantized(import_model(path))
    made = network.lower(replace(SCHEMES["int8"], requant=kind))  # type: ignore[arg-type]
    assert sum(op.name == "npu.conv" for op in made.ops) == 56
    x = {"input": np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)}
    expected = session(path).run(None, x)[0]
    ours = IntegerEngine(made, threads=2).run(x)["output"]
    if kind == "float_scale":
        np.testing.assert_array_equal(ours, expected)
    assert cosine(ours, expected) >= 0.999


def test_names_and_integers_of_the_original_can_be_fetched(shared: Path) -> None:
    path = shared / "models/onnx/shufflenet_v2_int8.onnx"
    made = quantize_network(import_model(path)).graph
    model = onnx.load(path)
    names = ["341_quantized", "342_quantized", "371_quantized"]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    x = {"input": np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)}
    expected = dict(zip(names, session(model).run(names, x), strict=True))
    found = IntegerEngine(made, fetch=names, raw=True).run(x)
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name])


# Small models, node by node.


def qdq_model(nodes: list[Any], constants: dict[str, Array], outputs: dict[str, int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 6, 6))],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def pair(source: str, scale: str, zero: str) -> list[Any]:
    return [
        helper.make_node("QuantizeLinear", [source, scale, zero], [f"{source}_q"]),
        helper.make_node("DequantizeLinear", [f"{source}_q", scale, zero], [f"{source}_d"]),
    ]


CONSTANTS = {
    "s1": np.float32(0.02),
    "z1": np.uint8(120),
    "s2": np.float32(0.05),
    "z2": np.uint8(100),
}


def judged(model: onnx.ModelProto, integer_ops: int) -> Graph:
    """Compare with the float meaning of the model; returns the integer network."""
    graph = import_model_proto(model)
    made = quantize_network(graph).graph
    made.verify()
    x = {"x": np.random.default_rng(3).uniform(-2, 2, (1, 4, 6, 6)).astype(np.float32)}
    exact = FloatEngine(graph, threads=1).run(x)
    ours = IntegerEngine(made).run(x)
    for port in graph.outputs:
        np.testing.assert_allclose(ours[port.name], exact[port.name], atol=1e-6)
    assert sum(op.name.startswith("npu.") for op in made.ops) == integer_ops, str(made.module)
    return made


def import_model_proto(model: onnx.ModelProto) -> Graph:
    from npuc.frontend.onnx import import_onnx
    from npuc.transform import canonicalize

    return canonicalize(import_onnx(model))


def test_a_value_with_two_types_is_requantized_from_the_right_source() -> None:
    nodes = [
        *pair("x", "s1", "z1"),
        helper.make_node("MaxPool", ["x_d"], ["p"], kernel_shape=[2, 2]),
        *pair("p", "s2", "z2"),
        helper.make_node("Relu", ["p_d"], ["r"]),
        *pair("r", "s2", "z2"),
        helper.make_node("Identity", ["r_d"], ["y"]),
    ]
    # quantize, max pool on integers, requant, a table, dequantize
    made = judged(qdq_model(nodes, CONSTANTS, {"y": TensorProto.FLOAT}), 4)
    assert any(op.name == "npu.requant" for op in made.ops)


def test_scales_that_no_multiplier_joins_go_through_reals() -> None:
    nodes = [
        *pair("x", "s1", "z1"),
        helper.make_node("MaxPool", ["x_d"], ["p"], kernel_shape=[2, 2]),
        *pair("p", "s2", "z2"),
        helper.make_node("Identity", ["p_d"], ["y"]),
    ]
    constants = {**CONSTANTS, "s2": np.float32(1e-20)}
    graph = import_model_proto(qdq_model(nodes, constants, {"y": TensorProto.FLOAT}))
    made = quantize_network(graph, None, QuantizationConfig(scheme="int8")).graph
    assert len(made.notes) == 1 and "is requantized through reals: the multiplier" in made.notes[0]
    x = {"x": np.random.default_rng(3).uniform(-2, 2, (1, 4, 6, 6)).astype(np.float32)}
    exact = FloatEngine(graph, threads=1).run(x)["y"]
    np.testing.assert_allclose(IntegerEngine(made).run(x)["y"], exact, rtol=1e-6)


def test_a_value_that_is_also_used_as_float_stays_float_there() -> None:
    nodes = [
        *pair("x", "s1", "z1"),
        helper.make_node("Sigmoid", ["x_d"], ["t"]),
        *pair("t", "s2", "z2"),
        helper.make_node("Add", ["t_d", "t"], ["y"]),
    ]
    judged(qdq_model(nodes, CONSTANTS, {"y": TensorProto.FLOAT}), 4)


def test_integers_as_an_output() -> None:
    nodes = [*pair("x", "s1", "z1"), helper.make_node("MaxPool", ["x_q"], ["y"], kernel_shape=[2, 2])]
    model = qdq_model(nodes, CONSTANTS, {"y": TensorProto.UINT8, "x_d": TensorProto.FLOAT})
    judged(model, 3)


def test_parameters_that_do_not_match_are_not_merged() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s1", "z1"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s2", "z2"], ["y"]),
    ]
    judged(qdq_model(nodes, CONSTANTS, {"y": TensorProto.FLOAT}), 4)


def test_truth_values_between_its_integers_stay_truth_values() -> None:
    x = np.arange(-8, 8, dtype=np.int8).reshape(1, 16)
    (a, b) = (lang.input(name, [1, 16], "i8") for name in "ab")
    truths = [
        lang.not_(lang.compare(side, np.int8(0), mode="equal", name=f"{side.name}/zero")) for side in (a, b)
    ]
    both = lang.cast(lang.logical(*truths, mode="and", name="both"), to="i8", name="bits")
    graph = lang.build({"y": lang.dequantize(both, np.float32(0.5), np.int8(2), name="y")})
    quantized = quantize_network(graph, None, None, load_target("edge-4t")).graph
    model = compile_network(quantized, load_target("edge-4t")).model
    y = CompiledEngine(model).run({"a": x, "b": x[:, ::-1]})["y"]
    np.testing.assert_array_equal(y, ((x != 0) & (x[:, ::-1] != 0)) * 0.5 - 1)


def test_ties_are_rounded_as_onnx_says() -> None:
    constants = {"s": np.float32(0.5), "z": np.uint8(10)}
    nodes = [*pair("x", "s", "z"), helper.make_node("Relu", ["x_d"], ["r"]), *pair("r", "s", "z")]
    made = quantize_network(import_model_proto(qdq_model(nodes, constants, {"r_d": TensorProto.FLOAT}))).graph
    x = np.resize(np.float32([0.25, 0.75, 1.25, 1.75]), (1, 4, 6, 6))
    found = IntegerEngine(made).run({"x": x})["r_d"]
    assert found.reshape(-1)[:4].tolist() == [0.0, 1.0, 1.0, 2.0]


def test_force_float_drops_the_pairs(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)
    constants = {**CONSTANTS, "w": weight, "sw": np.full(4, 0.01, np.float32), "zw": np.zeros(4, np.int8)}
    nodes = [
        *pair("x", "s1", "z1"),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=0),
        helper.make_node("Conv", ["x_d", "wd"], ["c"]),
        *pair("c", "s2", "z2"),
        helper.make_node("MaxPool", ["c_q"], ["m"], kernel_shape=[2, 2]),
        helper.make_node("DequantizeLinear", ["m", "s2", "z2"], ["y"]),
    ]
    path = tmp_path / "m.onnx"
    onnx.save(qdq_model(nodes, constants, {"y": TensorProto.FLOAT}), path)
    graph = network_to_quantize(path, force_float=True)
    assert [op.name for op in graph.ops] == ["top.weight", "top.conv", "top.max_pool"]
    conv = next(op for op in graph.ops if op.name == "top.conv")
    real = graph.constant(conv.operands[1])
    np.testing.assert_array_equal(real, weight.astype(np.float32) * np.float32(0.01))
    assert not is_quantized(graph)


def test_an_integer_network_is_not_quantized_again(tmp_path: Path) -> None:
    nodes = [*pair("x", "s1", "z1"), helper.make_node("Relu", ["x_d"], ["r"]), *pair("r", "s2", "z2")]
    graph = import_model_proto(qdq_model(nodes, CONSTANTS, {"r_d": TensorProto.FLOAT}))
    save_graph(quantize_network(graph).graph, tmp_path / "i.mlir")
    with pytest.raises(UsageError, match="integer network already"):
        network_to_quantize(tmp_path / "i.mlir")


def test_short_floats_in_place_of_its_own_integers_are_refused(
    statically_quantized: Callable[..., Path],
) -> None:
    graph = import_model(statically_quantized("QDQ", "QInt8", "QInt8", True))
    config = QuantizationConfig(scheme="bf16")
    with pytest.raises(QuantizationError, match=r"brings its own integers.*--force-float"):
        quantize_network(graph, config=config)
