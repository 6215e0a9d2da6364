"""Hostile ONNX files: each gives one clear sentence and exit status 2, in bounded time and memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from npuc.errors import NpucError, catalogue
from support.hostile import onnx_models as hostile
from support.hostile.isolation import command_line, import_file, isolated

_CLASSES = {error.code: error.__name__ for error in catalogue()}
_SECONDS, _MIB = 15, 600


@pytest.mark.parametrize("name", hostile.CASES)
def test_hostile_file_is_refused_in_words(name: str, tmp_path: Path) -> None:
    case = hostile.CASES[name]
    path = case.write(tmp_path)
    outcome = isolated(import_file, str(path), seconds=_SECONDS)
    assert not outcome.died, f"the process died: {outcome.died}"
    assert outcome.mib < _MIB, f"it took {outcome.mib:.0f} MiB"
    assert isinstance(outcome.value, tuple), outcome.value
    kind, message = outcome.value
    assert kind == (_CLASSES[case.code] if case.code else ""), message
    assert len(message) < 1000, message
    for word in case.words:
        assert word in message


@pytest.mark.parametrize("name", [name for name, case in hostile.CASES.items() if case.code])
def test_command_line_says_it_in_one_paragraph(name: str, tmp_path: Path) -> None:
    case = hostile.CASES[name]
    path = case.write(tmp_path)
    out = tmp_path / "out.mlir"
    outcome = isolated(command_line, "import", str(path), "-o", str(out), seconds=_SECONDS)
    assert not outcome.died, f"the process died: {outcome.died}"
    assert isinstance(outcome.value, tuple), outcome.value
    status, _, errors = outcome.value
    assert status == 2
    assert "Traceback" not in errors
    lines = errors.strip().splitlines()
    assert len(lines) == 1, errors
    assert re.match(rf"error\[{case.code}\]: .+", lines[0]), errors
    assert not out.exists()


def test_the_model_that_the_others_are_bent_from_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(hostile.relu().SerializeToString())
    assert import_file(str(path)) == ("", "1 ops")


def test_a_worker_that_dies_is_noticed() -> None:
    """The isolation itself must be able to fail."""
    import os

    assert isolated(os.abort).died
    assert "MemoryError" in isolated(bytearray, 8 << 30).value


def test_errors_of_a_file_name_it(tmp_path: Path) -> None:
    from npuc.frontend.onnx import import_onnx

    path = hostile.CASES["cycle"].write(tmp_path)
    with pytest.raises(NpucError, match=re.escape(str(path))):
        import_onnx(path)
