"""The torch engine gives what ONNX Runtime gives, op by op and for whole networks, and has gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra npuc[torch]")

from npuc import lang  # noqa: E402
from npuc.calib.random_inputs import random_inputs  # noqa: E402
from npuc.engine import FloatEngine  # noqa: E402
from npuc.engine.torch import TopModule, TorchEngine  # noqa: E402
from npuc.errors import EngineError  # noqa: E402
from npuc.flow import import_model  # noqa: E402
from npuc.lang import ops  # noqa: E402
from support.networks.every_op import CASES, MORE, network_of  # noqa: E402


def compare(graph: Any, low: float = -2.0) -> None:
    inputs = random_inputs(graph, 1)
    wanted, got = FloatEngine(graph).run(inputs), TorchEngine(graph).run(inputs)
    for name, array in wanted.items():
        assert got[name].shape == array.shape and got[name].dtype == array.dtype
        np.testing.assert_allclose(got[name], array, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", [name for name in ops.__all__])
def test_every_op(name: str) -> None:
    compare(network_of(name, CASES[name]))


@pytest.mark.parametrize("name", sorted(MORE))
def test_other_forms(name: str) -> None:
    compare(network_of(name.split(":")[0], MORE[name]))


def test_the_demo_network() -> None:
    model = Path(__file__).parents[2] / "examples" / "digits.onnx"
    compare(import_model(model))


def test_gradients_reach_the_weights() -> None:
    x = lang.input("x", (1, 3, 8, 8))
    rng = np.random.default_rng(0)
    y = lang.conv(x, rng.standard_normal((4, 3, 3, 3)).astype(np.float32), name="stem", relu=True)
    module = TopModule(lang.build({"y": y}))
    (weight,) = module.parameters()
    weight.requires_grad_(True)
    module({"x": torch.randn(1, 3, 8, 8)})["y"].sum().backward()
    assert weight.grad is not None and weight.grad.abs().sum() > 0


def test_an_op_of_onnx_has_no_form() -> None:
    (y,) = lang.custom("Einsum", [lang.input("x", (2, 3))], [((2,), "f32")], domain="", name="sum")
    with pytest.raises(EngineError, match="sum"):
        TopModule(lang.build({"y": y}))


def test_a_vector_of_zeros_has_no_direction() -> None:
    """It stays zeros, as in ONNX."""
    graph = lang.build({"y": lang.l2_norm(lang.input("x", (2, 2)), axis=1)})
    inputs = {"x": np.float32([[3, 4], [0, 0]])}
    expected = FloatEngine(graph, threads=1).run(inputs)["y"]
    np.testing.assert_allclose(expected, [[0.6, 0.8], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(TorchEngine(graph).run(inputs)["y"], expected, rtol=1e-6)
