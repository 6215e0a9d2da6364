"""-v, -vv, --log-level and NPUC_LOG; colours; completion; words on the way of long work; and what ONNX Runtime leaves behind."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from npuc.activity import activity
from npuc.cli import console
from npuc.listeners import LISTENERS
from support.networks.small_onnx import image_model

NPUC = [sys.executable, "-c", "from npuc.cli import main; main()"]
COMPILE = ("--random", "--target", "edge-4t", "-o", "m.npu")


def test_the_stages_tell_what_they_do(npuc: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUC_CACHE", "off")
    silent = npuc("compile", model, *COMPILE)
    assert silent.status == 0 and "info:" not in silent.err and "debug:" not in silent.err
    some = npuc("compile", model, *COMPILE, "-v")
    for words in (
        f"imported {model}",
        "calibration: ",
        "partition for edge-4t: ",
        "schedule of npu1: ",
        "wrote m.npu, ",
    ):
        assert "info: " in some.err and words in some.err, words
    assert "debug:" not in some.err and some.out.splitlines()[1:] != []
    more = npuc("compile", model, *COMPILE, "-vv")
    assert "debug: ir.passes: " in more.err
    assert "ops" in more.err and "group of " in more.err
    assert npuc("compile", model, *COMPILE, "--log-level", "debug").err.count("debug:") > 5
    assert "info:" not in npuc("compile", model, *COMPILE, "--log-level", "error").err
    # The next command is silent again, and results on stdout are the same.
    again = npuc("compile", model, *COMPILE)
    assert "info:" not in again.err and len(again.out.splitlines()) == len(some.out.splitlines())


def test_the_environment_asks_where_no_option_does(
    npuc: Any, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUC_LOG", "INFO")
    assert "wrote t.cali" in npuc("calibrate", program, "--random", "-o", "t.cali").err
    assert "wrote" not in npuc("calibrate", program, "--random", "-o", "t.cali", "--log-level", "error").err
    monkeypatch.setenv("NPUC_LOG", "loud")
    done = npuc("show", program)
    assert done.status == 2 and "NPUC_LOG 'loud' is no level" in done.err
    monkeypatch.delenv("NPUC_LOG")
    for wrong in (["--log-level", "loud"], ["-v", "--log-level", "info"], ["--color", "red"]):
        assert npuc("show", program, *wrong).status == 2


def test_colours_where_a_terminal_is(npuc: Any, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in (done := npuc("show", program)).out + done.err
    assert "\x1b[1mlayer" in npuc("show", program, "--color", "always").out
    failed = npuc("show", program, "--color", "never")
    assert "\x1b" not in failed.out

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    console.set_up("auto", False)
    monkeypatch.setenv("TERM", "xterm")
    assert console.paint("error", "error", Terminal()) == "\x1b[1;31merror\x1b[0m"
    assert console.paint("error", "error", io.StringIO()) == "error"
    monkeypatch.setenv("NO_COLOR", "1")
    assert console.paint("error", "error", Terminal()) == "error"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert console.paint("error", "error", Terminal()) == "error"
    console.set_up("always", False)
    assert console.paint("error", "error", io.StringIO()).startswith("\x1b")
    assert console.headed("note: x", "note:", "note") == "\x1b[36mnote:\x1b[0m x"
    console.set_up("auto", False)


def test_long_work_says_that_it_goes_on_where_nobody_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "FIRST_WORD", 0.05)
    monkeypatch.setattr(console, "NEXT_WORDS", 0.05)
    console.set_up("auto", False)
    with activity("loading PyTorch"):
        time.sleep(0.2)
    assert "loading PyTorch: 0 s so far\n" in capsys.readouterr().err
    with activity("learning", 3) as step:
        step()
        time.sleep(0.2)
    assert "learning: 1 of 3, 0 s so far, about 0 s to go\n" in capsys.readouterr().err
    with console.progress(console.Printer(), "calibrating", 9) as step:
        step()
        time.sleep(0.2)
    assert "calibrating: 1 of 9, " in capsys.readouterr().err
    monkeypatch.setattr(console, "FIRST_WORD", 60)
    with activity("quick work"):
        pass
    console.set_up("auto", True)
    monkeypatch.setattr(console, "FIRST_WORD", 0.01)
    with activity("quiet work"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
    LISTENERS.clear()
    with activity("of a program") as step:
        step()


def test_the_shell_completes(tmp_path: Path) -> None:
    def completed(words: str, place: int) -> list[str]:
        asked = {"_NPUC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        done = subprocess.run(
            ["npuc"], executable=program, env=os.environ | asked, capture_output=True, text=True
        )
        return done.stdout.split()

    program = Path(sys.executable).with_name("npuc")
    if not program.exists():
        pytest.skip("the program is not installed beside this Python")
    assert completed("npuc calib", 1) == ["calibrate", "calib-data"]
    assert "--target" in completed("npuc compile --tar", 2)
    shown = subprocess.run(
        [str(program), "--show-completion", "bash"],
        # Which shell this is cannot be told where there is none.
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0 and "_NPUC_COMPLETE" in shown.stdout


def test_starting_up_imports_no_more_than_before() -> None:
    words = "import sys, npuc.cli.app; print([m for m in ('logging', 'rich', 'numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_onnx_runtime_leaves_nothing_and_says_nothing(tmp_path: Path) -> None:
    """It would keep an identity of the machine under the home, and warns of initializers that nothing reads."""
    home = tmp_path / "home"
    home.mkdir()
    model = image_model()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "unused"))
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, str(tmp_path / "model.onnx"))
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    }
    environment |= {"HOME": str(home), "NPUC_CACHE": "off"}
    for command in (
        ["import", "model.onnx", "--json"],
        ["run", "model.onnx", "--random", "--json"],
        [
            "compile",
            "model.onnx",
            "--random",
            "--target",
            "edge-4t",
            "--keep-float",
            "scores",
            "-o",
            "m.npu",
            "--json",
        ],
        ["run", "m.npu", "--random", "--json"],
    ):
        done = subprocess.run(
            [*NPUC, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "onnxruntime" not in done.stdout + done.stderr and done.stdout.startswith("{")
    assert list(home.rglob("*")) == []
