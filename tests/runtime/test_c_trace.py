"""Traces and times of programs that run models by `npu.h`: the same events as those of Python, and the same figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npuc.native import library
from support.paths import ROOT
from support.trace_rules import faults

GOLDEN = ROOT / "tests/golden_files/host-operators-v1.npu"
RUNS = 3
PROGRAM = """
import ctypes, sys
core = ctypes.CDLL(sys.argv[1])
model = ctypes.c_void_p()
assert core.npu_load(sys.argv[2].encode(), ctypes.byref(model)) == 0
x, y = (ctypes.c_float * 192)(), (ctypes.c_float * 4)()
pointer = lambda array: (ctypes.c_void_p * 1)(ctypes.addressof(array))
for _ in range(int(sys.argv[3])):
    assert core.npu_run(model, pointer(x), pointer(y)) == 0
core.npu_summary.restype = ctypes.c_int64
text = ctypes.create_string_buffer(4096)
assert core.npu_summary(model, text, ctypes.c_size_t(4096)) == len(text.value)
sys.stdout.write(text.value.decode())
core.npu_free(model)
"""


def command(*runs: int) -> list[str]:
    return [sys.executable, "-c", PROGRAM, library()._name, str(GOLDEN), *map(str, runs or (RUNS,))]


def slices(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


def test_a_c_program_writes_its_own_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    done = subprocess.run(
        command(), env={**os.environ, "NPUC_TRACE": str(path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())
    assert faults(f'{{"displayTimeUnit":"ms","traceEvents":{path.read_text()}}}') == []
    assert len(slices(events, "run")) == RUNS and len(slices(events, "load")) == 1
    assert {event["name"] for event in slices(events, "npu")} == {"npu1"}
    cpu = [event["name"] for event in slices(events, "cpu")]
    assert len(cpu) == RUNS * len(set(cpu)) and any(name.startswith("cpu") for name in cpu)
    # The same numbers: no run of the trace is shorter or longer than the summary says.
    line = next(line for line in done.stdout.splitlines() if line.startswith("  all "))
    least, mean, most = map(float, line.split()[-3:])
    taken = [event["dur"] / 1e3 for event in slices(events, "run")]
    assert min(taken) == pytest.approx(least, abs=2e-3) and max(taken) == pytest.approx(most, abs=2e-3)
    assert sum(taken) / RUNS == pytest.approx(mean, abs=2e-3)


def test_npuc_trace_records_c_programs(tmp_path: Path) -> None:
    trace = [
        sys.executable,
        "-c",
        "from npuc.cli import main; main()",
        "trace",
        "-o",
        str(tmp_path / "t.json"),
        "--",
        *command(),
    ]
    done = subprocess.run(trace, capture_output=True, text=True)
    assert done.returncode == 0 and f"{RUNS} runs" in done.stderr, done.stderr
    text = (tmp_path / "t.json").read_text()
    assert faults(text) == []
    recorded = json.loads(text)
    assert len(slices(recorded["traceEvents"], "npu")) == RUNS


def test_a_trace_that_cannot_be_written_does_not_stop_the_program(tmp_path: Path) -> None:
    for name, words in (("no/run.json", "cannot be written"), ("missing", "")):
        environment = {**os.environ, "NPUC_TRACE": str(tmp_path / name)}
        done = subprocess.run(command(1), env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and words in done.stderr
        assert "1 runs of" in done.stdout


def test_a_process_that_is_forked_off_does_not_end_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    run = "    assert core.npu_run(model, pointer(x), pointer(y)) == 0\n"
    forked = "    import os; child = os.fork(); child or ctypes.CDLL(None).exit(0); os.waitpid(child, 0)\n"
    program = [part.replace(run, run + forked) for part in command()]
    done = subprocess.run(
        program, env={**os.environ, "NPUC_TRACE": str(path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(slices(json.loads(path.read_text()), "run")) == RUNS


FORKING = """
import ctypes, os, signal, sys, threading
core = ctypes.CDLL(sys.argv[1])
def load():
    model = ctypes.c_void_p()
    assert core.npu_load(sys.argv[2].encode(), ctypes.byref(model)) == 0
    core.npu_free(model)
ended = threading.Event()
def work():
    while not ended.is_set():
        load()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
stuck = 0
for _ in range(60):
    child = os.fork()
    if not child:
        signal.alarm(10)
        load()
        os._exit(0)
    stuck += os.waitpid(child, 0)[1] != 0
    if stuck:
        break
ended.set()
for thread in threads:
    thread.join()
sys.exit(stuck)
"""


def test_a_fork_while_other_threads_write_leaves_the_child_able_to(tmp_path: Path) -> None:
    """The child must not wait for a thread that it does not have."""
    path = tmp_path / "run.json"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, library()._name, str(GOLDEN)],
        env={**os.environ, "NPUC_TRACE": str(path)},
        timeout=120,
    )
    assert done.returncode == 0
    pids = {event["pid"] for event in json.loads(path.read_text())}
    assert len(pids) == 61
