"""Runners at the end of a process, and in a forked child."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from npuc.errors import UsageError
from npuc.program.file import save_compiled
from npuc.program.model import CompiledModel
from npuc.runtime import Runner

OPENING = """
import atexit, os, signal, sys, time
import numpy as np
signal.alarm(60)  # a child that hangs must not outlive the test
x = np.zeros((1, 1, 8, 8), np.float32)
"""


def said_by(code: str, model: CompiledModel, folder: Path) -> str:
    save_compiled(model, folder / "m.npu")
    done = subprocess.run(
        [sys.executable, "-c", OPENING + code], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


@pytest.mark.parametrize(
    "opened",
    [
        "Runner('m.npu', SimulatedDevice(fault=slow), workers=2)",
        "Pool('m.npu', [SimulatedDevice(fault=slow)])",
    ],
)
def test_a_program_that_ends_waits_for_the_device(opened: str, model: CompiledModel, tmp_path: Path) -> None:
    """Memory that a device still writes to must not go before it has come back."""
    said = said_by(
        f"""
inside, jobs = [], []
# Registered first, and so called last.
atexit.register(lambda: print(len(inside), "inside;", *sorted({{job.state for job in jobs}}), flush=True))
from npuc.runtime import Pool, Runner, SimulatedDevice
def slow(number):
    inside.append(number)
    time.sleep(0.3)
    inside.remove(number)
one = {opened}
jobs += [one.execute_async(x) for _ in range(9)]
while not inside:
    time.sleep(0.01)
""",
        model,
        tmp_path,
    )
    assert said.startswith("0 inside; ") and set(said.split()[2:]) <= {"done", "failed"}


def test_threads_that_run_a_model_at_the_end(model: CompiledModel, tmp_path: Path) -> None:
    said = said_by(
        """
from threading import Thread
from npuc.errors import ShutdownError
from npuc.runtime import Runner
def work():
    try:
        while True:
            runner.run(x)
            ready.append(1)
    except ShutdownError:
        pass
ready, runner = [], Runner("m.npu")
for _ in range(3):
    Thread(target=work, daemon=True).start()
while len(ready) < 9:
    time.sleep(0.01)
print("leaves")
""",
        model,
        tmp_path,
    )
    assert said == "leaves\n"


def test_a_runner_cannot_be_sent_to_another_process(model: CompiledModel) -> None:
    with (
        Runner(model) as runner,
        pytest.raises(UsageError, match=r"a Runner cannot be sent.*the path of its file"),
    ):
        pickle.dumps(runner)


def test_a_forked_child_has_workers_of_its_own(mixed: CompiledModel, tmp_path: Path) -> None:
    said = said_by(
        """
from npuc.errors import ShutdownError
from npuc.runtime import Pool, Runner
runner, pool, closed = Runner("m.npu", threads=2), Pool("m.npu", ["simulated"] * 2), Runner("m.npu")
closed.close()
wanted = runner.run(x)["logits"]
# ONNX Runtime has locks of its own, which are held while a session is made: not in the moment of the fork.
for job in [pool.execute_async(x) for _ in range(16)]:
    job.result(30)
jobs = [one.execute_async(x) for one in (runner, pool)]
child = os.fork()
if not child:
    signal.alarm(60)  # a child does not inherit it
    found = [runner.run(x), runner.execute_async(x).result(30), pool.run(x), pool.execute_async(x).result(30)]
    assert all(np.array_equal(one["logits"], wanted) for one in found)
    try:
        closed.run(x)
    except ShutdownError:
        print("all is well in the child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert all(np.array_equal(job.result(30)["logits"], wanted) for job in jobs)
runner.close()
pool.close()
print("and here")
""",
        mixed,
        tmp_path,
    )
    assert said == "all is well in the child\nand here\n"
