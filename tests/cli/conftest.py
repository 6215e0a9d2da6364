"""Small models in files, and the command line called as a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from npuc.cli.app import run_command
from support.networks.small_onnx import image_model, two_input_model


@dataclass(frozen=True)
class Outcome:
    """What a command line did."""

    status: int
    out: str
    err: str


Npuc = Callable[..., Outcome]


@pytest.fixture
def npuc(capsys: pytest.CaptureFixture[str]) -> Npuc:
    """Call npuc; an error must be one paragraph with a code, and never a traceback."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = run_command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        if status not in (0, 130):
            lines = captured.err.strip().splitlines()
            assert lines and lines[-1].startswith("error[E"), captured.err
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(here: Path) -> Path:
    """`model.onnx` in the working directory."""
    path = here / "model.onnx"
    onnx.save(image_model(), str(path))
    return path


@pytest.fixture
def two(here: Path) -> Path:
    """`two.onnx`, with an input of indices and one of floats."""
    path = here / "two.onnx"
    onnx.save(two_input_model(), str(path))
    return path


@pytest.fixture
def program(model: Path, npuc: Npuc) -> Path:
    """The model, imported."""
    assert npuc("import", model, "--quiet").status == 0
    return model.with_suffix(".mlir")
