"""Round trips with TPU-MLIR itself (`make test-tpumlir` installs it): tables and .npz files go both ways, and results agree."""

from __future__ import annotations

import os
import subprocess
from math import inf
from pathlib import Path

import pytest

from npuc.cli.app import run_command
from npuc.compare.tensors import compare_sets
from npuc.tensors import TensorFile
from support.paths import ROOT

PEER = Path(os.environ.get("NPUC_TPUMLIR", ROOT / "build" / "peers" / "tpumlir")) / "bin"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PEER / "model_transform.py").exists(), reason="TPU-MLIR is not installed"),
]


def theirs(folder: Path, *words: object) -> None:
    """A command of TPU-MLIR itself."""
    environment = os.environ | {"PATH": f"{PEER}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    command = [str(PEER / str(words[0])), *map(str, words[1:])]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def ours(*words: object) -> None:
    """The same command of npuc, in the working folder."""
    assert run_command(["compat", "run", "tpumlir", *map(str, words)]) == 0, words


def test_resnet20(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, peer = tmp_path / "own", tmp_path / "peer"
    own.mkdir()
    peer.mkdir()
    monkeypatch.chdir(own)
    calib = shared / "data" / "cifar10" / "calib"
    image = sorted(calib.iterdir())[0]
    transform = ["--model_name", "net", "--model_def", shared / "models/onnx/cifar10_resnet20.onnx", "--pixel_format", "rgb",
                 "--input_shapes", "[[1,3,32,32]]", "--mean", "123.675,116.28,103.53", "--scale", "0.0171,0.0175,0.0174",
                 "--test_input", image, "--test_result", "top.npz", "--mlir", "net.mlir"]  # fmt: skip
    deploy = ["--mlir", "net.mlir", "--quantize", "INT8", "--chip", "bm1684x", "--test_input", "net_in_f32.npz",
              "--test_reference", "top.npz", "--tolerance", "0.9,0.6", "--model", "net.bmodel", "--debug"]  # fmt: skip
    theirs(peer, "model_transform.py", *transform)
    ours("model_transform.py", *transform)
    ours("npz_tool.py", "compare", "net_in_f32.npz", peer / "net_in_f32.npz", "--tolerance", "0.9999,0.9999")
    ours("npz_tool.py", "compare", "top.npz", peer / "top.npz", "--tolerance", "0.9999,0.999")
    theirs(own, "npz_tool.py", "compare", "top.npz", peer / "top.npz", "--tolerance", "0.9999,0.999")
    assert set(TensorFile("top.npz")) == set(TensorFile(peer / "top.npz")), (
        "the names of all ops are the same"
    )

    theirs(peer, "run_calibration.py", "net.mlir", "--dataset", calib, "--input_num", 20, "-o", "table")
    theirs(peer, "model_deploy.py", *deploy, "--calibration_table", "table")
    runner = ["--input", "net_in_f32.npz", "--model", "net_bm1684x_int8_sym_tpu.mlir", "--output", "all.npz"]
    theirs(peer, "model_runner.py", *runner, "--dump_all_tensors")
    ours("model_deploy.py", *deploy, "--calibration_table", peer / "table")
    figures = compare_sets(TensorFile("net_bm1684x_int8_sym_tpu_outputs.npz"), TensorFile(peer / "all.npz"))
    assert len(figures) == 35 and all(entry.sqnr == inf for entry in figures), figures

    ours(
        "run_calibration.py",
        "net.mlir",
        "--dataset",
        calib,
        "--input_num",
        20,
        "--tune_num",
        2,
        "-o",
        "own_table",
    )
    theirs(peer, "model_deploy.py", *deploy, "--calibration_table", own / "own_table")


def test_mobilenet_v2(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A sensitive network: one integer in 300,000 that is off by one changes the cosine of a later block by 0.06. So every integer
    # of every op has to be that of the other tool.
    own, peer = tmp_path / "own", tmp_path / "peer"
    own.mkdir()
    peer.mkdir()
    monkeypatch.chdir(own)
    calib = shared / "data" / "imagenet" / "calib"
    transform = ["--model_name", "net", "--model_def", shared / "models/onnx/mobilenet_v2.onnx", "--pixel_format", "rgb",
                 "--input_shapes", "[[1,3,224,224]]", "--resize_dims", "256,256", "--mean", "123.675,116.28,103.53",
                 "--scale", "0.0171,0.0175,0.0174", "--test_input", sorted(calib.iterdir())[0], "--test_result", "top.npz",
                 "--mlir", "net.mlir"]  # fmt: skip
    deploy = ["--mlir", "net.mlir", "--quantize", "INT8", "--chip", "bm1684x", "--calibration_table", peer / "table",
              "--test_input", peer / "net_in_f32.npz", "--test_reference", "top.npz", "--tolerance", "0.5,0.1",
              "--model", "net.bmodel", "--debug"]  # fmt: skip
    theirs(peer, "model_transform.py", *transform)
    theirs(peer, "run_calibration.py", "net.mlir", "--dataset", calib, "--input_num", 20, "-o", "table")
    theirs(peer, "model_deploy.py", *deploy)
    runner = ["--input", "net_in_f32.npz", "--model", "net_bm1684x_int8_sym_tpu.mlir", "--output", "all.npz"]
    theirs(peer, "model_runner.py", *runner, "--dump_all_tensors")
    ours("model_transform.py", *transform)
    ours("model_deploy.py", *deploy)

    figures = compare_sets(TensorFile("net_bm1684x_int8_sym_tpu_outputs.npz"), TensorFile(peer / "all.npz"))
    assert len(figures) == 63 and all(entry.sqnr == inf for entry in figures), figures
