"""Schedules against Vela, Arm's compiler for Ethos-U, on the int8 TFLite models that it takes whole.

Both tools compile the same file for the same machine: Vela for ethos-u65-256 with 384 KiB of dedicated SRAM, npuc for the
preset `ethos-u65-256-like`, which states that machine. `SRAM` is the on-chip memory that the program needs, up to the highest
byte that it touches: Vela's own figure of its arena, and the highest allocation of npuc. `KB` is what goes over the DRAM port,
`s` the CPU time from the file to the program in a process that has the tool loaded, the least of three runs. `command` are the
wall and CPU times of the two commands, start-up included, the least of three runs that take turns; npuc searches anew, and both
find their modules compiled, as after an installation. npuc takes as much memory as its speed needs, Vela as much as its
tensors do; the last columns are npuc with `--local-memory` at Vela's figure: its memory, bytes and cycles then. `plain` is
Vela's bytes with its weights as large as they are in the file. Weights are compressed by both, each with its own codec: Vela's
is the one that the hardware decodes, npuc's is a stand-in. Cycles of the two tools come from different models of the machine
and are not compared.

    python benchmarks/bench_vela.py [--models kws_int8,...] [--commands]

`--commands` measures the commands only.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import networks
from bench_schedule import guarded, moved

from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.errors import NpucError
from npuc.flow import import_model, quantize_network
from npuc.ir import Graph
from npuc.partition import partition
from npuc.sim import simulate
from npuc.target import Target, load_target

FOLDER = networks.ROOT.parent / "shared" / "models" / "tflite"
MODELS = sorted(path.stem for path in FOLDER.glob("*.tflite") if not path.stem.endswith(("_float", "_f16")))
PRESET = "ethos-u65-256-like"
_OPTIONS = (
    "--config", "Arm/vela.ini", "--accelerator-config", "ethos-u65-256", "--system-config", "Ethos_U65_High_End",
    "--memory-mode", "Dedicated_Sram_384KB",
)  # fmt: skip
_TIMES = 3
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What a tool made of a model."""

    memory: int
    """Bytes on the chip."""
    bytes: int
    seconds: float
    cycles: int
    plain: int = 0
    """Bytes if weights were not compressed."""


@contextlib.contextmanager
def _redirected(path: Path) -> Iterator[None]:
    """What this process says goes to a file; Vela speaks from C++ too."""
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    with path.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            for descriptor in kept:
                os.close(descriptor)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of some work, the least of a few times, and what came of it."""
    seconds = []
    for _ in range(_TIMES):
        began = time.process_time()
        result = work()
        seconds.append(time.process_time() - began)
    return min(seconds), result


def vela(path: Path) -> Outcome | None:
    """Vela's own summary; None if some of the model stays on the CPU."""
    from ethosu.vela.vela import main as compile_with_vela

    with tempfile.TemporaryDirectory() as folder:
        with _redirected(Path(folder) / "said"):
            options = [str(path), *_OPTIONS, "--output-dir", folder]
            seconds, _ = timed(lambda: compile_with_vela(options))
        summaries = list(Path(folder).glob("*_summary_*.csv"))
        if not summaries or "CPU operators = 0 " not in (Path(folder) / "said").read_text():
            return None
        row = next(csv.DictReader(summaries[0].open()))
    total, weights, original = (
        int(float(row[key]))
        for key in ("dram_total_bytes", "dram_weight_read_bytes", "total_original_weights")
    )
    memory, cycles = int(float(row["sram_memory_used"]) * 1024), int(float(row["cycles_total"]))
    return Outcome(memory, total, seconds, cycles, total + max(0, original - weights))


