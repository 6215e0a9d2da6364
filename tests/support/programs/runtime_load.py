"""Load on the runtime: many threads, many runners, failing devices. Shared by the tests.

Every function runs jobs, checks every result to the bit, and returns how many ended and how; a job that is lost makes it hang
until `WAIT`, a wrong result raises.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import NpucError
from npuc.program.model import CompiledModel
from npuc.runtime import Job, Runner, SimulatedDevice

Outcomes = Counter[str]
WAIT = 600
"""Seconds that are never reached unless something hangs."""
WINDOW = 16
"""Jobs that a client has under way at once."""


class Sample:
    """Inputs by number, and what they give."""

    def __init__(self, inputs: Sequence[dict[str, Array]], outputs: Sequence[dict[str, Array]]) -> None:
        self.inputs, self.outputs = inputs, outputs

    def check(self, number: int, outputs: dict[str, Array]) -> None:
        """Raise unless these are the outputs of an input."""
        for name, value in self.outputs[number].items():
            np.testing.assert_array_equal(outputs[name], value)


def resident() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call `work` with 0 to count - 1, each in a thread; the first exception is raised here."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive(), "a client waits for a job that never ends"
    if failures:
        raise failures[0]


def client(runner: Runner, sample: Sample, first: int, jobs: int, ended: Outcomes, lock: Any) -> None:
    """Do jobs, every other in the background, a few of them at a time; count each by how it ended."""
    count = len(sample.inputs)
    waiting: list[tuple[int, Job]] = []

    def end(number: int, wait: Callable[[], dict[str, Array]]) -> None:
        try:
            outputs = wait()
        except NpucError as error:
            word = type(error).__name__
        else:
            sample.check(number, outputs)
            word = "done"
        with lock:
            ended[word] += 1

    for k in range(jobs):
        number = (first + k) % count
        if k % 2:
            end(number, lambda number=number: runner.run(sample.inputs[number]))  # type: ignore[misc]
            continue
        try:
            waiting.append((number, runner.execute_async(sample.inputs[number], client=str(first))))
        except NpucError as error:
            with lock:
                ended[type(error).__name__] += 1
        if len(waiting) == WINDOW:
            number, job = waiting.pop(0)
            end(number, lambda job=job: job.result(WAIT))  # type: ignore[misc]
    for number, job in waiting:
        end(number, lambda job=job: job.result(WAIT))  # type: ignore[misc]


def on_one_runner(runner: Runner, sample: Sample, threads: int, jobs: int) -> Outcomes:
    """`threads` clients with so many jobs each."""
    ended, lock = Outcomes(), threading.Lock()
    in_threads(threads, lambda first: client(runner, sample, first, jobs, ended, lock))
    return ended


def on_many_runners(model: CompiledModel, sample: Sample, runners: int, jobs: int) -> Outcomes:
    """All runners alive at once, each with a client in a thread of its own."""
    ended, lock = Outcomes(), threading.Lock()
    all_runners = [Runner(model, workers=2) for _ in range(runners)]
    try:
        in_threads(runners, lambda number: client(all_runners[number], sample, number, jobs, ended, lock))
    finally:
        for runner in all_runners:
            runner.close(timeout=WAIT)
    return ended


def with_failures(model: CompiledModel, sample: Sample, threads: int, jobs: int, every: int) -> Outcomes:
    """A device that fails in every `every`-th execution."""

    def fault(number: int) -> None:
        if number % every == every - 1:
            raise OSError("the link is down")

    with Runner(model, SimulatedDevice(fault=fault), workers=4) as runner:
        return on_one_runner(runner, sample, threads, jobs)


def with_shutdown(model: CompiledModel, sample: Sample, threads: int, jobs: int) -> Outcomes:
    """A runner that is closed in the middle."""
    half = threading.Event()
    counts = Counter[str]()

    def fault(number: int) -> None:
        counts["executions"] += 1
        if number == threads * jobs // 2:
            half.set()

    runner = Runner(model, SimulatedDevice(fault=fault), workers=2)

    def close() -> None:
        half.wait(WAIT)
        runner.close(wait=False)

    closer = threading.Thread(target=close)
    closer.start()
    ended = on_one_runner(runner, sample, threads, jobs)
    closer.join(WAIT)
    return ended
