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
from support.sophgo import libraries


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


def chained() -> Graph:
    """Convolutions on the chip before and behind a layer on the CPU."""
    weights = np.random.default_rng(2).uniform(-1, 1, (8, 8, 3, 3)).astype(np.float32)
    x = lang.conv(lang.input("x", (1, 8, 8, 8)), weights, pads=1, name="a")
    x = lang.conv(lang.layer_norm(x, axis=1, name="s"), weights, pads=1, name="b")
    ranges = {"x": (-1.0, 1.0), "a": (-20.0, 20.0), "s": (-3.0, 3.0), "b": (-4.0, 4.0)}
    return quantize_network(lang.build({"y": x}), ranges, None, load_target("bm1684x")).graph


def test_layers_of_the_chip_are_dumped_held_against_graph_mode_and_compared(
    npuc: Any, tmp_path: Path
) -> None:
    libraries()
    save_graph(chained(), tmp_path / "n.mlir")
    model = tmp_path / "n.npu"
    arguments = ("--target", "bm1684x", "--island-threshold", "0", "-o", model)
    assert npuc("compile", tmp_path / "n.mlir", *arguments).status == 0
    assert npuc("run", tmp_path / "n.mlir", "--random", "--dump-layers", tmp_path / "graph").status == 0
    told = npuc("run", model, "--golden", tmp_path / "graph")
    assert told.status == 0 and "DIFFERS" not in told.out
    for name in ("a", "b"):  # the results of both programs of the chip
        assert any(line.startswith("ok") and line.split()[-1] == name for line in told.out.splitlines()), (
            told.out
        )
    assert npuc("run", model, "--random", "--dump-layers", tmp_path / "chip").status == 0
    same = json.loads(npuc("diff", tmp_path / "graph", tmp_path / "chip", "--json").out)
    assert {layer["name"] for layer in same["layers"]} >= {"a", "b"}
    assert all(layer["accumulated"]["max_error"] == 0 for layer in same["layers"])
    (stored,) = (tmp_path / "graph").rglob("*a.npy")
    array = np.load(stored)
    array.reshape(-1)[3] ^= 1
    np.save(stored, array)
    wrong = npuc("run", model, "--golden", tmp_path / "graph")
    assert wrong.status == 2 and "DIFFERS" in wrong.out


def test_a_layer_inside_a_program_of_the_chip_does_not_run_alone(npuc: Any, tmp_path: Path) -> None:
    libraries()
    save_graph(network(), tmp_path / "n.mlir")
    assert npuc("compile", tmp_path / "n.mlir", "--target", "bm1684x", "-o", tmp_path / "n.npu").status == 0
    npuc("run", tmp_path / "n.npu", "--random", "--dump-layers", tmp_path / "d")
    refused = npuc("run-op", tmp_path / "n.npu", "y", "--dump", tmp_path / "d")
    assert refused.status == 2 and "which the chip runs as a whole" in refused.err


def test_a_program_of_the_chip_is_evaluated(npuc: Any, tmp_path: Path, root: Path) -> None:
    libraries()
    # The vendor's runtime takes about a second for a run.
    with np.load(root / "examples" / "digits_samples.npz") as stored:
        np.savez(tmp_path / "few.npz", **{name: array[:4] for name, array in stored.items()})
    source, samples = root / "examples" / "digits.onnx", tmp_path / "few.npz"
    arguments = ("--target", "bm1684x", "--data", samples, "-o", tmp_path / "n.mlir")
    assert npuc("quantize", source, *arguments).status == 0
    assert npuc("compile", tmp_path / "n.mlir", "--target", "bm1684x", "-o", tmp_path / "n.npu").status == 0
    told = json.loads(npuc("eval", tmp_path / "n.mlir", tmp_path / "n.npu", "--data", samples, "--json").out)
    assert told["kinds"] == ["integer", "compiled"] and told["samples"] == 4
    for figure in told["figures"]:
        graph, chip = figure["models"]
        assert graph["value"] == chip["value"] > 0


def test_a_sample_for_a_board_holds_what_the_chip_reads_and_writes(npuc: Any, tmp_path: Path) -> None:
    libraries()
    save_graph(network(), tmp_path / "n.mlir")
    assert npuc("compile", tmp_path / "n.mlir", "--target", "bm1684x", "-o", tmp_path / "n.npu").status == 0
    assert npuc("run", tmp_path / "n.npu", "--random", "--save-sample", tmp_path / "s").status == 0
    index = json.loads((tmp_path / "s" / "sample.json").read_text())
    (part,) = index["runs"][0]["npu"]
    assert [entry["bytes"] for entry in (*part["inputs"], *part["outputs"])] == [3 * 64, 8 * 64]