def commands(path: Path) -> list[tuple[float, float]]:
    """Wall and CPU seconds of the commands of Vela and of npuc, start-up included."""
    tools = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        theirs = [tools / "vela", path, *_OPTIONS, "--output-dir", folder]
        ours = [
            tools / "npuc",
            "compile",
            path,
            "--target",
            PRESET,
            "-q",
            "-o",
            f"{folder}/model.npu",
        ]
        environment = {**os.environ, "NPUC_CACHE": "off"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiles what it installs
        seconds: list[list[tuple[float, float]]] = [[], []]
        for _ in range(_TIMES):
            for times, command in zip(seconds, (theirs, ours), strict=True):
                began, used = time.perf_counter(), _children_time()
                subprocess.run(list(map(str, command)), check=True, capture_output=True, env=environment)
                times.append((time.perf_counter() - began, _children_time() - used))
    return [(min(wall for wall, _ in times), min(cpu for _, cpu in times)) for times in seconds]


def _children_time() -> float:
    """CPU seconds of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare_commands(names: list[str]) -> None:
    """Print the times of the commands."""
    times = f"{'Vela s':>8s} {'npuc s':>8s} {'ratio':>6s}"
    print(f"{'command':28s} | {'wall':24s} | CPU\n{'':28s} | {times} | {times}")
    sums = [0.0, 0.0, 0.0, 0.0]
    for name in names:
        (wall, cpu), (own_wall, own_cpu) = commands(FOLDER / f"{name}.tflite")
        row = [wall, own_wall, cpu, own_cpu]
        sums = [before + now for before, now in zip(sums, row, strict=True)]
        print(_command_row(name, row), flush=True)
    print(_command_row("all", sums))


def _command_row(name: str, row: list[float]) -> str:
    wall, own_wall, cpu, own_cpu = row
    cells = [f"{a:8.2f} {b:8.2f} {b / a:6.2f}" for a, b in ((wall, own_wall), (cpu, own_cpu))]
    return " | ".join([name.ljust(28), *cells])


def integer(path: Path) -> Graph:
    """The network of a file, with the integers that it states."""
    return quantize_network(import_model(path)).graph


def npuc(path: Path, target: Target, local_memory: int | None = None) -> Outcome:
    """npuc's program, within a limit of memory."""
    options = CompileOptions(local_memory=local_memory)
    seconds, done = timed(lambda: compile_program(integer(path), target, options))
    memory = max((part.scheduled.memory for part in done.parts), default=0)
    return Outcome(memory, moved(done.model), seconds, simulate(done.model).total)


def compared(path: Path, sums: list[float]) -> str:
    """Both tools on a model, in words."""
    theirs = vela(path)
    if theirs is None:
        return f"{path.stem:28s} | Vela leaves some of it to the CPU"
    target = load_target(PRESET)
    reasons = partition(integer(path), target).reasons
    ours = npuc(path, target)
    try:
        small = npuc(path, target, theirs.memory)
        short = " SHORT" if small.bytes > theirs.bytes else ""
        fit = f"{small.memory / 1024:8.1f} {small.bytes / 1e3:9.1f} {small.cycles:9d}{short}"
    except NpucError as error:
        fit = f"SHORT: {error}"
    sums[0] += theirs.seconds
    sums[1] += ours.seconds
    words = []
    if ours.bytes > theirs.bytes:
        words.append(f"bytes SHORT{' (compression)' if ours.bytes <= theirs.plain else ''}")
    if ours.memory > theirs.memory:
        words.append("more SRAM")
    if reasons:
        words.append(f"{len(reasons)} layers on the CPU")
    cells = (
        path.stem.ljust(28),
        f"{theirs.memory / 1024:8.1f} {theirs.bytes / 1e3:9.1f} {theirs.plain / 1e3:9.1f} {theirs.seconds:6.2f}",
        f"{ours.memory / 1024:8.1f} {ours.bytes / 1e3:9.1f} {ours.seconds:6.2f} {ours.cycles:9d}",
        fit,
        ", ".join(words) or "ok",
    )
    return " | ".join(cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--commands", action="store_true", help="only the times of the commands")
    options = parser.parse_args()
    if options.commands:
        compare_commands(options.models.split(","))
        return
    sums = [0.0, 0.0]
    vela(FOLDER / "hello_world_int8.tflite")  # so that both tools are loaded
    npuc(FOLDER / "hello_world_int8.tflite", load_target(PRESET))
    print(f"{'':28s} | {'Vela':35s} | {'npuc':35s} | npuc within Vela's SRAM")
    theirs = f"{'SRAM KiB':>8s} {'KB':>9s} {'plain KB':>9s} {'s':>6s}"
    ours = f"{'SRAM KiB':>8s} {'KB':>9s} {'s':>6s} {'cycles':>9s}"
    print(f"{'model':28s} | {theirs} | {ours} | {'SRAM KiB':>8s} {'KB':>9s} {'cycles':>9s}")
    for name in options.models.split(","):
        guarded(f"{name:28s}", lambda n=name: compared(FOLDER / f"{n}.tflite", sums))
    if sums[0]:
        print(f"compile time of all: Vela {sums[0]:.2f} s, npuc {sums[1]:.2f} s, {sums[1] / sums[0]:.2f} x")
    compare_commands(options.models.split(","))


if __name__ == "__main__":
    main()
