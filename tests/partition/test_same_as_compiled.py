"""`npuc inspect` tells what `npuc compile` does: the same device and the same reason for every layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuc.cli.app import run_command
from npuc.flow import save_graph
from support.networks.placement import NETWORKS

TARGETS = ("edge-4t", "dpuczdx8g-b4096-like", "zhouyi-x2-like", "bm1684x-like")


def asked(command: str, model: Path, target: str, capsys: Any, *more: str) -> dict[str, Any]:
    arguments = [command, str(model), "--target", target, "--json", *more]
    assert run_command(arguments) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def compare(model: Path, target: str, capsys: Any, *more: str) -> None:
    """Both commands, layer by layer."""
    told = asked("inspect", model, target, capsys, *more)
    made = asked("compile", model, target, capsys, "--random", "-O1", *more)
    device = {
        name: part["device"]
        for part in made["subgraphs"]
        for name in part["layers"]
        if part["device"] != "convert"
    }
    reasons = {name: words for part in made["subgraphs"] for name, words in part.get("reasons", {}).items()}
    levers = {name: words for part in made["subgraphs"] for name, words in part.get("levers", {}).items()}
    layers = {layer["name"]: layer for layer in told["layers"] if layer["device"] != "host"}
    assert {name: layers[name]["device"] for name in device.keys() & layers.keys()} == {
        name: device[name] for name in device.keys() & layers.keys()
    }
    on_cpu = {name for name, where in device.items() if where == "cpu"}
    assert {
        name for name, layer in layers.items() if layer["device"] == "cpu" and layer["subgraph"] >= 0
    } == on_cpu
    assert {name: layers[name]["reason"] for name in on_cpu} == {
        name: reasons.get(name, "") for name in on_cpu
    }
    assert {name: layers[name]["lever"] for name in on_cpu} == {name: levers.get(name, "") for name in on_cpu}
    assert all(layers[name]["reason"] for name in on_cpu)
    parts = [(part["device"].replace("convert", "host"), len(part["layers"])) for part in made["subgraphs"]]
    assert [(part["device"], part["ops"]) for part in told["subgraphs"]] == parts
    # A layer that became part of another is beside one of that device.
    assert {layer["device"] for layer in layers.values()} <= {*device.values(), "host"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_is_told_as_it_is_compiled(name: str, target: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "net.mlir"
    save_graph(NETWORKS[name](), path)
    compare(path, target, capsys)
