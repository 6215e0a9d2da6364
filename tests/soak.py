"""The runtime for a long time under all that goes wrong: `make soak JOBS=1000000`, or `python tests/soak.py --jobs 20000`.

Processes with threads that submit jobs to one runner each, over a device that fails, stalls and gives memory that is too short.
Clients cancel jobs, wait for too short a time and wait again. A ledger has every job by its number: each must end exactly once,
in a result that is right to the bit or in the error that belongs to what happened to it, and each fault must end one job. Memory
is sampled all the time; what counts is its slope in the last three quarters, by least squares.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from npuc.arrays import Array
from npuc.errors import DeviceError, JobCancelledError, JobTimeoutError
from npuc.program.file import load_compiled, save_compiled
from npuc.program.model import CompiledModel
from npuc.runtime import Job, Runner
from npuc.sim import Simulator
from support.paths import ROOT

FAIL, STALL, SHORT, CANCEL, HURRY = 0.01, 0.0005, 0.05, 0.05, 0.05
"""How often an execution fails or stalls, a load gives short memory, a job is cancelled, a client waits too briefly."""
STALLED = 0.02
"""Seconds of a stall."""
WINDOW = 16
"""Jobs that a client has under way."""
LONGEST = 600
"""Seconds that nothing waits for unless it hangs."""
FLAT = 0.25
"""MiB of growth in 100,000 jobs that still count as flat."""


class FaultyPart:
    """A model on the faulty device."""

    def __init__(self, device: FaultyDevice, model: CompiledModel, short: bool) -> None:
        self._device, self._simulator, self._short = device, Simulator(model), short

    @property
    def segments(self) -> Sequence[Array]:
        """Half of what was asked for, now and then."""
        whole = self._simulator.segments
        return [one[: one.size // 2] for one in whole] if self._short else whole

    def bind(self, segment: int, memory: Array | None) -> bool:
        """It works in its own memory."""
        return False

    def execute(self, subgraph: int) -> int | None:
        """Run, fail or stall."""
        chance = self._device.draw()
        if chance < FAIL:
            self._device.count("failed")
            raise OSError("the link is down")
        if chance < FAIL + STALL:
            self._device.count("stalled")
            time.sleep(STALLED)
        self._simulator.step(subgraph)
        return None

    def close(self) -> None:
        """Free the memory."""
        self._device.count("closed")


class FaultyDevice:
    """A driver that fails, stalls, and gives memory that is too short."""

    name = "faulty"

    def __init__(self, seed: int) -> None:
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self.injected: Counter[str] = Counter()

    def draw(self) -> float:
        """A number for the next decision."""
        with self._lock:
            return self._rng.random()

    def count(self, word: str) -> None:
        """Note that something happened."""
        with self._lock:
            self.injected[word] += 1

    def load(self, model: CompiledModel, threads: int) -> FaultyPart:
        """Load; sometimes with too little memory."""
        short = self.draw() < SHORT
        self.count("loads")
        if short:
            self.count("short")
        return FaultyPart(self, model, short)

    def close(self) -> None:
        """Nothing to let go of."""


@dataclass
class Ledger:
    """Every job by its number, and what became of it."""

    ended: Counter[str] = field(default_factory=Counter)
    callbacks: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def called(self, job: Job) -> None:
        """The callback of a job."""
        with self.lock:
            self.callbacks[job.number] += 1

    def end(self, job: Job, word: str, problem: str = "") -> None:
        """A client has the outcome of a job."""
        with self.lock:
            self.ended[word] += 1
            if problem:
                self.wrong.append(f"job {job.number}: {problem}")
            calls = self.callbacks.pop(job.number, 0)
        if calls != 1:
            with self.lock:
                self.wrong.append(f"job {job.number} ({word}): its callback was called {calls} times")


@dataclass(frozen=True)
class Outcome:
    """Of one process."""

    ended: dict[str, int]
    injected: dict[str, int]
    wrong: list[str]
    samples: list[tuple[int, int]]
    """Jobs that were done, and bytes of resident memory."""
    open: int
    """Models that the device still has after the runner was closed."""


def _client(
    runner: Runner,
    images: Array,
    expected: Array,
    seed: int,
    jobs: int,
    ledger: Ledger,
    hurried: Counter[str],
) -> None:
    rng = random.Random(seed)
    waiting: list[tuple[int, Job, bool]] = []

    def settle(number: int, job: Job, cancelled: bool) -> None:
        if rng.random() < HURRY:
            try:
                job.result(timeout=1e-4)
            except JobTimeoutError:
                hurried["waited too briefly"] += 1
            except (DeviceError, JobCancelledError):
                pass
        # The callback comes in the worker's thread, at the same time as the result.
        problem, word = "", "done"
        try:
            outputs = job.result(LONGEST)["logits"]
            if cancelled:
                problem = "it was cancelled and has a result"
            elif not np.array_equal(outputs, expected[number : number + 1]):
                problem = "its result is not that of its input"
        except JobCancelledError:
            word, problem = "cancelled", "" if cancelled else "it was cancelled by nobody"
        except DeviceError as error:
            word = "device failed"
            if "the link is down" not in str(error) and "its driver gives" not in str(error):
                problem = str(error)
        for _ in range(10_000):
            if ledger.callbacks[job.number]:
                break
            time.sleep(1e-4)
        ledger.end(job, word, problem)

    for k in range(jobs):
        number = (seed + k) % len(expected)
        job = runner.execute_async(images[number : number + 1], callback=ledger.called, client=str(seed))
        waiting.append((number, job, rng.random() < CANCEL and job.cancel()))
        if len(waiting) == WINDOW:
            settle(*waiting.pop(rng.randrange(4)))
    for one in waiting:
        settle(*one)


def _resident() -> int:
    # An error of a device holds the memory of that device in a cycle (its traceback), until the collector comes by.
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def process(path: str, seed: int, threads: int, jobs: int) -> Outcome:
    """One process: a runner over a faulty device, and its clients."""
    model = load_compiled(path)
    with np.load(ROOT / "examples/digits_samples.npz") as samples:
        images: Array = samples["image"][:32].astype(np.float32)
    simulator = Simulator(model)
    expected = np.concatenate([simulator.run({"image": one[None]})["logits"] for one in images])
    device, ledger, hurried = FaultyDevice(seed), Ledger(), Counter[str]()
    memory: list[tuple[int, int]] = []
    finished = threading.Event()

    def sample() -> None:
        while not finished.wait(1):
            memory.append((sum(ledger.ended.values()), _resident()))

    watcher = threading.Thread(target=sample)
    watcher.start()
    with Runner(model, device, workers=2) as runner:
        shares = [jobs // threads + (k < jobs % threads) for k in range(threads)]
        clients = [
            threading.Thread(
                target=_client, args=(runner, images, expected, seed * 1000 + k, share, ledger, hurried)
            )
            for k, share in enumerate(shares)
        ]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
    finished.set()
    watcher.join()
    happened = device.injected
    ledger.wrong += [f"job {number}: a callback after its end" for number in ledger.callbacks]
    if ledger.ended["device failed"] != happened["failed"] + happened["short"]:
        ledger.wrong.append(f"{happened} ended {ledger.ended['device failed']} jobs")
    left = happened["loads"] - happened["closed"]
    return Outcome(dict(ledger.ended), dict(happened + hurried), ledger.wrong[:20], memory, left)


def slope(samples: Sequence[tuple[int, int]]) -> float:
    """MiB in 100,000 jobs, over the last three quarters of the jobs; 0 for too few samples."""
    last = samples[-1][0] if samples else 0
    used = np.array([one for one in samples if one[0] >= last / 4], np.float64)
    if len(used) < 8 or np.ptp(used[:, 0]) == 0:
        return 0.0
    return float(np.polyfit(used[:, 0], used[:, 1], 1)[0]) * 100_000 / (1 << 20)


def demo_model(path: Path) -> None:
    """The network of handwritten digits, compiled."""
    from npuc.calib.sources import random_data
    from npuc.codegen.compile_model import compile_model
    from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
    from npuc.frontend.onnx import ImportOptions
    from npuc.target import load_target

    target = load_target("edge-1t")
    graph = network_to_quantize(
        ROOT / "examples/digits.onnx", ImportOptions(input_shapes={"image": (1, 1, 8, 8)})
    )
    ranges = ranges_from(graph, random_data(graph, 4, 0), schemes_of(graph, None, target), "max")
    save_compiled(compile_model(quantize_network(graph, ranges, None, target).graph, target, level=1), path)


def soak(model: Path, jobs: int, threads: int = 8, processes: int = 2, seed: int = 1) -> list[Outcome]:
    """So many jobs over all; what each process says of them."""
    share = [jobs // processes + (k < jobs % processes) for k in range(processes)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        arguments = [
            (str(model), seed + k, threads // processes or 1, count) for k, count in enumerate(share)
        ]
        return pool.starmap(process, arguments)


def main() -> None:
    """Run it and print what happened."""
    parser = argparse.ArgumentParser(description="Soak the runtime.")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=8, help="of all processes together")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    model = ROOT / "build" / "soak.npu"
    model.parent.mkdir(exist_ok=True)
    demo_model(model)
    start = time.monotonic()
    outcomes = soak(model, args.jobs, args.threads, args.processes, args.seed)
    ended = sum((Counter(one.ended) for one in outcomes), Counter[str]())
    injected = sum((Counter(one.injected) for one in outcomes), Counter[str]())
    seconds = time.monotonic() - start
    print(f"{args.jobs:,} jobs, {args.threads} threads in {args.processes} processes, {seconds:.0f} s")
    print("ended:    " + ", ".join(f"{word} {count:,}" for word, count in sorted(ended.items())))
    print("injected: " + ", ".join(f"{word} {count:,}" for word, count in sorted(injected.items())))
    lost = args.jobs - sum(ended.values())
    slopes = [slope(one.samples) for one in outcomes]
    print(f"lost: {lost}; wrong or ended twice: {sum(len(one.wrong) for one in outcomes)}; left on the device: "
          f"{sum(one.open for one in outcomes)}")  # fmt: skip
    for number, (one, grown) in enumerate(zip(outcomes, slopes, strict=True)):
        peak = max((memory for _, memory in one.samples), default=0) / (1 << 20)
        print(f"process {number}: {peak:.1f} MiB at most, slope {grown:+.3f} MiB in 100,000 jobs")
        print("".join(f"  {problem}\n" for problem in one.wrong), end="")
    bad = lost or any(one.wrong or one.open for one in outcomes)
    sys.exit(bool(bad or (args.jobs >= 100_000 and max(slopes) > FLAT)))


if __name__ == "__main__":
    main()
