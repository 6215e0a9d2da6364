"""A file that becomes shorter while it is read: an error with its name and the usual status, not a signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.errors import WeightFileError
from npuc.ir import load_graph, save_graph, top
from support.graphs import build

SCRIPT = """
import os, sys
from pathlib import Path
from npuc import files

path, kept, whole = Path(sys.argv[1]).resolve(), int(sys.argv[2]), files.map_file

def map_and_cut(handle):
    mapped = whole(handle)
    if Path(handle.name).resolve() == path:
        os.truncate(path, kept)
    return mapped

files.map_file = map_and_cut
from npuc.cli import main
main(sys.argv[3:])
"""


def _with_cut(path: Path, kept: int, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command during which a file is cut to some bytes, just after it was mapped."""
    words = [sys.executable, "-c", SCRIPT, str(path), str(kept), *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    graph = build({"x": [1, 256]}, lambda b, x: b(top.MatMul, x, weight, name="y"))
    save_graph(graph, tmp_path / "m.mlir")
    return tmp_path / "m.mlir"


def test_weights_that_are_cut_are_an_error(network: Path) -> None:
    weights = network.with_suffix(".safetensors")
    done = _with_cut(weights, 8192, "run", network, "--random", "-o", network.with_name("out.npz"))
    assert done.returncode == 2, done.stderr
    assert "error[E103]" in done.stderr and "m.safetensors: became shorter while it was read" in done.stderr


def test_the_check_of_a_library_s_user(network: Path) -> None:
    graph = load_graph(network)
    weight = next(iter(graph.weights.values()))
    assert weight.array().shape == (256, 256)
    with open(network.with_suffix(".safetensors"), "r+b") as file:
        file.truncate(8192)
    with pytest.raises(WeightFileError, match="became shorter"):
        weight.array()


@pytest.mark.skipif(sys.platform != "linux", reason="the name of a mapped file comes from /proc")
def test_a_cut_that_nobody_foresees_has_words_and_a_status(npuc: Any, network: Path) -> None:
    compiled = network.with_name("m.npu")
    command = ("compile", network, "--target", "edge-4t", "--random", "-o", compiled, "-q")
    assert npuc(*command).status == 0
    done = _with_cut(compiled, 4096, "sim", compiled)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stderr.startswith("error[E102]: ") and f"{compiled}: became shorter" in done.stderr
    assert done.stderr.count("\n") == 1 and "Fatal" not in done.stderr
