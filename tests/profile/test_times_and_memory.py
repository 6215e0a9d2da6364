"""What a model takes, told alike by `compile`, `sim` and `profile`: time on both sides, and local memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npuc.cli.app import run_command
from npuc.flow import save_graph
from npuc.profile.plan import host_estimates
from npuc.profile.report import Figures, report_of
from npuc.profile.timeline import profile_of
from npuc.program.file import load_compiled
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.sim import simulate
from support.networks.placement import NETWORKS


def told(capsys: Any, *arguments: object) -> tuple[dict[str, Any], str]:
    """What a command prints, for programs and for people."""
    capsys.readouterr()
    assert run_command([*map(str, arguments), "--json"]) == 0
    streams = capsys.readouterr()
    return json.loads(streams.out), streams.err


def compiled(name: str, target: str, here: Path, capsys: Any, *more: str) -> tuple[dict[str, Any], str, Path]:
    save_graph(NETWORKS[name](), here / f"{name}.mlir")
    to = here / f"{name}.npu"
    arguments = ("compile", here / f"{name}.mlir", "--target", target, "--random", "-O1", "-o", to, *more)
    return *told(capsys, *arguments), to


def test_parts_on_the_cpu_count(tmp_path: Path, capsys: Any) -> None:
    made, text, path = compiled("detector", "dpuczdx8g-b4096-like", tmp_path, capsys)
    assert made["cycles"] > 0 and made["host_milliseconds"] > 0
    assert made["total_milliseconds"] == pytest.approx(made["milliseconds"] + made["host_milliseconds"])
    words = f"together about {made['total_milliseconds']:.4g} ms (an estimate)"
    assert (
        f"NPU {made['cycles']:,} cycles, {made['milliseconds']:.4g} ms; CPU about" in text and words in text
    )
    played, text = told(capsys, "sim", path)
    assert (played["cycles"], played["total_milliseconds"]) == (made["cycles"], made["total_milliseconds"])
    assert words in text
    shown, text = told(capsys, "profile", path, "--no-host")
    assert shown["summary"]["total_milliseconds"] == pytest.approx(made["total_milliseconds"])
    assert "(an estimate); together about" in text
    shown, text = told(capsys, "profile", path)
    assert shown["summary"]["host_milliseconds"] == pytest.approx(
        sum(one["seconds"] for one in shown["host"]) * 1e3
    )
    assert "(as measured on this machine); together about" in text


def test_a_program_for_the_cpu_alone_has_a_time(tmp_path: Path, capsys: Any) -> None:
    made, text, _ = compiled("gated", "edge-4t", tmp_path, capsys, "--device", "*=cpu")
    assert made["cycles"] == 0 and f"CPU about {made['host_milliseconds']:.4g} ms (an estimate)" in text
    made, text, _ = compiled("gated", "edge-4t", tmp_path, capsys)
    assert made["host_milliseconds"] is None and "estimate" not in text
    assert made["total_milliseconds"] == made["milliseconds"]


def test_estimates_of_a_foreign_file_are_looked_at(tmp_path: Path, capsys: Any) -> None:
    model = load_compiled(compiled("detector", "dpuczdx8g-b4096-like", tmp_path, capsys)[2])
    [name] = host_estimates(model)
    for wrong in (None, 3, {name: "x"}, {name: -1}, {name: True}, {name: 1e300}, {"other": 5}):
        bad = replace(model, metadata={**model.metadata, "host_nanoseconds": wrong})
        assert host_estimates(bad) == {}
        assert "the time of the CPU is not known" in profile_of(bad, simulate(bad)).time_words()


def most_taken(model: CompiledModel) -> int:
    """The objects of each moment, one by one."""
    most = 0
    for subgraph in model.subgraphs:
        if isinstance(subgraph, NpuSubgraph):
            for core in range(len(subgraph.streams)):
                own = [one for one in subgraph.allocations if one.core == core]
                for at in {one.first for one in own}:
                    most = max(most, sum(one.size for one in own if one.first <= at <= one.last))
    return most


@pytest.mark.parametrize(("name", "target"), [("transformer", "edge-4t"), ("dense", "ethos-u65-256-like")])
def test_local_memory_is_one_figure(name: str, target: str, tmp_path: Path, capsys: Any) -> None:
    made, text, path = compiled(name, target, tmp_path, capsys)
    shown, profiled = told(capsys, "profile", path)
    assert made["local_memory_bytes"] == shown["summary"]["on_chip"] == most_taken(load_compiled(path))
    # These are networks of a few KiB.
    assert 0 < made["local_memory_bytes"] < 64 << 10
    words = f"{made['local_memory_bytes'] / 1024:.1f} KiB of"
    assert f"local {words}" in text and f"on chip  {words}" in profiled


def test_the_chart_of_memory_shows_what_lies_highest() -> None:
    """Objects lie apart, so what they take together says nothing about where they are."""
    text = (Path(__file__).parents[2] / "src/npuc/profile/web/timeline.js").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("const SHOWN")]
    assert "on_chip" not in line and "REACH" in line
    assert "Math.max(most, one.address + one.size)" in text


def test_a_layer_is_limited_by_what_is_busiest(tmp_path: Path, capsys: Any) -> None:
    slow = Figures(
        "x", charged={"matrix": 600.0, "vector": 0.0, "DMA": 300.0, "waiting": 100.0}, matrix=600, dma=900
    )
    assert slow.limited_by(1) == "DMA" and slow.busiest(1) == 900
    slow.charged["waiting"] = 1000.0
    assert slow.limited_by(1) == "waiting"
    model = load_compiled(compiled("transformer", "edge-4t", tmp_path, capsys)[2])
    found = report_of(model, simulate(model)).as_dict()
    for row in [*found["layers"], *found["groups"], found["summary"]]:
        busy = {"matrix": row["matrix_busy"], "vector": row["vector_busy"], "DMA": row["dma_busy"]}
        assert "bound" not in row
        assert row["limited_by"] in ("", "waiting") or busy[row["limited_by"]] == max(busy.values())
