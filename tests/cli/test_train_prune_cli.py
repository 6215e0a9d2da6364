"""`npuc train groups`, `prune` and `sensitivity` on a small network, and what is said of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")

from npuc import lang
from npuc.flow import load_model
from npuc.ir import save_graph, shape_of


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


def test_groups_are_listed_with_advice(npuc: Any, files: tuple[Path, Path]) -> None:
    result = json.loads(npuc("train", "groups", files[0], "--json", "--sample-count", 50_000).out)
    assert {group["name"]: group["channels"] for group in result["groups"]} == {
        "stem": 8,
        "wide": 16,
        "head": 4,
    }
    assert result["advice"]["method"] == "iterative"
    text = npuc("train", "groups", files[0]).out
    assert "'y' is an output of the network" in text
    assert "24 channels in 2 groups can be removed" in text


def test_advice_counts_no_channel_of_excluded_layers(npuc: Any, files: tuple[Path, Path]) -> None:
    assert "24 channels in 2 groups" in " ".join(npuc("train", "groups", files[0]).out.split())
    text = npuc("train", "groups", files[0], "--exclude", "wide").out
    assert "8 channels in 1 group can be removed" in " ".join(text.split())


def test_a_plot_is_named_after_what_it_is(npuc: Any, files: tuple[Path, Path], tmp_path: Path) -> None:
    done = npuc("train", "sensitivity", files[0], "--data", files[1], "--plot", tmp_path / "plot.png")
    assert done.status == 2 and "does not end in .svg" in " ".join(done.err.split())


def test_a_network_is_pruned_and_written(npuc: Any, files: tuple[Path, Path], tmp_path: Path) -> None:
    model, data = files
    slim = tmp_path / "slim.onnx"
    arguments = ("--data", data, "--validation-count", 8, "--epochs", 1, "--batch", 16, "--steps", 1)
    result = json.loads(
        npuc("train", "prune", model, *arguments, "--budget", "macs=0.6", "-o", slim, "--json").out
    )
    assert result["ratio"] <= 0.6
    ports = load_model(slim).inputs
    assert shape_of(ports[0].value) == (1, 3, 8, 8)


def test_sensitivities_are_written_and_plotted(npuc: Any, files: tuple[Path, Path], tmp_path: Path) -> None:
    model, data = files
    table, plot = tmp_path / "s.json", tmp_path / "s.svg"
    arguments = (
        "train",
        "sensitivity",
        model,
        "--data",
        data,
        "--target",
        "edge-1t",
        "-o",
        table,
        "--plot",
        plot,
    )
    result = json.loads(npuc(*arguments, "--json").out)
    assert [point["keep"] for point in result["groups"]["wide"]["points"]] == [8]
    assert plot.read_text().startswith("<svg")
    assert json.loads(npuc(*arguments, "--json").out) == result


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "cycles=0.6"), "a budget in cycles needs a target"),
        (("--budget", "speed=2"), "'speed=2' is no budget"),
        (("--budget", "macs=0.00001"), "cannot be met"),
        (("--budget", "macs=0.6", "--method", "twice"), "'twice' is no method of pruning"),
        (("--budget", "macs=0.6", "--criterion", "size"), "the pruning option 'criterion'"),
        (("--budget", "macs=0.6", "--exclude", "stm"), "there is no layer 'stm'"),
        (("--budget", "macs=0.6", "--validation-count", "100"), "cannot be held back"),
        (("--budget", "macs=0.6", "-o", "slim.txt"), "is neither .mlir nor .onnx"),
    ],
)
def test_a_mistake_is_told(
    npuc: Any, files: tuple[Path, Path], arguments: tuple[str, ...], words: str
) -> None:
    model, data = files
    held = () if "--validation-count" in arguments else ("--validation-count", 8)
    outcome = npuc("train", "prune", model, "--data", data, "--epochs", 0, *held, *arguments)
    assert outcome.status == 2
    assert words in outcome.err


def test_images_without_preprocessing_are_noted(npuc: Any, files: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), 50).save(tmp_path / "images" / name / "0.png")
    arguments = ("train", "sensitivity", files[0])
    assert "no preprocessing" in npuc(*arguments, "--data", tmp_path / "images").err
    stated = npuc(*arguments, "--data", tmp_path / "images", "--scale", "0.01")
    assert stated.status == 0 and "no preprocessing" not in stated.err
    assert "no preprocessing" not in npuc(*arguments, "--data", files[1]).err
