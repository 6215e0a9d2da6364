"""The program itself: help, version, usage, and what becomes of every kind of error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from npuc import __version__
from npuc.cli import app, gendocs
from npuc.errors import catalogue

COMMANDS = ("import", "opt", "run", "show", "targets", "tensors", "export", "doctor")


def npuc_process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    code = "import sys; from npuc.cli import main; main(sys.argv[1:])"
    environment = {key: value for key, value in os.environ.items() if key != "NPUC_TRACEBACK"}
    environment |= options.pop("environment", {})
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # In the background of a shell, SIGINT is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def test_without_arguments_it_shows_the_help(npuc: Any) -> None:
    done = npuc()
    assert done.status == 0
    assert all(command in done.out for command in COMMANDS)
    assert done.out == npuc("--help").out


def test_version(npuc: Any) -> None:
    assert npuc("--version").out == f"npuc {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(npuc: Any, command: str) -> None:
    done = npuc(command, "--help")
    assert done.status == 0 and f"Usage: npuc {command}" in done.out


@pytest.mark.parametrize(
    "arguments", [["imprt"], ["import"], ["import", "--nope"], ["run", "a", "--seed", "x"], ["tensors", "x"]]
)
def test_usage_errors_point_to_the_help(npuc: Any, arguments: list[str]) -> None:
    done = npuc(*arguments)
    assert done.status == 2
    assert done.err.startswith("error[E601]: ") and "--help' shows how it is used" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_fault_of_ours_is_a_paragraph_with_status_1(npuc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npuc.doctor.examine", lambda: 1 // 0)
    done = npuc("doctor")
    assert done.status == 1
    assert "error[E901]: ZeroDivisionError" in done.err and "please report it" in done.err


def test_the_traceback_is_shown_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("npuc.doctor.examine", lambda: 1 // 0)
    monkeypatch.setenv("NPUC_TRACEBACK", "1")
    assert app.run_command(["doctor"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_help_is_quick_because_nothing_heavy_is_loaded() -> None:
    code = (
        "import sys; from npuc.cli.app import run_command; run_command(['--help']);"
        "heavy = {'onnx', 'onnxruntime', 'xdsl', 'numpy', 'pydantic', 'rich'};"
        "sys.exit(', '.join(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_a_reader_that_stops_reading_is_no_error(here: Path) -> None:
    process = npuc_process("doctor")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait(60)


def test_ctrl_c_ends_it_with_one_word(model: Path) -> None:
    hook = model.parent / "sitecustomize.py"
    # The run is made to wait in the middle, so that the signal surely comes while it works.
    hook.write_text(
        "import npuc.flow.importing, time, pathlib\n"
        "def wait(*args, **kwargs):\n"
        "    pathlib.Path('started').touch()\n"
        "    time.sleep(60)\n"
        "npuc.flow.importing.import_foreign = wait\n"
    )
    process = npuc_process(
        "import", "model.onnx", cwd=model.parent, environment={"PYTHONPATH": str(model.parent)}
    )
    deadline = time.monotonic() + 30
    while not (model.parent / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert err.split() == ["interrupted"] and out.strip() == ""
    assert not (model.parent / "model.mlir").exists()


def test_ctrl_c_while_npuc_is_being_loaded() -> None:
    code = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "npuc.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
from npuc.cli import main
main(["--version"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_while_a_library_is_being_loaded(npuc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(arguments: Any) -> int:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr(app, "_invoke", load)
    done = npuc("--version")
    assert done.status == 130 and done.err == "interrupted\n"


def test_the_codes_of_errors_are_unique() -> None:
    codes = [error.code for error in catalogue()]
    assert len(codes) == len(set(codes))


def test_the_generated_pages_are_up_to_date(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = gendocs.main(["--check", str(root / "docs")])
    assert status == 0, capsys.readouterr().err


def test_a_stale_page_is_found_and_written_again(here: Path) -> None:
    assert gendocs.main(["--check", "docs"]) == 1
    assert gendocs.main(["docs"]) == 0
    assert gendocs.main(["--check", "docs"]) == 0
    Path("docs/errors.md").write_text("old")
    assert gendocs.main(["--check", "docs"]) == 1


def test_the_pages_name_everything() -> None:
    pages = gendocs.pages()
    assert all(error.code in pages["errors.md"] for error in catalogue())
    assert "`top.conv`" in pages["ops.md"] and "property `group`: int = `1`" in pages["ops.md"]
    assert "`fuse-relu`" in pages["passes.md"]
    assert "--input-shape" in pages["cli.md"] and "npuc tensors compare" in pages["cli.md"]
