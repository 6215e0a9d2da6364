"""A file that is added to the shared folder is reported as untested, and fails nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import shared_models

_CONFTEST = Path(__file__).with_name("conftest.py")


class _Terminal(SimpleNamespace):
    """What pytest writes its summary on, as far as the hook uses it."""

    def section(self, title: str) -> None:
        self.lines.append(title)

    def write_line(self, line: str) -> None:
        self.lines.append(line)


Written = Callable[[Path], list[str]]


@pytest.fixture
def written(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Written:
    """What the summary of a run says where the shared models are in a folder."""
    plugins = pytestconfig.pluginmanager.get_plugins()
    (hooks,) = (plugin for plugin in plugins if getattr(plugin, "__file__", None) == str(_CONFTEST))

    def summary(folder: Path) -> list[str]:
        monkeypatch.setattr(hooks, "SHARED_MODELS", folder)
        terminal: Any = _Terminal(lines=[], stats={})
        hooks.pytest_terminal_summary(terminal)
        lines: list[str] = terminal.lines
        return lines

    return summary


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_an_added_model_is_named_in_the_summary_and_taken_by_no_test(
    tmp_path: Path, written: Written
) -> None:
    _touch(tmp_path, "onnx/mnist.onnx", "onnx/added.onnx", "caffe/alone.caffemodel", "new/net.tflite")
    _touch(tmp_path, "tensorflow/other/saved_model.pb", "caffe/lenet.caffemodel", "onnx/notes.txt")
    assert written(tmp_path) == [
        "untested models",
        "no test reads these 4 models of ../shared/models (tests/support/shared_models.py lists the known ones):",
        "  caffe/alone.caffemodel",
        "  new/net.tflite",
        "  onnx/added.onnx",
        "  tensorflow/other",
    ]
    assert shared_models.known(["onnx"], tmp_path) == [tmp_path / "onnx/mnist.onnx"]


def test_one_is_one_and_none_is_silent(tmp_path: Path, written: Written) -> None:
    assert written(tmp_path / "absent") == []
    _touch(tmp_path, "onnx/mnist.onnx")
    assert written(tmp_path) == []
    _touch(tmp_path, "onnx/added.onnx")
    assert written(tmp_path)[1].startswith("no test reads this model of ../shared/models")
