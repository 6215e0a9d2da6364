"""Networks that were quantized by PT2E (torchao, torch): quantize and dequantize between layers, integer weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")

from npuc.engine import FloatEngine, IntegerEngine  # noqa: E402
from npuc.flow import compile_network, import_model, network_to_quantize, quantize_network  # noqa: E402
from npuc.ir import npu, top  # noqa: E402
from npuc.runtime import Runner  # noqa: E402
from npuc.target import load_target  # noqa: E402

DECOMPOSED = torch.ops.quantized_decomposed
LIMITS = {"ui8": (0, 255, torch.uint8), "ui4": (0, 15, torch.uint8), "i8": (-128, 127, torch.int8),
    "i4": (-8, 7, torch.int8), "i6": (-32, 31, torch.int8)}  # fmt: skip
IMAGE = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32))


def stepped(x: Any, scale: float, zero: int, kind: str) -> Any:
    """What a converted program has behind a layer."""
    values = (scale, zero, *LIMITS[kind])
    return DECOMPOSED.dequantize_per_tensor(DECOMPOSED.quantize_per_tensor(x, *values), *values)


class Converted(torch.nn.Module):  # type: ignore[misc]
    """Two convolutions as `convert_pt2e` leaves them."""

    def __init__(self, weight: str, activation: str) -> None:
        super().__init__()
        generator = np.random.default_rng(1)
        self.kinds = weight, activation
        low, high, _ = LIMITS[weight]
        for name, shape in (("first", (8, 3, 3, 3)), ("second", (4, 8, 3, 3))):
            integers = generator.integers(low, high + 1, shape).astype(np.int8)
            self.register_buffer(name, torch.from_numpy(integers))
            scales = generator.uniform(0.3, 1.0, shape[0]).astype(np.float32) / high / 4
            self.register_buffer(f"{name}_scale", torch.from_numpy(scales))
            self.register_buffer(f"{name}_zero", torch.zeros(shape[0], dtype=torch.int64))

    def _conv(self, x: Any, name: str) -> Any:
        scale, zero = getattr(self, f"{name}_scale"), getattr(self, f"{name}_zero")
        weight = DECOMPOSED.dequantize_per_channel(
            getattr(self, name), scale, zero, 0, *LIMITS[self.kinds[0]]
        )
        return torch.nn.functional.conv2d(x, weight, padding=1)

    def forward(self, x: Any) -> Any:
        _, activation = self.kinds
        x = stepped(x, 0.03, 117, "ui8")
        x = stepped(torch.relu(self._conv(x, "first")), 3.0 / LIMITS[activation][1], 0, activation)
        return stepped(self._conv(x, "second"), 0.05, 3, "i6" if activation == "ui4" else "i8")


@pytest.mark.parametrize(("weight", "activation"), [("i8", "ui8"), ("i4", "ui4"), ("i4", "ui8")])
def test_a_converted_program_keeps_its_integers_and_scales(
    tmp_path: Path, weight: str, activation: str
) -> None:
    module = Converted(weight, activation)
    expected = module(IMAGE).numpy()
    path = tmp_path / "converted.pt2"
    torch.export.save(torch.export.export(module, (IMAGE,)), path)
    graph = import_model(path)
    assert not any(isinstance(op, top.Onnx) for op in graph.ops)
    port, output = graph.inputs[0].name, graph.outputs[0].name
    np.testing.assert_allclose(
        FloatEngine(graph).run({port: IMAGE.numpy()})[output],
        expected,
        atol=0.0501 if weight == "i4" else 1e-5,
    )
    target = load_target("edge-4t")
    integers = quantize_network(network_to_quantize(path), None, None, target).graph
    first, second = (op for op in integers.ops if isinstance(op, npu.Conv))
    for layer, name in ((first, "first"), (second, "second")):
        found = integers.constant(layer.weight)
        assert found is not None and found.dtype.name == {"i8": "int8", "i4": "int4"}[weight]
        # Kernels are stored with their channels last.
        assert sorted(found.astype(int).ravel()) == sorted(getattr(module, name).numpy().ravel())
        np.testing.assert_array_equal(integers.constant(layer.weight_scale), getattr(module, f"{name}_scale"))
    got = IntegerEngine(integers).run({port: IMAGE.numpy()})[output]
    assert np.abs(got - expected).max() <= 0.0501 and np.mean(np.abs(got - expected) > 1e-4) < 0.05
    run = Runner(compile_network(integers, target).model).run({port: IMAGE.numpy()})[output]
    np.testing.assert_array_equal(run, got)


def test_a_file_needs_no_other_import(tmp_path: Path) -> None:
    """The ops are not among those that `import torch` registers."""
    torch.export.save(torch.export.export(Converted("i8", "ui8"), (IMAGE,)), tmp_path / "converted.pt2")
    program = (
        "import sys; from npuc.flow import import_model; print(len(list(import_model(sys.argv[1]).ops)))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "converted.pt2")],
        capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0 and int(done.stdout) > 8, done.stderr


class Odd(torch.nn.Module):  # type: ignore[misc]
    """Fewer bits per channel of an activation."""

    def forward(self, x: Any) -> Any:
        scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3, dtype=torch.int64)
        values = (scales, zeros, 1, 0, 15, torch.uint8)
        return DECOMPOSED.dequantize_per_channel(DECOMPOSED.quantize_per_channel(x, *values), *values)


def test_what_has_no_form_stays_an_op_of_its_own(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Odd(), (IMAGE,)), tmp_path / "odd.pt2")
    kept = [op for op in import_model(tmp_path / "odd.pt2").ops if isinstance(op, top.Onnx)]
    assert [(op.domain, op.op_type) for op in kept] == [("quantized_decomposed", "quantize_per_channel")]
