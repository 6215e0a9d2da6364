"""A whole program of a user of TPU-MLIR runs unchanged, with the accuracy of npuc's own path; and what newcomers do wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from npuc.cli.app import run_command
from npuc.compat.install import install
from npuc.compat.registry import vendor_named
from support.networks.small_onnx import image_model
from support.paths import SHARED, TESTS

COUNT = 40


@pytest.mark.slow
def test_a_users_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    from npuc.datasets.data import DataLocation
    from npuc.evaluate import evaluate
    from npuc.flow import compile_model

    monkeypatch.chdir(tmp_path)
    done = install(vendor_named("tpumlir"), tmp_path / "tools")
    data = SHARED / "data" / "cifar10"
    labels = sorted(line.split() for line in (data / "val.txt").read_text().splitlines())[:COUNT]
    (tmp_path / "val").mkdir()
    for name, _ in labels:
        (tmp_path / "val" / name).symlink_to(data / "val" / name)
    (tmp_path / "labels.txt").write_text("".join(f"{int(label) + 1}\n" for _, label in labels))
    model = shared / "models" / "onnx" / "cifar10_resnet20.onnx"
    environment = os.environ | {
        "PATH": f"{done.scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(done.packages), *sys.path]),
    }
    program = TESTS / "compat" / "programs" / "tpumlir_user.py"
    assert len(program.read_text().splitlines()) >= 40
    told = subprocess.run(
        [sys.executable, program, model, data / "calib", "val", "labels.txt"],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    assert "int8 and f16 agree: True" in told.stdout and "sum to 1.0" in told.stdout
    figures = {kind: float(value) for kind, value in re.findall(r"(float|int8) top1: ([\d.]+)", told.stdout)}
    compile_model("net.mlir", data / "calib", target="bm1684x-like", max_count=20).save("own.npu")
    place = DataLocation(tmp_path / "val", tmp_path / "labels.txt", label_offset=-1)
    own = evaluate(["net.mlir", "own.npu"], place, ["top1"]).figures[0].models
    assert figures["float"] == round(own[0].value, 3)
    assert abs(figures["int8"] - own[1].value) <= 1.5 / COUNT, figures


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("model_transform.py", "the following arguments are required: --model_name"),
        ("model_transform.py --model_name x --model_def no.onnx --mlir x.mlir", "no.onnx"),
        ("model_transform.py --model_name x --model_def broken.onnx --mlir x.mlir", "broken.onnx"),
        ("model_transform.py --model_name x --model_def net.onnx --mlir x.txt", "has to end in .mlir"),
        (
            "model_transform.py --model_name x --model_def net.onnx --mlir x.mlir --input_shapes [[1,3",
            "is no list of shapes",
        ),
        ("model_transform.py --model_name x --model_def net.onnx --mlir x.mlir --mean 1,2", "has 2 values"),
        ("model_transform.py --model_name x --model_def net.onnx --mlir no/x.mlir", "no/x.mlir"),
        ("run_calibration.py no.mlir --dataset . -o t", "no.mlir"),
        ("run_calibration.py net.mlir -o t", "are both missing"),
        ("run_calibration.py net.mlir --dataset a --data_list b -o t", "contradict each other"),
        ("run_calibration.py net.mlir --dataset empty -o t", "is empty"),
        (
            "model_deploy.py --mlir net.mlir --quantize INT9 --chip bm1684x --model x.bmodel",
            "'INT9' is none of",
        ),
        (
            "model_deploy.py --mlir net.mlir --quantize INT8 --chip bm1684x --calibration_table broken.onnx --model x",
            "broken.onnx",
        ),
        ("model_deploy.py --mlir net.mlir --chip bm1684y --model x.bmodel", "there is no target 'bm1684y'"),
        ("model_deploy.py --mlir net.mlir --chip bm1684x --core 4 --model x.bmodel", "bm1684x-like has 1"),
        ("model_runner.py --input no.npz --model net.mlir --output o.npz", "no.npz"),
        ("model_eval.py --model_file net.mlir --dataset empty --postprocess_type topx", "empty"),
        ("run_model.py nothing", "there is no config of 'nothing'"),
        ("npz_tool.py compare broken.onnx broken.onnx", "broken.onnx"),
        ("npz_tool.py", None),
    ],
)
def test_what_newcomers_do_wrong(
    line: str,
    words: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(image_model(), "net.onnx")
    Path("broken.onnx").write_bytes(b"\x08\x07garbage")
    Path("empty").mkdir()
    assert run_command(["import", "net.onnx", "--quiet", "--no-check"]) == 0
    before = set(tmp_path.iterdir())
    capsys.readouterr()
    assert run_command(["compat", "run", "tpumlir", *line.split()]) == 2
    told = capsys.readouterr()
    if words is not None:
        assert "error[E" in told.err and words in told.err and "Traceback" not in told.err, told.err
    assert set(tmp_path.iterdir()) == before, "something is left behind"
