"""The figures of a compiled model: they add up, and small ones are counted by hand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.profile import profile
from npuc.profile.charge import REASONS, charge
from npuc.profile.compare import changes_of, compare
from npuc.profile.occupancy import Box, boxes, fill, local_peak, local_reach
from npuc.profile.page import _joined, html_page
from npuc.profile.report import Report, report_of
from npuc.profile.timeline import profile_of
from npuc.profile.work import moved, multiplications
from npuc.program.isa import COMPRESSED, QUEUES
from npuc.program.model import Allocation, CompiledModel, NpuSubgraph, records
from npuc.sim.cycles import CoreTimeline, simulate
from npuc.target import load_target
from support.programs.instructions import as_stream

TARGET = load_target("edge-4t")


def played(*spans: tuple[str, int, int, int]) -> tuple[Any, CoreTimeline]:
    """Instructions as (queue, layer, start, end)."""
    made = records("load", len(spans))
    made["queue"] = [QUEUES.index(queue) for queue, _, _, _ in spans]
    made["layer"] = [layer for _, layer, _, _ in spans]
    start, end = (np.array([span[at] for span in spans], np.int64) for at in (2, 3))
    return made, CoreTimeline(start, start, end)


def charged(total: int, *spans: tuple[str, int, int, int]) -> list[dict[str, int]]:
    found = charge(*played(*spans), total, 3)
    return [dict(zip(REASONS, row.tolist(), strict=True)) for row in found]


def test_a_cycle_belongs_to_the_matrix_engine_then_the_vector_engine_then_the_data_that_moves() -> None:
    first, second, third = charged(
        100,
        ("load", 0, 10, 30),
        ("matrix", 0, 30, 60),
        ("load", 2, 20, 50),
        ("vector", 1, 55, 80),
        ("store", 2, 85, 95),
    )
    assert first == {"matrix": 30, "vector": 0, "DMA": 10, "waiting": 10}
    assert second == {"matrix": 0, "vector": 20, "DMA": 0, "waiting": 10}
    assert third == {"matrix": 0, "vector": 0, "DMA": 20, "waiting": 0}


SPAN = st.tuples(st.sampled_from(QUEUES), st.integers(0, 2), st.integers(0, 40), st.integers(0, 20))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(SPAN, min_size=1, max_size=12))
def test_every_cycle_is_charged_once(drawn: list[tuple[str, int, int, int]]) -> None:
    spans = [(queue, layer, start, start + length) for queue, layer, start, length in drawn]
    total = max(end for _, _, _, end in spans) + 3
    found = charge(*played(*spans), total, 3)
    works = any(end > start for _, _, start, end in spans)
    assert found.sum() == (total if works else 0) and found.min() >= 0
    matrix = {c for queue, _, start, end in spans for c in range(start, end) if queue == "matrix"}
    assert found[:, REASONS.index("matrix")].sum() == len(matrix)


def test_the_work_of_convolutions_and_products() -> None:
    conv = records("conv", 2)
    conv["n"], conv["out_h"], conv["out_w"], conv["out_c"] = 1, 4, 5, 6
    conv["h"], conv["w"], conv["c"], conv["groups"], conv["kernel"] = 2, 3, 8, 2, (3, 2)
    conv["transposed"] = 0, 1
    conv["layer"] = 0, 1
    product = records("matmul", 1)
    product["batch"], product["m"], product["k"], product["cols"], product["layer"] = 2, 3, 5, 7, 2
    stream = np.concatenate([as_stream(conv), as_stream(product)])
    macs, ideal = multiplications(stream, TARGET, 3)
    assert macs.tolist() == [4 * 5 * 6 * 4 * 6, 2 * 3 * 8 * 3 * 6, 2 * 3 * 5 * 7]
    assert ideal.tolist() == [made / TARGET.compute.array.multiplications for made in macs]


def test_bytes_by_what_they_are() -> None:
    loads = records("load", 4)
    loads["size"] = (1, 1, 2, 8)
    loads["segment"] = 0, 1, 255, 2
    loads["layer"] = 0, 0, 1, 1
    loads["flags"] = 0, 0, 0, 1
    stores = records("store", 1)
    stores["size"], stores["segment"], stores["layer"] = (1, 1, 1, 5), 3, 1
    stream = np.concatenate([as_stream(loads), as_stream(stores)])
    for core, own in ((0, [16, 16]), (1, [16, 0])):
        found = {name: values.tolist() for name, values in moved(stream, core, 2).items()}
        maps = {"features_in": own, "features_out": [0, 5], "shared": [0, 16]}
        assert found == {"weights_in": [16, 0], "weights_decoded": [16, 0], **maps}


def test_compressed_constants_count_as_they_are_in_dram() -> None:
    load = records("load", 1)
    load["size"], load["stored"], load["flags"] = (1, 1, 1, 100), 60, COMPRESSED
    found = moved(as_stream(load), 0, 1)
    assert (found["weights_in"].item(), found["weights_decoded"].item()) == (60, 100)


def test_local_memory_is_full_while_its_objects_live() -> None:
    objects = (
        Allocation("a", 0, 0, 10, 0, 2),
        Allocation("b", 0, 64, 5, 2, 3),
        Allocation("c", 1, 0, 99, 0, 9),
    )
    assert fill(objects, 0, 5).tolist() == [10, 10, 15, 5, 0]


def test_objects_lie_in_local_memory_from_the_issue_of_the_first_to_the_end_of_the_last(
    compiled: CompiledModel,
) -> None:
    part = next(one for one in compiled.subgraphs if isinstance(one, NpuSubgraph))
    objects = (
        Allocation("a", 0, 0, 10, 0, 1),
        Allocation("b", 0, 64, 5, 1, 2),
        Allocation("behind", 0, 128, 7, 1, 99),  # lives on behind the last instruction
        Allocation("idle", 1, 0, 9, 0, 1),  # of a core that has nothing to do
    )
    _, own = played(("load", 0, 2, 5), ("matrix", 0, 7, 20), ("store", 0, 21, 30))
    _, idle = played()
    timeline = replace(simulate(compiled).subgraphs[0], cores=(own, idle))
    found = boxes(replace(part, allocations=objects), timeline, begins=100)
    assert found == [
        Box("a", 0, 0, 10, 102, 120),
        Box("b", 0, 64, 5, 107, 130),
        Box("behind", 0, 128, 7, 107, 130),
    ]


def test_the_peak_is_what_is_taken_at_once_and_the_reach_how_high_it_lies(compiled: CompiledModel) -> None:
    part = next(one for one in compiled.subgraphs if isinstance(one, NpuSubgraph))
    objects = (
        Allocation("a", 0, 1000, 10, 0, 1),
        Allocation("b", 0, 0, 30, 1, 2),
        Allocation("c", 0, 0, 35, 3, 4),
    )
    alone = replace(compiled, subgraphs=(replace(part, allocations=objects),))
    assert (local_peak(alone), local_reach(alone)) == (40, 1010)
    nothing = replace(compiled, subgraphs=())
    assert (local_peak(nothing), local_reach(nothing)) == (0, 0)


@pytest.fixture(scope="module")
def report(compiled: CompiledModel) -> Report:
    return report_of(compiled, simulate(compiled))


def test_layers_groups_and_the_whole_add_up(compiled: CompiledModel, report: Report) -> None:
    timeline = simulate(compiled)
    short = profile_of(compiled, timeline)
    assert report.total.cycles == pytest.approx(timeline.total)
    assert sum(layer.cycles for layer in report.layers) == pytest.approx(timeline.total)
    assert sum(group.figures.cycles for group in report.groups) == pytest.approx(timeline.total)
    assert [number for group in report.groups for number in group.layers] == list(range(len(report.layers)))
    assert report.total.dram == short.dram and report.total.features_out == short.stored
    assert [layer.matrix for layer in report.layers] == [layer.matrix for layer in short.layers]
    assert report.total.macs == sum(layer.macs for layer in report.layers) > 0
    assert 0 < report.bounds["roofline"] <= report.bounds["buffered"] <= timeline.total
    assert 0 < report.total.on_chip <= report.machine.local
    found = report.as_dict()
    assert sum(layer["share"] for layer in found["layers"]) == pytest.approx(1)
    for layer in found["layers"]:
        assert 0 <= layer["utilization"] <= 1 and layer["limited_by"] in REASONS
        assert layer["bandwidth"] * 1e9 <= report.machine.bandwidth * 1.0001


def test_cores_share_the_cycles(compiled: CompiledModel) -> None:
    """Two cores that both run the whole program: its time is charged once, their work twice."""
    twice = tuple(
        replace(one, streams=one.streams * 2) if isinstance(one, NpuSubgraph) else one
        for one in compiled.subgraphs
    )
    doubled = replace(compiled, subgraphs=twice)
    timeline = simulate(doubled)
    one, two = (report_of(model, simulate(model)) for model in (compiled, doubled))
    assert two.machine.cores == 2 and two.machine.peak == 2 * one.machine.peak
    assert two.total.cycles == pytest.approx(timeline.total)
    assert (two.total.macs, two.total.dram) == (2 * one.total.macs, 2 * one.total.dram)
    assert two.total.ideal <= 2 * two.total.cycles and two.total.on_chip == one.total.on_chip


def test_the_function_takes_a_model_or_its_file(compiled: CompiledModel, tmp_path: Path) -> None:
    from npuc.program.file import save_compiled

    save_compiled(compiled, tmp_path / "m.npu")
    found = profile(tmp_path / "m.npu")
    assert found == profile(compiled) and json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        3,
        {"npu1": []},
        {"npu1": {"groups": 3, "bounds": {"roofline": "x"}}},
        {"npu1": {"groups": [[0, 999, 1]]}},
        {"npu1": {"groups": [[0, 2, 1], [1, 3, 1]]}},
        {"npu1": {"groups": [[-1, 2, 1]], "bounds": {"roofline": -4}}},
        {"npu1": {"groups": [[0, True, 1]]}},
    ],
)
def test_notes_that_make_no_sense_are_passed_over(compiled: CompiledModel, schedule: Any) -> None:
    assert any(isinstance(one, NpuSubgraph) and one.name == "npu1" for one in compiled.subgraphs)
    found = profile(replace(compiled, metadata={"schedule": schedule}))
    assert found["groups"] == [] and found["summary"]["bounds"] == {} and len(found["layers"]) == 10


def test_groups_of_several_subgraphs(root: Path) -> None:
    """A layer on the CPU between two NPU subgraphs: the groups of the second are those of its own layers."""
    from npuc.calib.sources import random_data
    from npuc.codegen.compile_model import CompileOptions
    from npuc.flow import compile_network, network_to_quantize, quantize_network, ranges_from, schemes_of

    graph = network_to_quantize(root / "examples/digits.onnx")
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, TARGET), "max")
    graph = quantize_network(graph, ranges, None, TARGET).graph
    done = compile_network(graph, TARGET, CompileOptions(1, devices={"pool": "cpu"}, island_threshold=0))
    found = profile(done.model, host=False)
    assert [one["subgraph"] for one in found["groups"]] == [
        part.name for part in done.parts for _ in part.scheduled.schedule_decisions.decisions.groups
    ]
    names = [layer.name for part in done.parts for layer in part.network.layers]
    assert [name for one in found["groups"] for name in one["layers"]] == names == list(done.model.layers)
    for one in found["groups"]:
        assert {layer["subgraph"] for layer in found["layers"] if layer["name"] in one["layers"]} == {
            one["subgraph"]
        }


def test_two_models_side_by_side(report: Report) -> None:
    other = replace(report, layers=[*report.layers[1:], report.layers[1]])
    changes = {}
    for one in changes_of(report, other):
        changes.setdefault(one.name, []).append((one.before is None, one.after is None))
    assert changes[report.layers[0].name] == [(False, True)]
    assert changes[report.layers[1].name] == [(False, False), (True, False)]
    found = compare(report, report)
    assert all(layer["difference"] == 0 for layer in found["layers"])


def test_neighbours_are_joined() -> None:
    start, end = np.array([0, 10, 30, 41]), np.array([10, 20, 40, 50])
    layer, op = np.array([1, 1, 1, 2]), np.array([8, 8, 8, 8])
    found = _joined(start, end, layer, op, np.arange(4), 5)
    assert [values.tolist() for values in found] == [
        [0, 30, 41],
        [20, 40, 50],
        [1, 1, 2],
        [8, 8, 8],
        [0, 2, 3],
    ]


def test_the_page_asks_for_nothing_and_takes_no_orders_from_a_name(
    compiled: CompiledModel, tmp_path: Path
) -> None:
    hostile = "</script><script>alert(1)</script><img src=http://x/>"
    named = replace(compiled, name=hostile, layers=(hostile, *compiled.layers[1:]))
    timeline = simulate(named)
    text = html_page(named, timeline, report_of(named, timeline))
    head, _, data = text.partition('id="data">')
    assert hostile not in text and "alert(1)</script" not in text
    assert "/*DATA*/" not in text and text.count("</script>") == 2
    assert json.loads(data.partition("</script>")[0])["model"] == hostile
    assert "default-src 'none'" in head
    script = text.rpartition("<script>")[2]
    assert "innerHTML" not in script and "fetch(" not in script and "import(" not in script
    outside = [word for word in ("src=", "@import", "url(", "https://") if word in head + script]
    assert outside == []


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_of_the_page_is_a_script(compiled: CompiledModel, report: Report, tmp_path: Path) -> None:
    """What it does is tested in a browser: tests/browser."""
    text = html_page(compiled, simulate(compiled), report)
    script = tmp_path / "page.js"
    script.write_text(text.rpartition("<script>")[2].partition("</script>")[0], encoding="utf-8")
    done = subprocess.run(
        ["node", "--check", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    used = set(re.findall(r'\$\("([\w-]+)"\)', script.read_text()))
    assert used and used <= set(re.findall(r' id="([\w-]+)"', text))


def test_the_module_can_be_called_and_is_loaded_at_first_use(compiled: CompiledModel) -> None:
    import npuc

    assert npuc.profile(compiled, host=False) == profile(compiled, host=False)
    code = "import sys, npuc; assert 'numpy' not in sys.modules; npuc.profile.profile; npuc.missing"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.rstrip().endswith("AttributeError: module 'npuc' has no attribute 'missing'")
