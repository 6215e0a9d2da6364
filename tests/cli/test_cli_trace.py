"""`npuc trace`: a program is watched without being changed, and ends as it would have ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npuc.calib.sources import random_data
from npuc.codegen.compile_model import CompileOptions
from npuc.flow import compile_network, network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.program.file import save_compiled
from npuc.target import load_target
from support.trace_rules import faults

NPUC = [sys.executable, "-c", "import sys; from npuc.cli import main; main(sys.argv[1:])"]
OPENING = """
import os, signal, sys, time
import numpy as np
from npuc.errors import NpucError
from npuc.runtime import Pipeline, Pool, Runner, SimulatedDevice, Stage

def halve(x):
    return x / 2

x = np.zeros((1, 1, 8, 8), np.float32)
"""


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `m.npu`, a network with a layer on the CPU."""
    target = load_target("edge-1t")
    graph = network_to_quantize(root / "examples/digits.onnx")
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, target), "max")
    graph = quantize_network(graph, ranges, None, target).graph
    made = tmp_path_factory.mktemp("trace")
    options = CompileOptions(1, devices={"pool": "cpu"}, island_threshold=0)
    save_compiled(compile_network(graph, target, options, name="digits").model, made / "m.npu")
    return made


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*NPUC, "trace", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # In the background of a shell, SIGINT is ignored, and children inherit that. A session of its own has no terminal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        start_new_session=True,
    )


def trace(folder: Path, code: str, *options: str) -> tuple[int, str, str, list[dict[str, Any]]]:
    (folder / "app.py").write_text(OPENING + code)
    child = start(folder, *options, "-o", "t.json", "--", sys.executable, "app.py", "-o", "its own")
    out, err = child.communicate(timeout=120)
    return child.returncode, out, err, events_of(folder / "t.json")


