"""Plugins are found by file, by module and by entry point; a broken one is an error that names it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from npuc.cli.app import run_command
from npuc.errors import PluginError
from npuc.plugins import GROUP, Plugin, discover, load, loaded, loading


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


COUNTING = "import sys\nsys.plugin_count = getattr(sys, 'plugin_count', 0) + 1\n"


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "plugin_count", 0, raising=False)
    return lambda: sys.plugin_count  # type: ignore[attr-defined]


def test_a_file_is_loaded_once(tmp_path: Path, count: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "mine.py", COUNTING)
    load(path)
    monkeypatch.chdir(tmp_path)
    load("./mine.py", str(path))
    assert count() == 1
    assert [plugin.name for plugin in loaded()] == [str(path)]


def test_a_relative_path_is_found_from_another_folder(
    tmp_path: Path, count: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "mine.py", COUNTING)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    (plugin,) = load("mine.py", installed=False)
    monkeypatch.chdir(tmp_path / "other")
    load(plugin.source, installed=False)  # as a process that measures does
    assert count() == 1 and plugin.name == "mine.py"


def test_two_files_of_one_name_are_two_plugins(tmp_path: Path, count: Any) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        load(written(tmp_path / folder, "mine.py", COUNTING))
    assert count() == 2


def test_a_module_is_loaded_by_its_name(tmp_path: Path, count: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "npuc_test_plugin_module.py", COUNTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load("npuc_test_plugin_module")[-1] == Plugin("npuc_test_plugin_module", "npuc_test_plugin_module")
    assert count() == 1


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An installed package with an entry point of this value, and a module `npuc_test_package` of this text."""

    def make(value: str, text: str) -> None:
        info = tmp_path / "npuc_test_package-1.0.dist-info"
        info.mkdir()
        written(info, "METADATA", "Metadata-Version: 2.1\nName: npuc-test-package\nVersion: 1.0\n")
        written(info, "entry_points.txt", f"[{GROUP}]\ntest = {value}\n")
        written(tmp_path, "npuc_test_package.py", text)
        monkeypatch.syspath_prepend(str(tmp_path))
        sys.modules.pop("npuc_test_package", None)

    return make


def test_entry_points_of_installed_packages_are_found_and_loaded(package: Any, count: Any) -> None:
    package("npuc_test_package", COUNTING)
    assert Plugin("test", "npuc_test_package", "npuc-test-package") in discover()
    assert count() == 0
    load()
    load()
    assert count() == 1


def test_an_entry_point_may_be_a_function(package: Any, count: Any) -> None:
    package("npuc_test_package:begin", "def begin():\n    import sys\n    sys.plugin_count += 10\n")
    load()
    assert count() == 10


def test_installed_plugins_can_be_left_out(package: Any, count: Any) -> None:
    package("npuc_test_package", COUNTING)
    load(installed=False)
    assert count() == 0


def test_a_broken_package_is_named_with_the_way_out(package: Any) -> None:
    package("npuc_test_package", "import nothing_of_this_name")
    with pytest.raises(PluginError) as caught:
        load()
    text = caught.value.paragraph()
    assert "plugin 'test' of the package npuc-test-package" in text and "nothing_of_this_name" in text
    assert "pip uninstall npuc-test-package" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1 / 0", ["ZeroDivisionError", "line 1 of broken.py"]),
        ("\ndef f(:", ["SyntaxError", "line 2"]),
        ("raise SystemExit('bye')", ["SystemExit", "bye"]),
        ("import nothing_of_this_name", ["nothing_of_this_name", "line 1"]),
        ("raise Exception('a\\nb')", ["a b"]),
        (
            "from npuc.plugins.api import onnx_rule\n@onnx_rule('Conv')\ndef conv(ctx): ...\n",
            [
                "there is an import rule for the ONNX operator 'Conv' already, of npuc.frontend",
                "line 2",
                "Leave one",
            ],
        ),
        (
            "from npuc.plugins.api import *\nlowers(top.Relu)(lambda op, context: None)\n",
            ["there is an integer form of the op 'top.relu' already", "line 2"],
        ),
        ("from npuc.plugins.api import *\nadd_op_kind('conv')\n", ["an op kind 'conv' already"]),
        ("from npuc.plugins.api import *\nkernel('no spaces')(print)\n", ["cannot be the name of a kernel"]),
        ("from npuc.plugins.api import *\nonnx_pattern('d', 'X(x)', 'y = ')\n", ["no line of a pattern"]),
        ("from npuc.plugins.api import *\nonnx_pattern('d', 'X(x)', 'y = Mul(x, z)')\n", ["reads x, z"]),
        (
            "from npuc.plugins.api import *\nonnx_pattern('d', 'X(x)', 'a = Neg(x)\\ny = Relu(x)')\n",
            ["nothing reads it"],
        ),
        ("from npuc.plugins.api import *\nonnx_pattern('', 'X(x)', 'y = Relu(x)')\n", ["your own domain"]),
        (
            "from npuc.plugins.api import *\nadd_accelerator(Accelerator('npu', print, print, print))\n",
            ["cannot be called 'npu'"],
        ),
    ],
)
def test_a_broken_plugin_is_one_paragraph(tmp_path: Path, text: str, words: list[str]) -> None:
    path = written(tmp_path, "broken.py", text)
    with pytest.raises(PluginError) as caught:
        load(path)
    paragraph = caught.value.paragraph()
    assert f"plugin '{path}'" in paragraph and "\n" not in paragraph
    for word in words:
        assert word in paragraph
    assert not loaded()
    assert not any(name.startswith("npuc_plugin_broken") for name in sys.modules)


