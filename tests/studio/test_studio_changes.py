"""What is changed on the page becomes files that commands take: tables of ranges, schedules, and series of configurations."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from npuc.calib.calibration import table_from
from npuc.calib.collection import collect
from npuc.calib.statistics import save_statistics
from npuc.calib.table import load_table, save_table
from npuc.evaluate import evaluate
from npuc.flow import network_to_quantize
from npuc.program.file import load_compiled
from npuc.sim import simulate
from npuc.studio.jobs import Jobs
from npuc.studio.project import Project
from npuc.studio.ranges import clipped_share, rebinned
from npuc.studio.studio import Studio


@pytest.fixture(scope="module")
def calibration(studio_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration table and its statistics; not to be changed."""
    folder = tmp_path_factory.mktemp("calibration")
    graph = network_to_quantize(studio_files / "digits.onnx")
    statistics = collect(graph, str(studio_files / "digits_samples.npz"), threads=1)
    save_statistics(statistics, folder / "digits.stats.npz")
    save_table(table_from(statistics, "max"), folder / "digits.cali")
    return folder


@pytest.fixture
def calibrated(calibration: Path, project_folder: Path) -> Path:
    """The project with them."""
    shutil.copytree(calibration, project_folder, dirs_exist_ok=True)
    return project_folder


def wait_for(client, number: int) -> dict:
    deadline = time.monotonic() + 180
    while (job := client.json(f"/api/jobs/{number}"))["state"] in ("running", "waiting"):
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
    return job


def test_ranges_are_those_of_the_table_over_the_values_that_were_seen(calibrated: Path):
    studio = Studio(Project(calibrated))
    rows = {row["name"]: row for row in studio.ranges("digits.cali", "digits.stats.npz")["rows"]}
    table = load_table(calibrated / "digits.cali")
    assert list(rows) == list(table) and len(rows) > 8
    with np.load(calibrated / "digits_samples.npz") as samples:
        image = next(samples[name] for name in samples if samples[name].ndim == 4)
    assert rows["image"]["low"] == image.min() and rows["image"]["high"] == image.max()
    # 'max' clips nothing.
    assert all(row["clipped"] == 0 and row["sqnr"] > 20 for row in rows.values())
    details = studio.range("digits.stats.npz", "stem/relu")
    assert (
        sum(details["counts"]) == details["count"] and details["methods"]["max"][1] >= details["observed"][1]
    )
    assert details["low"] <= details["observed"][0] and details["observed"][1] <= details["high"]


def test_the_clipped_share_is_counted_from_the_values(calibrated: Path):
    graph = network_to_quantize(calibrated / "digits.onnx")
    values = np.linspace(-1, 3, 101, dtype=np.float32)
    images = [np.full((1, 1, 8, 8), value, np.float32) for value in values]
    tensor = collect(graph, images, threads=1)["image"]
    assert clipped_share(tensor, -1.0, 3.0) == 0
    assert clipped_share(tensor, 0.0, 2.0) == pytest.approx(0.5, abs=0.02)
    low, high, counts = rebinned(tensor)
    assert sum(counts) == tensor.count and low <= -1 and high >= 3 and len(counts) <= 120


def test_an_edited_range_is_a_table_that_quantize_takes(client, calibrated: Path):
    client.enter()
    body = {"file": "mine.cali", "table": "digits.cali", "changes": {"stem/relu": [0, 1.5]}, "digest": ""}
    digest = client.json("/api/ranges", "PUT", body)["digest"]
    table = load_table(calibrated / "mine.cali")
    entry, others = table["stem/relu"], load_table(calibrated / "digits.cali")
    assert (entry.min, entry.max, entry.threshold, entry.method) == (0.0, 1.5, 1.5, "edited")
    assert all(table[name] == others[name] for name in table if name != "stem/relu")
    # Another tab that did not see it does not replace it.
    assert client.refusal("/api/ranges", "PUT", body | {"changes": {"stem/relu": [0, 9]}})[0] == 409
    assert client.json("/api/ranges", "PUT", body | {"digest": digest})["digest"] == digest
    job = {"action": "quantize", "model": "digits.onnx", "output": "mine.mlir", "table": "mine.cali"}
    done = wait_for(client, client.json("/api/jobs", "POST", job)["number"])
    assert done["state"] == "done" and "--table ./mine.cali" in done["command"]
    nodes = {node["name"]: node for node in client.json("/api/graph?file=mine.mlir")["nodes"]}
    # 8 bits over 0 to 1.5.
    assert f"{1.5 / 255:.6g}"[:7] in nodes["stem/relu"]["type"]


