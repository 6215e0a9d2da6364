"""`npuc profile`, and `npuc run` layer by layer."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.calib.sources import random_data
from npuc.cli.console import size
from npuc.codegen.compile_model import CompileOptions
from npuc.flow import compile_network, network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.ir import Graph, save_graph
from npuc.program.file import save_compiled
from npuc.target import load_target

TARGET = load_target("edge-4t")


@pytest.fixture(scope="module")
def network(root: Path) -> Graph:
    graph = network_to_quantize(root / "examples/digits.onnx")
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, TARGET), "max")
    return quantize_network(graph, ranges, None, TARGET).graph


@pytest.fixture
def digits(network: Graph, here: Path) -> Path:
    """`digits.mlir` in the working directory."""
    save_graph(network, "digits.mlir")
    return here / "digits.mlir"


@pytest.fixture
def compiled(network: Graph, here: Path) -> Path:
    """`digits.npu` in the working directory, and `cpu.npu` with one layer on the CPU."""
    save_compiled(compile_network(network, TARGET, name="digits").model, "digits.npu")
    asked = CompileOptions(1, devices={"pool": "cpu"}, island_threshold=0)
    save_compiled(compile_network(network, TARGET, asked, name="cpu").model, "cpu.npu")
    return here / "digits.npu"


def test_profile_prints_layers_and_bounds(npuc: Any, compiled: Path) -> None:
    done = npuc("profile", compiled, "--layers", 3)
    assert done.status == 0
    assert "digits on edge-4t" in done.out and "roofline" in done.out and "buffered" in done.out
    assert "and 7 layers more" in done.out and "limited by" in done.out
    assert len(npuc("profile", compiled, "--layers", 0).out.splitlines()) > len(done.out.splitlines())


def test_what_profile_prints_is_what_it_counted(npuc: Any, compiled: Path) -> None:
    """Every line above the table, figure by figure, against --json; and the order of the table."""
    report = json.loads(npuc("profile", compiled, "--json").out)
    summary, clock = report["summary"], TARGET.compute.clock
    lines = npuc("profile", compiled, "--layers", 0).out.splitlines()
    told = {line[:10].strip(): line[11:] for line in lines[1:] if line.startswith("  ")}
    assert f"{int(summary['cycles']):,} cycles" in lines[0] and lines[0].startswith("digits on edge-4t: ")
    for name, part in summary["of_bound"].items():
        assert told[name] == f"{round(part * summary['cycles']):,} cycles at least, {part:.1%} of the time"
    peak = 2 * 16 * 16 * 8 * clock / 1e9  # two operations for each of the 16 x 16 x 8 products of a cycle
    assert told["work"] == (
        f"{summary['gop']:.4g} GOP, {summary['gops']:,.1f} GOP/s of {peak:,.0f}, array in use {summary['utilization']:.1%}"
    )
    shares = [f"{name} {summary[f'{name.lower()}_share']:.1%}" for name in ("matrix", "vector", "DMA")]
    assert told["busy"] == ", ".join(shares)
    assert (
        f"{size(summary['features_in'])} of feature maps in, {size(summary['features_out'])} out"
        in told["DRAM"]
    )
    assert told["DRAM"].startswith(size(summary["weights_in"])) and told["DRAM"].endswith("GB/s of 16")
    assert told["on chip"] == f"{size(summary['on_chip'])} of 2.0 MiB at the peak"
    assert told["spent"].endswith(f"; the most by {summary['limited_by']}")
    cycles = {layer["name"]: layer["cycles"] for layer in report["layers"]}
    order = [line.split()[0] for line in lines if line.split() and line.split()[0] in cycles][: len(cycles)]
    assert [cycles[name] for name in order] == sorted(cycles.values(), reverse=True)


def test_profile_as_json_and_files(npuc: Any, compiled: Path) -> None:
    done = npuc("profile", compiled, "--json", "--html", "a.html", "--trace", "a.json")
    assert done.status == 0
    found = json.loads(done.out)
    assert (
        len(found["layers"]) == 10
        and sum(layer["cycles"] for layer in found["layers"]) == found["summary"]["cycles"]
    )
    assert found["html"] == "a.html" and Path("a.html").read_text().startswith("<!doctype html>")
    events = json.loads(Path("a.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    again = npuc("profile", compiled, "--html", "b.html", "-q")
    assert again.out == "" and Path("b.html").read_bytes() == Path("a.html").read_bytes()


def test_the_name_of_a_file_says_what_is_written(npuc: Any, compiled: Path) -> None:
    names = ("a.xlsx", "b.json", "c.trace.json", "d.HTML")
    done = npuc("profile", compiled, *(word for name in names for word in ("-o", name)), "--json")
    assert done.status == 0
    found, figures = json.loads(done.out), json.loads(Path("b.json").read_text())
    assert (
        figures["layers"] == found["layers"]
        and found["xlsx"] == "a.xlsx"
        and found["trace"] == "c.trace.json"
    )
    with zipfile.ZipFile("a.xlsx") as archive:
        assert "xl/workbook.xml" in archive.namelist()
    assert "traceEvents" in json.loads(Path("c.trace.json").read_text())
    assert Path("d.HTML").read_text().startswith("<!doctype html>")
    said = npuc("profile", compiled, "-o", "e.xlsx").out
    assert "workbook written to e.xlsx" in said and Path("e.xlsx").read_bytes() == Path("a.xlsx").read_bytes()
    refused = npuc("profile", compiled, "-o", "a.pdf")
    assert refused.status == 2 and ".xlsx" in refused.err


def test_profile_times_the_cpu(npuc: Any, compiled: Path) -> None:
    (host,) = json.loads(npuc("profile", "cpu.npu", "--json").out)["host"]
    assert host["layers"] == ["pool"] and host["seconds"] > 0
    assert "on this machine" in npuc("profile", "cpu.npu").out
    done = npuc("profile", "cpu.npu", "--no-host", "--json")
    assert json.loads(done.out)["host"][0]["seconds"] is None


def test_profile_compares(npuc: Any, compiled: Path) -> None:
    done = npuc("profile", "--compare", compiled, "cpu.npu")
    assert done.status == 0 and "B / A" in done.out
    found = json.loads(npuc("profile", "--compare", compiled, "cpu.npu", "--json").out)
    (pool,) = [layer for layer in found["layers"] if layer["name"] == "pool"]
    assert pool["b"] is None and pool["difference"] == -pool["a"] < 0
    assert pool["a_limited_by"] and not pool["b_limited_by"]
    (host,) = found["host"]
    assert host["name"] == "pool" and host["a"] is None and host["b"] > 0
    assert "on the CPU" in done.out and "buffered bound" in done.out
    assert npuc("profile", "--compare", compiled, "cpu.npu", "-o", "c.xlsx", "-o", "c.json").status == 0
    assert json.loads(Path("c.json").read_text())["a"]["summary"] == found["a"]["summary"]
    assert zipfile.is_zipfile("c.xlsx")


@pytest.mark.parametrize(
    "arguments",
    [
        ["digits.npu", "cpu.npu"],
        ["--compare", "digits.npu"],
        ["--compare", "digits.npu", "cpu.npu", "--html", "a.html"],
        ["--compare", "digits.npu", "cpu.npu", "-o", "a.trace.json"],
        ["digits.npu", "-o", "nowhere/a.xlsx"],
        ["digits.npu", "--html", "nowhere/a.html"],
        ["no.npu"],
    ],
)
def test_profile_refuses(npuc: Any, compiled: Path, arguments: list[str]) -> None:
    assert npuc("profile", *arguments).status == 2


def test_a_golden_run_on_the_data_of_the_dump(npuc: Any, digits: Path) -> None:
    done = npuc("run", digits, "--random", "--seed", 5, "--dump-layers", "dump")
    assert done.status == 0 and "14 tensors of 1 run written to dump" in done.out
    done = npuc("run", digits, "--golden", "dump")
    assert done.status == 0 and "all 14 tensors are those of dump" in done.out
    assert sum(line.startswith("ok ") for line in done.out.splitlines()) == 14
    other = npuc("run", digits, "--random", "--golden", "dump", "--stop-at-mismatch")
    assert other.status == 2 and "'image' (input)" in other.err
    assert [line.split()[0] for line in other.out.splitlines()] == ["DIFFERS"]


@pytest.mark.parametrize("layer", ["stem/relu", "block1/depthwise/relu"])
def test_a_golden_run_names_the_layer_of_a_flipped_bit(npuc: Any, digits: Path, layer: str) -> None:
    assert npuc("run", digits, "--random", "--dump-layers", "dump", "-q").status == 0
    file = digits.with_suffix(".safetensors")
    data = bytearray(file.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    first, last = json.loads(data[8 : 8 + length])[f"{layer}/weight"]["data_offsets"]
    (entry,) = [
        one for one in json.loads(Path("dump/dump.json").read_text())["tensors"] if one["name"] == layer
    ]
    channels = np.load(Path("dump", entry["file"]))[0].sum(axis=(1, 2))
    # A weight of a channel that is not cut off by its relu everywhere.
    each = (last - first) // channels.size
    data[8 + length + first + int(np.argmax(channels)) * each + each // 2] ^= 0x40
    file.write_bytes(data)
    done = npuc("run", digits, "--golden", "dump")
    assert done.status == 2 and f"the first layer that differs is '{layer}'" in done.err
    states = [line.split()[0] for line in done.out.splitlines()]
    assert len(states) == 14 and states[0] == "ok" and states.count("DIFFERS") > 1
    stopped = npuc("run", digits, "--golden", "dump", "--stop-at-mismatch", "--json")
    found = json.loads(stopped.out)
    assert stopped.status == 2 and found["different"] == 1 and found["first"]["name"] == layer
    assert found["verdicts"][-1]["name"] == layer


def test_samples_of_a_network_and_of_its_compiled_form_are_the_same(
    npuc: Any, digits: Path, compiled: Path
) -> None:
    for model, folder in ((digits, "a"), (compiled, "b")):
        done = npuc("run", model, "--random", "--save-sample", folder)
        assert done.status == 0 and f"sample written to {folder}/sample.json" in done.out
    (run,) = json.loads(Path("a/sample.json").read_text())["runs"]
    for entry in (*run["inputs"], *run["outputs"]):
        assert Path("a", entry["file"]).read_bytes() == Path("b", entry["file"]).read_bytes()
    assert np.fromfile(Path("a", run["outputs"][0]["file"]), "<f4").shape == (10,)


@pytest.mark.parametrize(
    "arguments",
    [
        ["digits.npu", "--random", "--dump-layers", "d", "--fetch", "pool"],
        ["digits.npu", "--golden", "d"],
        ["digits.mlir", "--golden", "nowhere"],
        ["digits.mlir", "--random", "--stop-at-mismatch"],
        ["digits.mlir", "--random", "--dump-layers", "d", "-o", "o.npz"],
        ["digits.mlir", "--random", "--dump-layers", "d", "--save-sample", "s"],
        ["digits.mlir", "--random", "--dump-layers", "d", "--golden", "./d"],
        ["digits.mlir", "--dump-layers", "d"],
    ],
)
def test_what_does_not_go_together_is_refused(
    npuc: Any, digits: Path, compiled: Path, arguments: list[str]
) -> None:
    assert npuc("run", *arguments).status == 2
    assert not Path("d").exists()