API = "from npuc.plugins.api import *\n"
OP = "@{0}_op\nclass Op({1}Op):\n    name = '{0}.npuc_test'\n    x = operand()\n    y = result()\n"
TAKEN = {
    "onnx_rule": "onnx_rule('Glu', domain='com.example')(print)",
    "tflite_rule": "tflite_rule('GLU')(print)",
    "torch_rule": "from npuc.plugins.api import torch_rule\ntorch_rule('mine.glu')(lambda ctx: None)",
    "keras_rule": "from npuc.plugins.api import keras_rule\nkeras_rule('Glu')(lambda ctx: None)",
    "tensorflow_rule": "from npuc.plugins.api import tensorflow_rule\ntensorflow_rule('Glu')(lambda ctx: None)",
    "caffe_rule": "from npuc.plugins.api import caffe_rule\ncaffe_rule('Glu')(lambda ctx: None)",
    "darknet_rule": "from npuc.plugins.api import darknet_rule\ndarknet_rule('glu')(lambda ctx: None)",
    "claims": "claims('com.example', 'Other', 'Glu')(print)",
    "add_format": "add_format('glu', Format('a', 'b', 'c', 'd'), print)",
    "top_op": OP.format("top", "Top"),
    "npu_op": OP.format("npu", "Npu"),
    "verifier": "verifier('glu')(print)",
    "step": "step('glu', 'does it', 3)(print)",
    "kernel": "kernel('npuc_test_glu')(print)",
    "add_op_kind": "add_op_kind('glu')",
    "add_accelerator": "add_accelerator(Accelerator('glu', print, print, print))",
    "float_forward": "float_forward(top.Relu)(print)",
    "lowers": "lowers(top.Relu)(print)",
    "custom_instruction": "custom_instruction(npu.Conv, kernel='glu')",
}
"""What two plugins cannot both register; the last three are npuc's own ops already."""


@pytest.mark.parametrize("name", TAKEN)
def test_two_plugins_cannot_have_one_name(tmp_path: Path, name: str) -> None:
    if name == "torch_rule":
        pytest.importorskip("torch", reason="torch is not installed")
    if TAKEN[name].find("top.Relu") < 0 and TAKEN[name].find("npu.Conv") < 0:
        load(written(tmp_path, "first.py", API + TAKEN[name]))
    with pytest.raises(PluginError, match=r"there is .* already") as caught:
        load(written(tmp_path, "second.py", API + TAKEN[name]))
    assert "(line " in caught.value.message and caught.value.fix
    assert len(loaded()) < 2


@pytest.mark.parametrize("name", ["nothing.py", "./nothing", "nothing_of_this_name", "nothing.of.this"])
def test_what_is_not_there_is_said(name: str) -> None:
    with pytest.raises(PluginError, match=r"there is no (file|module)"):
        load(name)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"neither a Python file nor a shared library.*\.py or \.so"):
        load(str(written(tmp_path, "op.c", "int x;")))


def test_every_command_takes_plugins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "broken.py", "x = 1 / 0")
    for words in (
        ["targets", "list"],
        ["doctor"],
        ["export", "c", "x.npu", "-o", "x"],
        ["tensors", "dump", "x.npz"],
    ):
        assert run_command([*words, "--plugin", str(path)]) == 2
        assert "E602" in capsys.readouterr().err


def test_only_the_user_names_plugins() -> None:
    """No reader of model, target or compiled files loads any: command lines do, and worker processes that they start."""
    source = Path(loading.__file__).parents[1]
    asking = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if path.parent.name != "plugins"
        and re.search(r"npuc\.plugins import .*\bload\b|plugins\.load\(", path.read_text())
    }
    assert asking <= {"cli/plugin.py", "compat/arguments.py", "evaluate/plan.py"}