@pytest.mark.parametrize(
    "change",
    [
        {"changes": {}},
        {"changes": []},
        {"changes": {"nobody": [0, 1]}},
        {"changes": {"stem/relu": [0]}},
        {"changes": {"stem/relu": ["0", "1"]}},
        {"changes": {"stem/relu": [0, float("inf")]}},
        {"changes": {"stem/relu": [0, 10**400]}},
        {"file": "../x.cali"},
        {"file": "x.yaml"},
        {"file": "digits.onnx"},
        {"table": "../x.cali"},
        {"table": "digits.onnx"},
    ],
)
def test_ranges_that_are_none_are_refused(client, calibrated: Path, change):
    client.enter()
    body = {"file": "new.cali", "table": "digits.cali", "changes": {"stem/relu": [0, 1]}, "digest": ""}
    assert client.refusal("/api/ranges", "PUT", body | change)[0] in (400, 404)
    assert not (calibrated / "new.cali").exists() and not (calibrated.parent / "x.cali").exists()


def test_calibration_and_a_changed_schedule_as_jobs(client, project_folder: Path):
    """A job calibrates; another compiles with four tiles for one layer, and the program has them."""
    client.enter()
    calibrate = {
        "action": "calibrate",
        "model": "digits.onnx",
        "data": "digits_samples.npz",
        "output": "c.cali",
    }
    first = client.json("/api/jobs", "POST", calibrate | {"method": "max"})["number"]
    compile_ = {
        "action": "compile",
        "model": "digits.mlir",
        "output": "a.npu",
        "target": "edge-4t",
        "level": "1",
    }
    second = client.json("/api/jobs", "POST", compile_)["number"]
    assert wait_for(client, first)["state"] == wait_for(client, second)["state"] == "done"
    assert client.json("/api/ranges?table=c.cali&stats=c.stats.npz")["rows"]
    groups = client.json("/api/schedule?file=a.schedule.yaml")["subgraphs"]
    stem = next(group for group in groups[0]["groups"] if "stem/relu" in group["layers"])
    wanted = {
        "name": groups[0]["name"],
        "groups": [stem | {"layers": ["stem/relu"], "tiles": 4, "resident_results": None}],
    }
    body = {
        "file": "t.yaml",
        "schedule": {"target": "edge-4t", "limits": {}, "subgraphs": [wanted]},
        "digest": "",
    }
    client.json("/api/schedule", "PUT", body)
    text = (project_folder / "t.yaml").read_text()
    assert "tiles: 4" in text and text.startswith("# Written by npuc studio")
    tiled = wait_for(
        client,
        client.json("/api/jobs", "POST", compile_ | {"output": "b.npu", "schedule": "t.yaml"})["number"],
    )
    assert tiled["state"] == "done" and "--schedule ./t.yaml" in tiled["command"], tiled["lines"]
    assert tiled["figures"]["cycles"] == simulate(load_compiled(project_folder / "b.npu")).total
    answer = client.json("/api/schedule?file=b.schedule.yaml")["subgraphs"][0]["groups"]
    assert next(group for group in answer if group["layers"] == ["stem/relu"])["tiles"] == 4
    points = client.json("/api/frontier?reference=digits.onnx&sample=digits_samples.npz")["points"]
    assert {point["file"] for point in points} == {"a.npu", "b.npu", "digits.npu"}
    assert all(point["sqnr"] > 20 and point["samples"] == 8 for point in points)


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        {},
        {"subgraphs": "x"},
        {"subgraphs": [{"name": "npu1", "groups": [{"layers": []}]}]},
        {"subgraphs": [{"name": "npu1", "groups": [{"layers": ["a"], "tiles": 0}]}]},
        {"subgraphs": [{"name": "npu1", "groups": [{"layers": ["a"], "evil": 1}]}]},
        {"subgraphs": [], "limits": {"choices": 1}},
        {"subgraphs": [], "limits": {"cores": "many"}},
    ],
)
def test_schedules_that_are_none_are_refused(client, project_folder: Path, schedule):
    client.enter()
    body = {"file": "new.yaml", "schedule": schedule, "digest": ""}
    assert (
        client.refusal("/api/schedule", "PUT", body)[0] == 400 and not (project_folder / "new.yaml").exists()
    )


