"""qubee's names on npuc: a user's whole program, settings, and arrays that do not tell their axes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.compat.install import install
from npuc.compat.qubee.compiling import mxq_compile
from npuc.compat.qubee.samples import calibration_data
from npuc.compat.qubee.settings import CompileSettings
from npuc.compat.registry import vendor_named
from npuc.errors import OutputError, UnknownTargetError, UsageError
from npuc.ir import Graph, top
from support.graphs import build
from support.paths import ROOT

PROGRAM = ROOT / "tests" / "compat" / "programs" / "qubee_digits.py"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the digits model, and the vendor's packages on the path of programs."""
    for name in ("digits.onnx", "digits_samples.npz"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    tools = install(vendor_named("qubee"), tmp_path / "tools")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tools.packages), *filter(None, sys.path)]))
    return tmp_path


@pytest.mark.slow
def test_a_users_program_is_as_accurate_as_npuc_itself(workspace: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "digits.onnx", "digits_samples.npz"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    figures = re.search(r"float (\S+) int8 (\S+)", done.stdout)
    assert figures is not None and "files differ in 0 bytes" in done.stdout
    assert float(figures[2]) == _own_accuracy() >= float(figures[1]) - 0.02
    # The printed command is npuc's own way to the same file.
    command = re.search(r"the same as: npuc (compile digits.onnx .*) -o", done.stderr)
    assert command is not None and "--data calibration/digits" in command[1]
    from npuc.cli.app import run_command
    from npuc.program.file import load_compiled

    assert run_command([*command[1].split(), "-o", "own.npu", "--quiet"]) == 0
    own, theirs = load_compiled("own.npu"), load_compiled("digits.mxq")
    assert np.array_equal(own.weights, theirs.weights)


def _own_accuracy() -> float:
    """Of npuc's own functions on the same data."""
    from npuc.calib.sources import open_data
    from npuc.engine import IntegerEngine
    from npuc.flow import network_to_quantize, quantize_by_method
    from npuc.quant.config import QuantizationConfig
    from npuc.target import load_target

    data = np.load("digits_samples.npz")
    graph = network_to_quantize("digits.onnx")
    config = QuantizationConfig(options={"per_channel": True})
    source = open_data(graph, "calibration/digits.txt")
    method = "percentile:ratio=0.9999"
    done, _ = quantize_by_method(graph, source, config, load_target("aries-like"), method)
    engine = IntegerEngine(done.graph)
    scores = [engine.run({"image": image[None]})["logits"] for image in data["image"]]
    return float(f"{(np.concatenate(scores).argmax(1) == data['label']).mean():.4f}")


def cube() -> Graph:
    """A network whose input has as many channels as rows and columns."""
    return build({"x": (1, 4, 4, 4)}, lambda b, x: b(top.Relu, x, name="y"))


@pytest.mark.parametrize("own_shapes", [True, False])
def test_arrays_that_do_not_tell_where_their_channels_are(tmp_path: Path, own_shapes: bool) -> None:
    array: Array = np.arange(64, dtype=np.float32).reshape(4, 4, 4)
    np.save(tmp_path / "a.npy", array)
    source = calibration_data(cube(), tmp_path, random=False, own_shapes=own_shapes)
    (batch,) = Feeder(cube(), source).batches()
    expected = array if own_shapes else array.transpose(2, 0, 1)
    np.testing.assert_array_equal(batch.inputs["x"][0], expected)


@pytest.mark.parametrize(("level", "own"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 2), (6, 3), (99, 3)])
def test_levels_of_optimization(level: int, own: int) -> None:
    assert CompileSettings(optimization_level=level).level == own


def test_learning_rates_are_absolute_and_epochs_are_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    settings = CompileSettings(
        adaq_useadaquant=True, adaq_weightDeltaLR=1e-5, adaq_actScaleLR=1e-4, adaq_batchSize=8, adaq_epoch=3
    )
    options = settings.config(20).ladder.adaquant
    assert options.real_rates and (options.iterations, options.batch) == (9, 8)
    assert (options.weight_rate, options.bias_rate, options.activation_scale_rate) == (1e-5, 0, 1e-4)
    plain = CompileSettings(adaq_useadaquant=True).config(20).ladder.adaquant
    assert (
        not plain.real_rates and plain.weight_rate > 0 and "npuc's own are taken" in capsys.readouterr().err
    )


def test_mistakes_are_told_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(ROOT / "examples" / "digits.onnx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError):
        mxq_compile(model, None, save_path="no/such/folder.mxq", use_random_calib=True)
    with pytest.raises(UnknownTargetError):
        mxq_compile(model, None, use_random_calib=True, target_device="regulus")
    monkeypatch.setenv("NPUC_COMPAT_STRICT", "1")
    with pytest.raises(UsageError, match="no argument 'llm_config'"):
        mxq_compile(model, None, use_random_calib=True, llm_config=None)
    assert not list(tmp_path.iterdir())