def events_of(path: Path) -> list[dict[str, Any]]:
    assert faults(path.read_bytes()) == []
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def slices(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [one for one in events if one["ph"] == "X" and one["cat"] == category]


def test_runs_jobs_waits_stages_and_queues(folder: Path) -> None:
    status, out, err, events = trace(
        folder,
        """
with Runner("m.npu", workers=2) as runner:
    runner.run(x)
    jobs = [runner.execute_async(x, client="camera") for _ in range(8)]
    for job in jobs:
        runner.wait(job)
    print(len(list(Pipeline(Stage(halve), Stage(runner.run)).run([x] * 4))), sys.argv[1:])
""",
    )
    assert status == 0 and out == "4 ['-o', 'its own']\n"
    assert "13 runs, 8 jobs" in err and "queue of the runner of 'digits': at most" in err
    runs, jobs = slices(events, "run"), slices(events, "job")
    assert len(runs) == 13 and {one["name"] for one in runs} == {"digits"}
    assert [one["name"] for one in sorted(jobs, key=lambda one: int(one["name"][4:]))] == [
        f"job {number}" for number in range(1, 9)
    ]
    assert len(slices(events, "npu")) == 2 * 13 and len(slices(events, "submit")) == 8
    assert [one["args"]["layers"] for one in slices(events, "cpu") if one["name"] == "cpu2"] == [
        ["pool"]
    ] * 13
    assert {one["name"] for one in slices(events, "stage")} == {"halve", "run"}
    assert {f"for job {number}" for number in range(1, 9)} <= {one["name"] for one in slices(events, "wait")}
    for part in ("b", "e"):
        found = [one for one in events if one["ph"] == part]
        assert len(found) == 8 and {one["cat"] for one in found} == {"queue of the runner of 'digits'"}
    assert all(one["args"]["state"] == "done" for one in events if one["ph"] == "e")
    depths = [one["args"]["jobs"] for one in events if one["ph"] == "C" and "runner" in one["name"]]
    assert len(depths) == 16 and min(depths) == 0
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert {names[one["tid"]] for one in jobs} == {"npuc-simulated"}
    for job in jobs:  # a run of the same thread lies inside
        assert any(
            one["tid"] == job["tid"]
            and job["ts"] <= one["ts"]
            and one["ts"] + one["dur"] <= job["ts"] + job["dur"]
            for one in runs
        )
    begins = {one["id"]: one["ts"] for one in events if one["ph"] == "s"}
    assert len(begins) == 8 and all(begins[one["id"]] <= one["ts"] for one in events if one["ph"] == "f")
    assert all(one.get("ts", 0) >= 0 and one.get("dur", 0) >= 0 for one in events)


def test_failures_of_jobs_and_of_the_program_are_passed_on(folder: Path) -> None:
    status, _, err, events = trace(
        folder,
        """
def fault(number):
    raise OSError("no such board")
with Pool("m.npu", [SimulatedDevice(fault=fault)]) as pool:
    try:
        pool.run(x)
    except NpucError as error:
        sys.exit(7)
""",
    )
    assert status == 7 and "1 jobs (1 failed)" in err
    (ended,) = [one for one in events if one["ph"] == "e"]
    assert ended["args"]["state"] == "failed" and ended["args"]["error"] == "DeviceError"
    assert slices(events, "npu")[0]["args"]["error"] == "DeviceError"


def test_a_program_that_is_killed_leaves_what_it_was_doing(folder: Path) -> None:
    status, _, err, events = trace(
        folder,
        """
runner = Runner("m.npu", SimulatedDevice(fault=lambda number: os.kill(os.getpid(), signal.SIGKILL)))
runner.run(x)
""",
    )
    assert status == 128 + signal.SIGKILL and "not finished" in err
    assert slices(events, "npu")[0]["args"]["unfinished"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_and_the_trace_is_written(folder: Path, number: int) -> None:
    (folder / "app.py").write_text(
        OPENING
        + """
with Runner("m.npu") as runner:
    runner.run(x)
    print("ready", flush=True)
    time.sleep(60)
"""
    )
    child = start(folder, "-o", "s.json", "--", sys.executable, "app.py")
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(number)
    child.communicate(timeout=60)
    assert child.returncode == 128 + number
    assert len(slices(events_of(folder / "s.json"), "run")) == 1


def test_processes_of_the_program_are_in_the_trace(folder: Path) -> None:
    _, _, err, events = trace(
        folder,
        """
import multiprocessing, subprocess
def work(number):
    with Runner("m.npu") as runner:
        runner.run(x)
if __name__ == "__main__":
    with Runner("m.npu") as runner:
        runner.run(x)
    others = [multiprocessing.get_context("fork").Process(target=work, args=(i,)) for i in range(2)]
    for one in others:
        one.start()
    for one in others:
        one.join()
""",
    )
    runs = slices(events, "run")
    assert "3 processes" in err and len({one["pid"] for one in runs}) == len(runs) == 3
    known = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in runs} <= known


def test_a_program_that_closes_all_files_keeps_its_own_to_itself(folder: Path) -> None:
    status, _, _, events = trace(
        folder,
        """
runner = Runner("m.npu")
runner.run(x)
os.closerange(3, 4096)
files = [open(f"own{i}", "w") for i in range(9)]
runner.run(x)
""",
    )
    assert status == 0 and len(slices(events, "run")) == 1
    assert all((folder / f"own{i}").read_text() == "" for i in range(9))


def test_a_program_without_runners(folder: Path) -> None:
    child = start(folder, "-o", "n.json", "--", "sh", "-c", "exit 3")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 3 and "made no use of npuc.runtime" in err
    assert events_of(folder / "n.json") == []
    child = start(folder, "-q", "-o", "n.json", "--", "true")
    assert child.communicate(timeout=60) == ("", "") and child.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument"),
        (["--", "no-such-program"], "cannot be run: No such file"),
        (["--", "./app.py"], "npuc trace -- python ./app.py"),
        (["-o", "nowhere/t.json", "--", "true"], "there is no folder"),
    ],
)
def test_what_cannot_be_run_is_refused(npuc: Any, here: Path, arguments: list[str], words: str) -> None:
    done = npuc("trace", *arguments)
    assert done.status == 2 and words in done.err
    assert not Path("trace.json").exists()


def test_functions_stay_as_they_are_if_nobody_watches() -> None:
    from npuc.runtime import record

    def function() -> None:
        pass

    assert os.environ.get(record.VARIABLE) is None and record.active is None
    assert record.spans("cpu", lambda: "x")(function) is function