def test_points_are_measured_against_the_float_network(project_folder: Path):
    (project_folder / "other.npu").write_bytes((project_folder / "digits.npu").read_bytes())
    (project_folder / "other.yaml").write_text("layers:\n  stem/relu: int16\n")
    answer = Studio(Project(project_folder)).frontier("digits.onnx", "digits_samples.npz")
    first, second = answer["points"]
    assert first["cycles"] == second["cycles"] == simulate(load_compiled(project_folder / "digits.npu")).total
    assert second["configuration"] == "other.yaml" and "configuration" not in first
    # The samples have labels: the metric is that of npuc eval.
    evaluated = evaluate(
        [project_folder / "digits.onnx", project_folder / "digits.npu"], project_folder / "digits_samples.npz"
    )
    metric = next(figure for figure in first["figures"] if figure["name"] == "top1")
    assert metric["value"] == evaluated.value("top1", model=1) and metric["float"] == evaluated.value("top1")
    assert metric["samples"] == 200 and metric["interval"][0] < metric["value"] < metric["interval"][1]
    model = onnx.load(project_folder / "digits.onnx")
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "block2/conv/weight")
    weight.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weight), weight.name))
    onnx.save(model, project_folder / "broken.onnx")
    broken = Studio(Project(project_folder)).frontier("broken.onnx", "digits_samples.npz")["points"][0][
        "figures"
    ][0]
    assert broken["value"] == metric["value"] > broken["float"]
    np.savez(project_folder / "plain.npz", image=np.load(project_folder / "digits_samples.npz")["image"])
    unlabelled = Studio(Project(project_folder)).frontier("digits.onnx", "plain.npz")
    assert [point["figures"] for point in unlabelled["points"]] == [[], []]
    assert (
        first["least"] <= first["sqnr"] and answer["left_out"] == [] and json.dumps(answer, allow_nan=False)
    )


def test_jobs_wait_their_turn_and_can_be_cancelled_before_it(project_folder: Path, monkeypatch):
    monkeypatch.setattr("npuc.studio.jobs._PROGRAM", "import time; time.sleep(0.4); print('{}')")
    jobs = Jobs(project_folder)
    started = [jobs.start(f"job {number}", [], wait=True) for number in range(5)]
    assert [job.state for job in started] == ["running"] * 2 + ["waiting"] * 3
    jobs.cancel(started[3].number)
    assert started[3].state == "cancelled"
    deadline = time.monotonic() + 30
    while any(job.state in ("running", "waiting") for job in jobs.all()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert [job.state for job in started] == ["done", "done", "done", "cancelled", "done"]
    monkeypatch.setattr("npuc.studio.jobs._PROGRAM", "import time; time.sleep(60); print('{}')")
    late = [jobs.start("late", [], wait=True) for _ in range(4)]
    jobs.close()
    assert all(job.state == "cancelled" for job in late)
