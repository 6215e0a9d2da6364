"""Trained networks in short floats on the NPU: graph mode's bits, and how far they are from ONNX Runtime in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.flow import expanded, network_to_quantize
from npuc.quant import SCHEMES, quantize
from npuc.sim import Simulator, sanitize
from npuc.target import load_target

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CASES = [
    ("onnx/cifar10_resnet20.onnx", "bf16", 0.9999),
    ("onnx/cifar10_resnet20.onnx", "f16", 0.99999),
    ("transformers/cifar10_vit.onnx", "f16", 0.99999),
    ("transformers/cifar10_vit.onnx", "bf16", 0.9999),
]


@pytest.mark.parametrize(("file", "scheme", "cosine"), CASES)
def test_a_network_in_short_floats(shared: Path, file: str, scheme: str, cosine: float) -> None:
    path, image = shared / "models" / file, shared / "data/cifar10/val/00007.png"
    if not path.exists() or not image.exists():
        pytest.skip(f"{path} or {image} is not there")
    pixels = np.asarray(Image.open(image), np.float32) / 255
    x = ((pixels - np.float32(MEAN)) / np.float32(DEVIATION)).transpose(2, 0, 1)[None]
    program = quantize(expanded(network_to_quantize(path)), {}, SCHEMES[scheme])
    done = compile_program(program, load_target("bm1684x-like"), CompileOptions())
    assert dict(done.partition.reasons) == {}
    inputs = {program.inputs[0].name: np.ascontiguousarray(x, dtype=np.float32)}
    ((name, expected),) = IntegerEngine(program, raw=True).run(inputs).items()
    result = Simulator(done.model).run(inputs)[name]
    np.testing.assert_array_equal(result, expected)
    assert [str(finding) for finding in sanitize(done.model, inputs)] == []
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    exact = session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})[0].astype(np.float64)
    likeness = float(np.vdot(result, exact) / np.linalg.norm(result) / np.linalg.norm(exact))
    assert likeness >= cosine
