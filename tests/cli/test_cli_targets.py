"""`npuc targets`: list, show, check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from npuc.target import load_target


@pytest.fixture(autouse=True)
def own_targets(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty search path of the user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "config"))
    monkeypatch.setenv("NPUC_TARGET_PATH", str(here / "targets"))
    (here / "targets").mkdir()
    return here / "targets"


def test_list(npuc: Any, own_targets: Path) -> None:
    (own_targets / "mine.yaml").write_text("{extends: edge-1t, description: My own.}")
    (own_targets / "broken.yaml").write_text("{extends: edge-1t, colour: red}")
    done = npuc("targets", "list")
    assert done.status == 0
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert "32.8 TOPS" in lines["server-32t"] and "64 GB/s" in lines["server-32t"]
    assert "My own." in lines["mine"] and "mine.yaml" in lines["mine"]
    assert "not valid" in lines["broken"] and "colour" in lines["broken"]
    found = {entry["name"]: entry for entry in json.loads(npuc("targets", "list", "--json").out)}
    assert found["edge-4t"]["fingerprint"] == load_target("edge-4t").fingerprint_text
    assert found["edge-4t"]["preset"] and not found["mine"]["preset"] and "colour" in found["broken"]["error"]


def test_show_has_what_is_inherited_and_what_follows(npuc: Any) -> None:
    done = npuc("targets", "show", "server-32t")
    assert done.status == 0
    for words in (
        "32.8 TOPS, 16384 multiply-adds/cycle",
        "64 bytes/cycle",
        "preset edge-4t",
        "latency: 200cycles",
    ):
        assert words in done.out
    assert load_target("server-32t").fingerprint_text in done.out


@pytest.mark.parametrize("name", ["server-32t", "dpuczdx8g-b4096-like", "bm1684x-like"])
def test_what_show_prints_is_a_target_file(npuc: Any, here: Path, name: str) -> None:
    text = npuc("targets", "show", name).out.partition("\n\n")[2]
    (here / "copy.yaml").write_text(text)
    assert load_target("./copy.yaml").fingerprint == load_target(name).fingerprint
    assert "extends" not in yaml.safe_load(text)


def test_show_json(npuc: Any) -> None:
    found = json.loads(npuc("targets", "show", "edge-4t", "--json").out)
    assert found["figures"]["peaks"][0]["operations_per_second"] == 4.096e12
    assert found["target"]["memory"]["local"]["size"] == "2MiB"
    assert found["fingerprint"] == load_target("edge-4t").fingerprint_text
    assert found["files"][0].endswith("edge-4t.yaml")


def test_check_a_good_file(npuc: Any, here: Path) -> None:
    (here / "a.yaml").write_text("extends: edge-4t\n")
    done = npuc("targets", "check", "a.yaml")
    expected = load_target("edge-4t").fingerprint_text
    assert done.status == 0 and done.out == f"a is valid, fingerprint {expected}\n"
    assert json.loads(npuc("targets", "check", "a.yaml", "--json").out) == {
        "valid": True,
        "name": "a",
        "fingerprint": expected,
    }
    assert npuc("targets", "check", "a.yaml", "--quiet").out == ""


def test_check_prints_every_problem(npuc: Any, here: Path) -> None:
    (here / "a.yaml").write_text(
        "extends: edge-4t\ncompute:\n  cores: 0\n  clck: 1GHz\nmemory: {local: {size: big}}\n"
    )
    done = npuc("targets", "check", "a.yaml")
    assert done.status == 2
    assert [line.split(": ")[:2] for line in done.out.splitlines()] == [
        ["a.yaml:3", "compute.cores"],
        ["a.yaml:4", "compute.clck"],
        ["a.yaml:5", "memory.local.size"],
    ]
    assert "error[E701]: a.yaml: 3 problems" in done.err
    found = json.loads(npuc("targets", "check", "a.yaml", "--json").out)
    assert not found["valid"] and found["problems"][0]["line"] == 3


def test_check_says_one_problem_as_the_error(npuc: Any, here: Path) -> None:
    (here / "a.yaml").write_text("extends: edge-4t\nmemory: {local: {size: big}}\n")
    done = npuc("targets", "check", "a.yaml")
    assert done.status == 2 and "error[E701]: a.yaml:2: memory.local.size: 'big' is not a size" in done.err
    (here / "a.yaml").write_text("a: [")
    assert "error[E701]: a.yaml:1: is not YAML" in npuc("targets", "check", "a.yaml").err


def test_unknown_targets(npuc: Any) -> None:
    assert "did you mean 'edge-4t'" in npuc("targets", "show", "edge4t").err
    done = npuc("targets", "check", "nothing.yaml")
    assert done.status == 2 and "error[E101]" in done.err
