"""Runs the items of `examples.yaml`: commands in this process, programs with the vendor's packages on their path."""

from __future__ import annotations

import importlib.util
import linecache
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from npuc.cli.app import run_command
from npuc.compare.tensors import Tolerance, compare_sets
from npuc.compat.install import install
from npuc.compat.registry import vendor_named
from npuc.errors import NpucError
from npuc.tensors import TensorFile
from support.judges.tf_models import PYTHON
from support.paths import SHARED, TESTS

EXAMPLES = sorted((TESTS / "compat").glob("examples*.yaml"))
"""Files of vendors; all have the form that the first one describes."""
_STATES = ("run", "mistake", "stated", "refused", "board")
_KEYS = {"item", "state", "reason", "run", "python", "status", "says", "files", "tensors", "similar"}


def load() -> dict[str, dict[str, Any]]:
    """Vendors, with their scenarios."""
    content: dict[str, dict[str, Any]] = {}
    for path in EXAMPLES:
        content |= yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def counts(scenarios: Mapping[str, Any]) -> Counter[str]:
    """How many items of a vendor are in each state."""
    return Counter(entry["state"] for scenario in scenarios.values() for entry in scenario["items"])


def summary() -> list[str]:
    """By document: how many items run, are mistakes of a user that are told, are refused, or need a board."""
    lines = []
    for vendor, scenarios in load().items():
        by_state = counts(scenarios)
        lines.append(
            f"{vendor}: {sum(by_state.values())} items: {by_state['run']} run, {by_state['mistake']} mistakes told, "
            f"{by_state['stated']} refused as the specification states, {by_state['refused']} refused with a reason, "
            f"{by_state['board']} need a board"
        )
    return lines


def check_form(entry: Mapping[str, Any]) -> None:
    """An item states what it is and what it must do."""
    assert set(entry) <= _KEYS, f"{entry['item']}: {set(entry) - _KEYS}"
    assert entry["state"] in _STATES, entry
    executed = "run" in entry or "python" in entry
    assert executed == (entry["state"] != "board") or entry["state"] == "refused", entry
    assert entry["state"] not in ("mistake", "stated") or entry.get("says"), (
        f"{entry['item']}: nothing is told"
    )
    if entry["state"] != "run":
        assert entry.get("reason"), f"{entry['item']} is not run, and nothing says why"


def run_scenario(
    vendor: str, scenario: Mapping[str, Any], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Run all items of a scenario in a folder that is the working directory."""
    peers = [str(folder_of(scenario["needs"]))] if "needs" in scenario else []
    installed = install(vendor_named(vendor), folder / ".compat")
    for name, source in scenario.get("files", {}).items():
        if not (SHARED / source).exists():
            pytest.skip(f"{source} is not here")
        (folder / name).symlink_to(SHARED / source)
    paths = [str(installed.packages)] if installed.packages else []
    program: Callable[[str], subprocess.CompletedProcess[str]] = partial(
        run_program, paths=paths, peers=peers
    )
    if scenario.get("in_process"):
        program = partial(_run_here, space={}, paths=paths, names=tuple(vendor_named(vendor).modules))
    if "python" in scenario:
        done = program(scenario["python"])
        assert not done.returncode, done.stderr
    for entry in scenario["items"]:
        capfd.readouterr()
        status = 0
        for line in split_lines(entry.get("run", "")):
            status = run_command_line(vendor, line)
            if status and line != split_lines(entry["run"])[-1]:
                break
        said = ""
        if "python" in entry:
            done = program(entry["python"])
            status, said = done.returncode, done.stdout + done.stderr
        captured = capfd.readouterr()
        _check(entry, status, captured.out + captured.err + said)


def folder_of(package: str) -> Path:
    """Where Keras or TensorFlow is, or a skip: they are no part of the test environment."""
    spec = importlib.util.find_spec(package)
    places = [os.environ.get("NPUC_KERAS", ""), *sorted(PYTHON.parents[1].glob("lib/*/site-packages"))]
    found = [Path(place) for place in places if place and (Path(place) / package).is_dir()]
    if spec is None and not found:
        pytest.skip(
            f"{package} is not here: 'make peers-tensorflow' installs it, or NPUC_KERAS names a folder with it"
        )
    os.environ.setdefault("KERAS_BACKEND", "torch")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return found[0] if spec is None else Path(str(spec.origin)).parents[1]


def split_lines(text: str) -> list[str]:
    """Command lines; a backslash at the end continues one."""
    return [line for part in text.replace("\\\n", " ").splitlines() if (line := part.strip())]


def run_command_line(vendor: str, line: str) -> int:
    """The exit status of a command of a vendor, or of npuc, run in this process."""
    words = shlex.split(line)
    if words[0] == "npuc":
        return run_command(words[1:])
    assert words[0] in vendor_named(vendor).commands, f"{vendor} has no command {words[0]}"
    return run_command(["compat", "run", vendor, *words])


def run_program(text: str, paths: list[str], peers: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own; packages of peers are behind those of the environment."""
    head = f"import sys\nsys.path[:0] = {paths!r}\nsys.path += {list(peers)!r}\n"
    return subprocess.run(
        [sys.executable, "-c", head + text],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ
        | {"NPUC_TESTS": str(TESTS)}
        | ({"OMP_NUM_THREADS": "1"} if peers else {}),  # threads of torch and TensorFlow wait for each other
    )


def _run_here(
    text: str, space: dict[str, Any], paths: list[str], names: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """A program in this process, with the names that earlier ones left behind; an error of npuc is what it ends with."""
    before, sys.path[:0] = set(sys.modules), paths
    status, said = 0, ""
    file = f"<example {len(space)}>"
    linecache.cache[file] = (
        len(text),
        None,
        text.splitlines(keepends=True),
        file,
    )  # for what looks at its source
    try:
        exec(compile(text, file, "exec"), space)
    except NpucError as error:
        status, said = 1, str(error)
    finally:
        del sys.path[: len(paths)]
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in {module.partition(".")[0] for module in names}:
                del sys.modules[name]
    return subprocess.CompletedProcess([], status, "", said)


def _check(entry: Mapping[str, Any], status: int, said: str) -> None:
    where = f"{entry['item']}:\n{said[-3000:]}"
    if "run" in entry or "python" in entry:
        fails = entry["state"] in ("mistake", "stated", "refused")
        expected = entry.get("status", 2 if fails else 0)
        if "python" in entry and fails:
            expected = entry.get("status", 1)
        assert status == expected, f"exit status {status}, not {expected}, of {where}"
        if entry["state"] == "run" or "run" in entry:
            assert "Traceback" not in said, where
    if "says" in entry:
        assert re.search(entry["says"], said), f"nothing like {entry['says']!r} in {where}"
    for name in entry.get("files", ()):
        assert Path(name).is_file() and Path(name).stat().st_size, f"{name} is missing after {where}"
    for name, tensors in entry.get("tensors", {}).items():
        assert set(tensors) <= set(TensorFile(name)), f"{name} has {list(TensorFile(name))}, {where}"
        assert all(np.isfinite(TensorFile(name)[tensor]).all() for tensor in tensors)
    if "similar" in entry:
        ours, reference, tolerance = entry["similar"]
        bar = Tolerance.parse(tolerance)
        figures = compare_sets(TensorFile(ours), TensorFile(reference))
        failed = [figure for figure in figures if not figure.passes(bar)]
        assert figures and not failed, f"{[f.name for f in failed][:5]} of {where}"
