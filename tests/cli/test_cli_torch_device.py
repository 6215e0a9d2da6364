"""--torch-device of `npuc run` and `npuc eval`: float networks are computed there. No GPU is needed: it has a double."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.engine import FloatEngine, compute_device
from support.paths import ROOT

_DIGITS = ROOT / "examples/digits.onnx"


@pytest.fixture()
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A device `cuda` that is the CPU; the devices of the engines that were made."""
    places: list[str] = []

    class Double(FloatEngine):
        def __init__(self, graph: Any, fetch: Any, threads: int | None, device: str) -> None:
            places.append(device)
            super().__init__(graph, fetch, threads)

    monkeypatch.setattr(compute_device, "check_device", lambda name, option="": None)
    monkeypatch.setattr(compute_device, "GpuEngine", Double)
    return places


def test_run_computes_on_the_device(npuc: Any, gpu: list[str], tmp_path: Path) -> None:
    npuc("run", _DIGITS, "--random", "-o", tmp_path / "cpu.npz")
    assert gpu == []
    npuc("run", _DIGITS, "--random", "--torch-device", "cuda", "-o", tmp_path / "gpu.npz")
    assert gpu == ["cuda"]
    with np.load(tmp_path / "cpu.npz") as first, np.load(tmp_path / "gpu.npz") as second:
        np.testing.assert_array_equal(first["logits"], second["logits"])
    npuc("run", _DIGITS, "--random", "--torch-device", "cuda:1", "--dump-layers", tmp_path / "layers")
    assert gpu == ["cuda", "cuda:1"]


def test_eval_computes_on_the_device(npuc: Any, gpu: list[str], tmp_path: Path) -> None:
    with np.load(ROOT / "examples/digits_samples.npz") as samples:
        np.savez(tmp_path / "data.npz", image=samples["image"][:4], labels=np.arange(4))
    arguments = ("eval", _DIGITS, "--data", tmp_path / "data.npz", "--torch-device", "cuda")
    npuc(*arguments)
    assert gpu and set(gpu) == {"cuda"}
    refused = npuc(*arguments, "--workers", "2")
    assert "a GPU is used by one process" in refused.err


@pytest.mark.parametrize("command", ["run", "eval"])
def test_a_device_that_is_not_here_is_refused(npuc: Any, command: str) -> None:
    data = ("--random",) if command == "run" else ("--data", ROOT / "examples/digits_samples.npz")
    assert "there is no 'cuda:99' here" in npuc(command, _DIGITS, *data, "--torch-device", "cuda:99").err
    assert "cannot be 'tpu'" in npuc(command, _DIGITS, *data, "--torch-device", "tpu").err
