"""Programs for the BM1684X from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from npuc import lang
from npuc.flow import quantize_network
from npuc.ir import Graph, save_graph
from npuc.target import load_target


def network() -> Graph:
    weights = np.random.default_rng(1).uniform(-1, 1, (8, 3, 3, 3)).astype(np.float32)
    graph = lang.build({"y": lang.conv(lang.input("x", (1, 3, 8, 8)), weights, pads=1, name="y")})
    return quantize_network(graph, {"x": (-1.0, 1.0), "y": (-4.0, 4.0)}, None, load_target("bm1684x")).graph


def test_the_command_line_writes_and_prints_a_bmodel(npuc: Any, tmp_path: Path) -> None:
    save_graph(network(), tmp_path / "n.mlir")
    to = tmp_path / "n.bmodel"
    told = json.loads(npuc("compile", tmp_path / "n.mlir", "--target", "bm1684x", "-o", to, "--json").out)
    assert told["bytes"] == to.stat().st_size and told["dram_bytes"] > 0
    text = npuc("objdump", to).out
    assert "for BM1684X" in text and "CONV" in text
    found = json.loads(npuc("objdump", to, "--json").out)
    assert found["chip"] == "BM1684X" and found["tiu"][-1]["command"] == "TIU_END"
    refused = npuc("objdump", to, "--layer", "a")
    assert refused.status == 2 and "is for a .npu file" in refused.err


def test_a_bmodel_holds_one_subgraph_only(npuc: Any, tmp_path: Path) -> None:
    save_graph(network(), tmp_path / "n.mlir")
    arguments = ("compile", tmp_path / "n.mlir", "--target", "bm1684x", "--device", "y=cpu", "-o")
    refused = npuc(*arguments, tmp_path / "n.bmodel")
    assert refused.status != 0 and "Write a .npu file" in refused.err
    assert npuc(*arguments, tmp_path / "n.npu").status == 0
