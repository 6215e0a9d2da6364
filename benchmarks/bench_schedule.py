"""How close schedules come to what no schedule can beat, and how many bytes they move.

Each network with 8-bit integers is compiled for each reference machine at -O2 and at -O0 and played by the cycle simulator.
`buffered` and `roofline` are lower bounds (DESIGN 6) over the cycles; `bytes` are those on the DRAM channel, `x` is bytes over
the compulsory ones (constants once, as they are in DRAM, inputs, outputs); `array` is the part of the time in which the matrix
engine of a core does work that is needed. What runs on the CPU counts for nothing here; `cpu` is how many layers do. Floors
of the project are marked `ok` or `SHORT`. The second table splits networks over 1, 2 and 4 cores of server-32t, and says how
much faster the roofline allows them to be where that is too little.

    python benchmarks/bench_schedule.py [--models resnet50,...] [--targets edge-4t,...] [--levels 2,0] [--cores 1,2,4]
        [--markdown]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import networks
from gaps import traffic

from npuc.codegen.compile_model import compile_model
from npuc.errors import NpucError
from npuc.ir import Graph
from npuc.partition import partition
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.schedule.bounds import Bounds, bounds
from npuc.schedule.cost import Costs
from npuc.schedule.network import build_network
from npuc.sim import simulate
from npuc.target import Target, load_target

TARGETS = ("edge-1t", "edge-4t", "server-32t")
TABLE = ("resnet50", "yolov5s", "efficientnet_lite0", "mobilenet_v2", "yolox_nano", "vit_s16")
FLOORS: dict[str, dict[str, float]] = {
    "edge-1t": dict.fromkeys(TABLE, 0.88),
    "edge-4t": {"resnet50": 0.85, "yolov5s": 0.85, "mobilenet_v2": 0.75},
    "server-32t": {**dict.fromkeys(TABLE, 0.85), "vit_s16": 0.80},
}
"""Buffered bound over cycles."""
GOAL = 0.95
CLASSIFIERS = (
    "resnet50", "efficientnet_lite0", "vit_s16", "mnist", "cifar10_resnet20", "mobilenet_v2", "squeezenet_v1.1",
    "shufflenet_v2_int8",
)  # fmt: skip
MOST_BYTES: dict[str, dict[str, float]] = {
    "edge-1t": {**dict.fromkeys(TABLE, 1.15), "yolov5s": 1.5},
    "edge-4t": {**dict.fromkeys(CLASSIFIERS, 1.2), "yolov5s": 1.6},
}
"""Bytes over compulsory bytes."""
SPEED_UPS = {2: 1.8, 4: 3.4}
"""How many times as fast as one core, where the roofline allows it."""


@dataclass(frozen=True)
class Limits:
    """What no schedule can beat, summed over the subgraphs of the NPU."""

    matrix: int
    bytes: int
    roofline: int
    buffered: int
    on_cpu: int


@dataclass(frozen=True)
class Result:
    """A network on a machine."""

    cycles: int
    bytes: int
    seconds: float
    """Of compiling."""
    cores: int
    """That the program uses."""


def limits_of(graph: Graph, target: Target) -> Limits:
    """The bounds of a network."""
    parts = partition(graph, target).parts
    limits: list[Bounds] = [
        bounds(build_network(graph, part.ops, part.inputs, part.outputs), target)
        for part in parts
        if part.device == "npu"
    ]
    return Limits(
        sum(bound.matrix for bound in limits),
        sum(bound.bytes for bound in limits),
        sum(bound.roofline for bound in limits),
        sum(bound.buffered for bound in limits),
        sum(len(part.ops) for part in parts if part.device == "cpu"),
    )


def moved(compiled: CompiledModel) -> int:
    """Bytes on the DRAM channel."""
    counted = {key: size for key, size in traffic(compiled).items() if key not in ("shared", "loaded again")}
    return sum(counted.values())


def measure(graph: Graph, target: Target, level: int) -> Result:
    """Compile and play."""
    began = time.perf_counter()
    compiled = compile_model(graph, target, level=level)
    seconds = time.perf_counter() - began
    cores = max(
        (len(part.streams) for part in compiled.subgraphs if isinstance(part, NpuSubgraph)), default=0
    )
    return Result(simulate(compiled).total, moved(compiled), seconds, cores)


def marks(name: str, target: str, limits: Limits, best: Result) -> str:
    """What the floors say of a network on a machine."""
    words = []
    ratio, share = limits.buffered / best.cycles, best.bytes / limits.bytes
    if (floor := FLOORS.get(target, {}).get(name)) is not None:
        words.append(f"bound {'ok' if ratio >= floor else 'SHORT of'} {floor}")
    if (most := MOST_BYTES.get(target, {}).get(name)) is not None:
        words.append(f"bytes {'ok' if share <= most else 'SHORT of'} {most}")
    return ", ".join(words)


def line(name: str, target: Target, levels: Sequence[int], summary: dict[tuple[str, str], str]) -> str:
    """A network on a machine, in words; `summary` gets its cell of the table in docs/scheduling.md."""
    graph = networks.integer(name)
    limits = limits_of(graph, target)
    results = [measure(graph, target, level) for level in levels]
    best = results[0]
    ratio, share = limits.buffered / best.cycles, best.bytes / limits.bytes
    summary[name, target.name] = f"{ratio:.3f}, {share:.2f}"
    cells = [f"{name:24s} {target.name:11s}"]
    for level, result in zip(levels, results, strict=True):
        cells.append(
            f"O{level} {result.cycles:10d} {limits.buffered / result.cycles:6.3f} {limits.roofline / result.cycles:6.3f}"
            f" {result.bytes / 1e6:7.2f} {result.bytes / limits.bytes:5.2f}"
            f" {limits.matrix / result.cycles / target.compute.cores:6.3f} {result.seconds:6.1f}"
        )
    cells.append(f"{limits.on_cpu:3d}")
    words = [marks(name, target.name, limits, best)]
    if any(result.cycles < best.cycles for result in results[1:]):
        words.append("SLOWER at the higher level")
    if best.cores not in (0, target.compute.cores):
        words.append(f"{best.cores} of {target.compute.cores} cores")
    return " | ".join([*cells, ", ".join(word for word in words if word)])


def markdown(summary: dict[tuple[str, str], str]) -> str:
    """The table of docs/scheduling.md: part of the buffered bound, bytes over the compulsory ones."""
    names, targets = (list(dict.fromkeys(key[at] for key in summary)) for at in (0, 1))
    rows = [["", *(f"`{target}`" for target in targets)], ["---"] * (1 + len(targets))]
    rows += [[f"`{name}`", *(summary.get((name, target), "") for target in targets)] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def with_cores(target: Target, cores: int) -> Target:
    """The same machine with another number of cores."""
    described: dict[str, Any] = target.model_dump(mode="json")
    described["compute"]["cores"] = cores
    described["name"] = f"{target.name}-{cores}"
    return Target.from_dict(described, where=target.name)


def core_line(name: str, counts: Sequence[int]) -> str:
    """A network on several cores, in words."""
    graph = networks.integer(name)
    server = load_target("server-32t")
    results = {count: measure(graph, with_cores(server, count), 2) for count in counts}
    cells = [f"{name:24s}"]
    for count, result in results.items():
        words = f"{count} cores {result.cycles:10d}"
        if 1 in results and count > 1:
            words += (
                f" {results[1].cycles / result.cycles:5.2f} x {speed_up(graph, results[1], result, count)}"
            )
        cells.append(words)
    return " | ".join(cells)


def speed_up(graph: Graph, alone: Result, result: Result, cores: int) -> str:
    """Whether several cores are as much faster than one as they should be, and if they cannot be, why."""
    floor = SPEED_UPS.get(cores, 0.0)
    if alone.cycles >= floor * result.cycles:
        return "ok"
    machine = with_cores(load_target("server-32t"), cores)
    limits = limits_of(graph, machine)
    allowed = alone.cycles / limits.roofline
    channel = limits.bytes / float(Costs(machine).bytes_per_cycle)
    why = "bytes on the DRAM channel" if channel > 0.99 * limits.roofline else "engines"
    if allowed < floor:
        return f"the roofline ({why}) allows {allowed:.2f}"
    return f"SHORT of {floor} (the roofline allows {allowed:.2f})"


def guarded(title: str, work: Any) -> None:
    """Print a line, or the error instead of it."""
    try:
        print(work(), flush=True)
    except NpucError as error:
        print(f"{title} | failed: {error}".replace("\n", " "), flush=True)
    except Exception as error:
        print(f"{title} | failed: {type(error).__name__}: {error}".replace("\n", " "), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(networks.NAMES))
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--levels", default="2,0", help="the first is the one that floors and marks are for")
    parser.add_argument("--cores", default="1,2,4", help="nothing: leave out the table of cores")
    parser.add_argument("--markdown", action="store_true", help="also print the table of docs/scheduling.md")
    options = parser.parse_args()
    models = options.models.split(",")
    levels = [int(level) for level in options.levels.split(",")]
    print(f"{os.cpu_count()} CPUs; goal {GOAL} of the buffered bound, 1.05 of the compulsory bytes")
    head = "     cycles buffered roof   MB     x  array compile s"
    print(f"{'network':24s} {'target':11s} | {' | '.join([head] * len(levels))} | cpu | floors")
    summary: dict[tuple[str, str], str] = {}
    for name in models:
        for target in options.targets.split(","):
            guarded(
                f"{name:24s} {target:11s}", lambda n=name, t=target: line(n, load_target(t), levels, summary)
            )
    if options.markdown:
        print(f"\n{markdown(summary)}")
    counts = [int(count) for count in options.cores.split(",") if count]
    if counts and "server-32t" in options.targets:
        print("\ncores of server-32t, -O2")
        for name in models:
            guarded(f"{name:24s}", lambda n=name: core_line(n, counts))


if __name__ == "__main__":
    main()
