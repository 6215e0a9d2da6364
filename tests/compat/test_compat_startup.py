"""The adapters cost nothing to those who do not use them: no time at start-up, and no package."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from npuc.compat.registry import vendors
from support.paths import ROOT

COMMANDS = {
    "--help": ["--help"],
    "--version": ["--version"],
    "targets": ["targets", "list"],
    "help of compile": ["compile", "--help"],
    "compile": ["compile", str(ROOT / "examples/digits.onnx"), "--target", "edge-1t", "--data",
                str(ROOT / "examples/digits_samples.npz"), "-o", "x.npu"],
}  # fmt: skip
RUN = """
import sys
from npuc.cli.app import run_command
status = run_command(sys.argv[1:])
print(status, sorted(name for name in sys.modules if name.startswith("npuc.compat") or name == "torch"))
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_npuc_imports_no_adapter(command: str, tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", RUN, *COMMANDS[command]], capture_output=True, text=True, cwd=tmp_path
    )
    assert told.stdout.splitlines()[-1] == "0 []", told.stdout[-500:] + told.stderr[-2000:]


WITHOUT = """
import sys
OTHERS = {others!r}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OTHERS:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)
sys.meta_path.insert(0, Absent())
sys.path.insert(0, {tools!r})
from importlib import import_module
for name in sys.argv[1:]:
    try:
        import_module(name)
    except ImportError as error:
        print(name, "|", error)
"""


def _extras() -> set[str]:
    """The packages of all extras, by the names under which they are imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {"opencv-python-headless": "cv2", "scikit-learn": "sklearn"}
    core = {_package(line) for line in project["dependencies"]}
    lines = [line for extra in project["optional-dependencies"].values() for line in extra]
    packages = {_package(line) for line in lines} - core - {"pytest"}
    return {named.get(package, package) for package in packages} | {"keras", "msgpack"}


def _package(line: str) -> str:
    return re.split(r"[^A-Za-z0-9_-]", line.strip())[0]


@pytest.mark.parametrize("vendor", vendors(), ids=lambda vendor: vendor.name)
def test_without_extras_commands_start_and_modules_say_what_they_need(vendor, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from npuc.compat.install import install

    tools = str(install(vendor, tmp_path).packages)
    commands = sorted({place.partition(":")[0] for place in vendor.commands.values()})
    modules = sorted(name for name, place in vendor.modules.items() if place)
    program = WITHOUT.format(others=sorted(_extras()), tools=tools)
    told = subprocess.run(
        [sys.executable, "-c", program, *commands, *modules], capture_output=True, text=True
    )
    assert not told.returncode, told.stderr
    for line in told.stdout.splitlines():
        name, _, words = line.partition(" | ")
        assert name in modules, f"the command of {line}"
        assert re.search(r"needs \w+, which is not installed: pip install '", words), line


def test_no_package_is_a_dependency_because_of_the_adapters() -> None:
    named = {"pillow": "PIL", "pyyaml": "yaml"}
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    core = {named.get(_package(line), _package(line)) for line in lines}
    package = ROOT / "src" / "npuc"
    inside, outside, early = set(), set(), set()
    for path in package.rglob("*.py"):
        is_adapter = path.is_relative_to(package / "compat")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = {(node.module or "").partition(".")[0]}
            else:
                continue
            (inside if is_adapter else outside).update(names)
            if is_adapter and node in tree.body:
                early |= names
    assert core <= outside, f"only the adapters import {core - outside}"
    assert early - core - set(sys.stdlib_module_names) <= {"npuc", "torch"}, (
        "what is no dependency is imported late"
    )
