"""Quantization-aware networks of Brevitas: QCDQ (a clip between quantize and dequantize) and QONNX (Quant, BipolarQuant)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import check_model, import_model, network_to_quantize, quantize_network
from npuc.frontend.options import ImportOptions
from npuc.ir import npu, top
from npuc.target import load_target

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.normal(size=(1, 4, 6, 6)).astype(np.float32)
KERNEL = RANDOM.normal(size=(5, 4, 3, 3)).astype(np.float32)
SECOND = RANDOM.normal(size=(3, 5, 1, 1)).astype(np.float32)
SCALES = (np.abs(KERNEL).max((1, 2, 3)) / 7).astype(np.float32)


def limits(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return (low + narrow, high) if signed else (low, high - narrow)


def fake(x: Any, scale: Any, zero: float, bits: int, signed: bool = True, narrow: bool = False) -> Any:
    """Quant as its specification has it."""
    grid = np.clip(np.rint(x / scale + zero), *limits(bits, signed, narrow))
    return ((grid - zero) * scale).astype(np.float32)


def save(path: Path, nodes: list[Any], constants: dict[str, Any], domain: str = "") -> Path:
    opsets = [helper.make_opsetid("", 13), *([helper.make_opsetid(domain, 1)] if domain else [])]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE.shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def qcdq(path: Path) -> Path:
    """Two convolutions: 4-bit weights per channel, an unsigned tensor of 4 bits, one of 6 bits with a zero point."""
    nodes, constants = [], dict[str, Any]()

    def step(source: str, result: str, scale: Any, zero: Any, low: int, high: int, axis: int = 1) -> None:
        kind = np.asarray(zero).dtype
        constants.update({f"{result}_s": scale, f"{result}_z": zero})
        constants.update({f"{result}_l": np.array(low, kind), f"{result}_h": np.array(high, kind)})
        integers = source
        if source not in constants:
            integers = f"{result}_q"
            nodes.append(
                helper.make_node("QuantizeLinear", [source, f"{result}_s", f"{result}_z"], [integers])
            )
        nodes.append(helper.make_node("Clip", [integers, f"{result}_l", f"{result}_h"], [f"{result}_c"]))
        names = [f"{result}_c", f"{result}_s", f"{result}_z"]
        nodes.append(helper.make_node("DequantizeLinear", names, [result], axis=axis))

    constants["w"] = np.rint(KERNEL / SCALES[:, None, None, None]).astype(np.int8)
    constants["v"] = np.clip(np.rint(SECOND / 0.3), -7, 7).astype(np.int8)
    step("x", "xq", np.float32(0.03), np.int8(0), -127, 127)
    step("w", "wq", SCALES, np.zeros(5, np.int8), -7, 7, axis=0)
    nodes.append(helper.make_node("Conv", ["xq", "wq"], ["c"], "c"))
    nodes.append(helper.make_node("Relu", ["c"], ["r"], "r"))
    step("r", "rq", np.float32(0.8), np.uint8(0), 0, 15)
    step("v", "vq", np.float32(0.3), np.int8(0), -7, 7)
    nodes.append(helper.make_node("Conv", ["rq", "vq"], ["d"], "d"))
    step("d", "out", np.float32(0.7), np.int8(3), -32, 31)
    return save(path, nodes, constants)


def test_qcdq_deploys_with_its_own_scales(tmp_path: Path) -> None:
    path = qcdq(tmp_path / "m.onnx")
    graph = import_model(path)
    assert not any(isinstance(op, top.Onnx) for op in graph.ops)
    (expected,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": 2 * IMAGE})
    np.testing.assert_allclose(FloatEngine(graph).run({"x": 2 * IMAGE})["out"], expected, atol=1e-5)
    integers = quantize_network(network_to_quantize(path), None, None, load_target("edge-4t")).graph
    layers = [op for op in integers.ops if isinstance(op, npu.Conv)]
    assert len(layers) == 2
    assert all(integers.constant(op.weight).dtype.name == "int4" for op in layers)  # type: ignore[union-attr]
    got = IntegerEngine(integers).run({"x": 2 * IMAGE})["out"]
    # A value at a tie may round to the neighbouring step.
    assert np.abs(got - expected).max() <= 0.7001 and np.mean(np.abs(got - expected) > 1e-4) < 0.05
    assert expected.max() == pytest.approx((31 - 3) * 0.7, abs=1e-4) or expected.min() < -10


def test_a_clip_of_other_integers_stays_on_the_cpu(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT8),
        helper.make_node("Clip", ["i", "l", "h"], ["out"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"l": np.int8(-3), "h": np.int8(3)})
    assert any(isinstance(op, top.Onnx) for op in import_model(path).ops)


@pytest.mark.parametrize("domain", ["qonnx.custom_op.general", "onnx.brevitas"])
def test_quant_of_weights_and_activations(tmp_path: Path, domain: str) -> None:
    constants: dict[str, Any] = {
        "w": KERNEL,
        "v": SECOND,
        "ws": SCALES.reshape(5, 1, 1, 1),
        "vs": np.float32(0.6),
    }
    constants |= {f"b{n}": np.float32(n) for n in (4, 6, 8)} | {"zero": np.float32(0), "three": np.float32(3)}
    constants |= {"xs": np.float32(0.03), "rs": np.float32(0.8), "os": np.float32(0.7)}

    def quant(result: str, *names: str, signed: int = 1, narrow: int = 0) -> Any:
        flags = {"signed": signed, "narrow": narrow, "rounding_mode": "ROUND"}
        return helper.make_node("Quant", names, [result], f"quant_{result}", domain=domain, **flags)

    nodes = [
        quant("xq", "x", "xs", "zero", "b8"),
        quant("wq", "w", "ws", "zero", "b4", narrow=1),
        helper.make_node("Conv", ["xq", "wq"], ["c"], "c"),
        helper.make_node("Relu", ["c"], ["r"], "r"),
        quant("rq", "r", "rs", "zero", "b4", signed=0, narrow=1),
        helper.make_node("BipolarQuant", ["v", "vs"], ["vq"], "bipolar", domain=domain),
        helper.make_node("Conv", ["rq", "vq"], ["d"], "d"),
        quant("out", "d", "os", "three", "b6"),
    ]
    path = save(tmp_path / "m.onnx", nodes, constants, domain)
    graph = import_model(path)
    assert not any(isinstance(op, top.Onnx) for op in graph.ops)
    kernel = fake(KERNEL, SCALES.reshape(5, 1, 1, 1), 0, 4, narrow=True)
    plain = tmp_path / "plain.onnx"
    save(plain, [helper.make_node("Conv", ["x", "w"], ["out"])], {"w": kernel})
    (hidden,) = onnxruntime.InferenceSession(str(plain)).run(None, {"x": fake(IMAGE, np.float32(0.03), 0, 8)})
    hidden = fake(np.maximum(hidden, 0), np.float32(0.8), 0, 4, signed=False, narrow=True)
    signs = np.where(SECOND >= 0, 0.6, -0.6).astype(np.float32)[:, :, 0, 0]
    expected = fake(np.einsum("oi,nihw->nohw", signs, hidden), np.float32(0.7), 3, 6)
    np.testing.assert_allclose(FloatEngine(graph).run({"x": IMAGE})["out"], expected, atol=1e-4)
    assert check_model(path, graph, ImportOptions()).passed
    integers = quantize_network(network_to_quantize(path), None, None, load_target("edge-4t")).graph
    layers = [op for op in integers.ops if isinstance(op, npu.Conv)]
    assert [integers.constant(op.weight).dtype.name for op in layers] == ["int4", "int4"]  # type: ignore[union-attr]
    got = IntegerEngine(integers).run({"x": IMAGE})["out"]
    assert np.abs(got - expected).max() <= 0.7001 and np.mean(np.abs(got - expected) > 1e-4) < 0.05


@pytest.mark.parametrize(("bits", "mode"), [(1, "ROUND"), (2.5, "ROUND"), (8, "FLOOR"), (24, "ROUND")])
def test_other_quants_of_activations_stay_on_the_cpu(tmp_path: Path, bits: float, mode: str) -> None:
    domain = "qonnx.custom_op.general"
    node = helper.make_node("Quant", ["x", "s", "z", "b"], ["out"], domain=domain, rounding_mode=mode)
    constants = {"s": np.float32(0.1), "z": np.float32(0), "b": np.float32(bits)}
    assert any(
        isinstance(op, top.Onnx)
        for op in import_model(save(tmp_path / "m.onnx", [node], constants, domain)).ops
    )
