"""`npuc train qat`: from a float network and labelled samples to an integer network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npuc.cli.app import run_command
from npuc.engine import IntegerEngine
from npuc.ir import load_graph, save_graph, top
from support.graphs import Builder, build

pytest.importorskip("torch")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)

    def layers(b: Builder, x: object) -> object:
        return b(top.MatMul, x, random.normal(0, 0.5, (6, 3)).astype("f4"), np.zeros(3, "f4"), name="logits")

    save_graph(build({"x": (1, 6)}, layers), tmp_path / "net.mlir")
    labels = random.integers(0, 3, 120)
    x = random.normal(0, 0.5, (120, 6)).astype("f4")
    x[np.arange(120), labels] += 1
    np.savez(tmp_path / "train.npz", x=x, labels=labels)
    return tmp_path


def test_it_trains_and_writes_integers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "train",
        "qat",
        str(folder / "net.mlir"),
        "--data",
        str(folder / "train.npz"),
        "--validation-count",
        "40",
    ]
    command += ["--epochs", "20", "--batch", "16", "--rate", "0.5", "--loss", "labels", "--json"]
    command += ["--checkpoint", str(folder / "run.safetensors"), "-o", str(folder / "out.mlir")]
    assert run_command(command) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert len(record["epochs"]) == 20 and record["after"] > record["before"] + 0.3
    assert err.count("epoch ") >= 20 and "% after" in err
    graph = load_graph(folder / "out.mlir")
    data = np.load(folder / "train.npz")
    engine = IntegerEngine(graph)
    best = [int(engine.run({"x": row[None]})[graph.outputs[0].name].argmax()) for row in data["x"][-40:]]
    assert np.mean(best == data["labels"][-40:]) == record["after"]
    assert run_command(command) == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == 20
    assert run_command([*command, "--target", "edge-1t"]) == 2
    assert "other options (target)" in " ".join(capsys.readouterr().err.split())


def test_an_interrupted_run_says_how_to_go_on(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from npuc.train.loop import Epoch

    command = ["train", "qat", str(folder / "net.mlir"), "--data", str(folder / "train.npz"), "--epochs", "3"]
    command += ["--checkpoint", str(folder / "run.safetensors"), "-o", str(folder / "out.mlir")]

    def interrupt(epoch: Epoch) -> str:
        """Ctrl-C while the first epoch is told."""
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Epoch, "line", property(interrupt))
        assert run_command(command) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert "run.safetensors has the epochs that are done: the same command goes on from there" in said
    assert said.endswith("interrupted") and not (folder / "out.mlir").exists()
    assert run_command(command) == 0
    assert "1 epoch done before" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"-o": "out.npu"}, "does not end in .mlir"),
        ({"--data": "absent.npz"}, "does not exist"),
        ({"--optimizer": "adam"}, "the training option 'optimizer'"),
        ({"--validation-count": "500"}, "500 of 120 samples cannot be held back"),
        ({"--loss": "label"}, "the training option 'loss'"),
    ],
)
def test_mistakes_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], words: str
) -> None:
    flags = {"--data": str(folder / "train.npz"), "-o": str(folder / "out.mlir"), "--epochs": "1"} | change
    assert (
        run_command(["train", "qat", str(folder / "net.mlir"), *(w for pair in flags.items() for w in pair)])
        == 2
    )
    assert words in " ".join(capsys.readouterr().err.split())
