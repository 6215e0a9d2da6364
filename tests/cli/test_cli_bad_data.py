"""`npuc quantize` with data and networks that are not as they should be: each case has its sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from support.networks.small_onnx import image_model


@pytest.fixture
def pictures(here: Path) -> Path:
    folder = here / "pictures"
    folder.mkdir()
    for index in range(4):
        pixels = np.random.default_rng(index).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def logarithm(path: Path, shape: tuple[int, ...] = (1, 4)) -> Path:
    """relu(log(x)): NaN below zero, minus infinity at zero."""
    nodes = [helper.make_node("Log", ["x"], ["log"]), helper.make_node("Relu", ["log"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "log", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def test_an_empty_folder(npuc: Any, program: Path) -> None:
    Path("empty").mkdir()
    done = npuc("quantize", program, "--data", "empty")
    assert done.status == 2 and "empty" in done.err and "is empty" in done.err


def test_one_unreadable_picture(npuc: Any, program: Path, pictures: Path) -> None:
    (pictures / "2.png").write_bytes((pictures / "1.png").read_bytes()[:60])
    done = npuc("quantize", program, "--data", pictures, "-o", "q.mlir")
    assert done.status == 0 and "2.png" in done.err and "cannot be decoded" in done.err
    done = npuc("quantize", program, "--data", pictures, "-o", "q.mlir", "--strict")
    assert done.status == 2 and "2.png" in done.err


def test_gray_and_coloured_pictures(npuc: Any, program: Path, pictures: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(pictures / "gray.png")
    done = npuc("quantize", program, "--data", pictures, "-o", "q.mlir")
    assert done.status == 0 and "mixes 1 gray and 4 coloured images" in done.err
    done = npuc("quantize", program, "--data", pictures, "-o", "q.mlir", "--strict")
    assert done.status == 2 and "gray.png' is gray" in done.err


def test_a_wrong_shape(npuc: Any, program: Path) -> None:
    Path("data").mkdir()
    np.save("data/good.npy", np.random.default_rng(0).random((3, 8, 8), np.float32))
    np.save("data/wrong.npy", np.zeros((3, 9, 8), np.float32))
    done = npuc("quantize", program, "--data", "data", "-o", "q.mlir")
    assert done.status == 0 and "wrong.npy" in done.err and "takes shape [1, 3, 8, 8]" in done.err
    Path("data/good.npy").unlink()
    done = npuc("quantize", program, "--data", "data", "-o", "q.mlir")
    assert done.status == 2 and "the only sample cannot be used" in done.err


def test_activations_that_are_not_finite_now_and_then(npuc: Any, here: Path) -> None:
    np.savez("data.npz", x=np.float32([[1, 2, 0, -1], [3, 2, 1, 1]]))
    done = npuc("quantize", logarithm(here / "m.onnx"), "--data", "data.npz", "-o", "q.mlir")
    assert done.status == 0, done.err
    assert "tensor 'log': left out 1 NaN and 1 infinite or beyond ±1e+30 of 8 values" in done.err


def test_activations_that_are_never_finite(npuc: Any, here: Path) -> None:
    np.savez("data.npz", x=np.full((2, 4), -1, np.float32))
    done = npuc("quantize", logarithm(here / "m.onnx"), "--data", "data.npz", "-o", "q.mlir")
    assert done.status == 2
    assert "'log' never had a finite value" in done.err or "no range for the tensor 'log'" in done.err


def test_a_channel_of_zeros(npuc: Any, here: Path) -> None:
    model = image_model()
    weight = numpy_helper.to_array(next(w for w in model.graph.initializer if w.name == "w")).copy()
    weight[2] = 0
    next(w for w in model.graph.initializer if w.name == "w").CopyFrom(numpy_helper.from_array(weight, "w"))
    onnx.save(model, "zero.onnx")
    np.savez("data.npz", x=np.random.default_rng(0).random((6, 3, 8, 8), np.float32))
    for target in ("edge-4t", "zhouyi-x1-like", "dpuczdx8g-b4096-like"):
        done = npuc("quantize", "zero.onnx", "--data", "data.npz", "--target", target, "-o", "q.mlir")
        assert done.status == 0 and " integer, 0 float" in done.out, done.out + done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layers: {scroes: int16}", "no layer 'scroes' in the network"),
        ("scheme: {requant: pow2}", "needs power-of-two scales"),
        ("scheme: {max_shift: 20}", "31 bits and a shift of at most 20 make no factor below 1/2"),
        ("scheme: {wide_sum_bits: 24}", "wide accumulator of 24 bits is not wider"),
        ("scheme: {sum_bits: 20, bias_bits: 24}", "a bias cannot have more bits than the accumulator"),
        ("scheme: {bias_bits: 8, bias_significant_bits: 16}", "does not have 16 significant ones"),
        ("scheme: {max_shift: 99}", "'max_shift' cannot be 99. It can be 1 to 62"),
        ("scheme: {fixed_outputs: [[softmax, i8]]}", "'fixed_outputs' cannot hold"),
        ("scheme: {fixed_outputs: [[sotfmax, i8, 0.1, 0]]}", "the IR has no op of this name"),
        ("scheme: {fixed_outputs: [[softmax, i8, 0.1, 500]]}", "zero point 500 is outside -128 to 127"),
        ("scheme: {activation: bf16, weight: f16}", "bf16 cannot be multiplied by weights of type f16"),
    ],
)
def test_configurations_that_cannot_be(npuc: Any, program: Path, text: str, words: str) -> None:
    Path("q.yaml").write_text(text)
    done = npuc("quantize", program, "--random", "--config", "q.yaml")
    assert done.status == 2 and words in done.err, done.err


def test_a_target_that_lacks_what_a_layer_asks_for(npuc: Any, program: Path) -> None:
    Path("q.yaml").write_text("layers: {scores: int16}")
    done = npuc("quantize", program, "--random", "--config", "q.yaml", "--target", "aries-like")
    assert done.status == 2 and "asks for what the target 'aries-like' does not have" in done.err
