"""`npuc train sparsify` on a small network, and what is said of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from npuc import lang
from npuc.arithmetic.sparsity import SparsityPattern
from npuc.flow import load_model
from npuc.ir import save_graph, top


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A network of 8 and 16 channels, and samples for it."""
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 3, 8, 8))
    y = lang.conv(
        x, rng.normal(size=(8, 3, 3, 3)).astype("f4"), np.zeros(8, "f4"), pads=1, relu=True, name="stem"
    )
    y = lang.conv(
        y, rng.normal(size=(16, 8, 3, 3)).astype("f4"), np.zeros(16, "f4"), pads=1, relu=True, name="wide"
    )
    y = lang.reshape(lang.avg_pool(y, kernel=8, strides=8), shape=(1, 16))
    y = lang.matmul(y, rng.normal(size=(16, 4)).astype("f4"), np.zeros(4, "f4"), name="head")
    save_graph(lang.build({"y": y}), tmp_path / "net.mlir")
    inputs = rng.normal(size=(40, 3, 8, 8)).astype("f4")
    np.savez(tmp_path / "data.npz", x=inputs, labels=rng.integers(0, 4, 40))
    return tmp_path / "net.mlir", tmp_path / "data.npz"


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_network_becomes_sparse_and_is_written(
    npuc: Any, files: tuple[Path, Path], tmp_path: Path, epochs: int
) -> None:
    model, data = files
    sparse = tmp_path / "sparse.onnx"
    arguments = ("--data", data, "--validation-count", 8, "--epochs", epochs, "--batch", 16, "--rate", 0.001)
    result = json.loads(npuc("train", "sparsify", model, *arguments, "-o", sparse, "--json").out)
    assert result["layers"] == {
        "stem": "its 3 input channels are no whole blocks of 4", "wide": "2:4", "head": "2:4",
    }  # fmt: skip
    assert len(result["history"]) == epochs and result["magnitude"] >= result["magnitude_unordered"]
    graph = load_model(sparse)
    (wide,) = (op for op in graph.ops if isinstance(op, top.Conv) and op.weight.type.get_shape()[0] == 16)
    weight = graph.constant(wide.weight)
    assert weight is not None and SparsityPattern(2, 4).holds(weight)
    text = npuc("train", "sparsify", model, *arguments).out
    assert "2 layers with 2:4 weights" in text and "dense: stem" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pattern", "2of4"), "'2of4' is no sparsity pattern N:M, such as 2:4"),
        (("--pattern", "4:2"), "4:2 is no pattern N:M"),
        (("--exclude", "wdie"), "there is no layer 'wdie' with weights"),
        (("--activation-sparsity", "0.3"), "is not defined"),
        (("-o", "net.tflite"), "neither .mlir nor .onnx"),
    ],
)
def test_mistakes_are_explained(
    npuc: Any, files: tuple[Path, Path], arguments: tuple[str, ...], words: str
) -> None:
    model, data = files
    done = npuc("train", "sparsify", model, "--data", data, "--validation-count", 8, *arguments)
    assert done.status == 2 and words in " ".join(done.err.split())


def test_few_samples_need_no_count_and_a_checkpoint_belongs_to_its_run(
    npuc: Any, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model, data = files
    arguments = ("train", "sparsify", model, "--data", data, "--epochs", 1, "--checkpoint", tmp_path / "run")
    assert "epoch 1/1" in npuc(*arguments).out
    assert "1 epoch done before" in npuc(*arguments).out
    done = npuc(*arguments, "--pattern", "1:4")
    assert done.status == 2 and "other options (pattern)" in " ".join(done.err.split())


def test_samples_that_are_not_finite_are_named(npuc: Any, files: tuple[Path, Path]) -> None:
    model, data = files
    content = dict(np.load(data))
    content["x"][5, 0] = np.nan
    np.savez(data, **content)
    done = npuc("train", "sparsify", model, "--data", data)
    assert done.status == 2 and "not finite numbers" in " ".join(done.err.split())
