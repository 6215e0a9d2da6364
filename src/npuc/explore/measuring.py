"""One network compiled for one machine: what a worker does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import ClassVar

from npuc import __version__
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.errors import CompileError, MemoryPlanError, UsageError
from npuc.explore.networks import PreparedNetwork
from npuc.explore.space import Space
from npuc.ir import Graph, load_graph
from npuc.partition.work import LAUNCH, host_seconds
from npuc.profile.work import moved
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.sim import simulate

Task = tuple[int, int, int]
"""A machine, a network, a level of optimization."""


@dataclass(frozen=True)
class Measured:
    """A network on a machine."""

    seconds: float
    """Of a run, with its CPU parts."""
    cycles: int
    """Of the NPU."""
    bytes: int
    """On the DRAM channel."""
    memory: int
    """Bytes of local memory in use."""
    on_cpu: int
    """Layers that run on the CPU."""

    def text(self) -> str:
        """As a line of a journal."""
        return json.dumps(vars(self), sort_keys=True)

    @staticmethod
    def of(line: str) -> Measured | str:
        """From a line of a journal; the reason, if the network cannot be compiled for the machine."""
        data = json.loads(line)
        return str(data["failed"]) if "failed" in data else Measured(**data)


@dataclass(frozen=True)
class ExplorePlan:
    """An exploration, but for what is compiled."""

    networks: tuple[PreparedNetwork, ...]
    space: Space
    key: str
    version: str = __version__

    fix: ClassVar[str] = (
        "Is there enough memory for so many workers? --workers 1 shows what happens in this process. (A program that starts "
        "workers needs `if __name__ == '__main__':`)"
    )

    def open(self) -> Callable[[Task], str]:
        """What compiles in this process."""
        if self.version != __version__:
            raise UsageError(
                f"a worker has npuc {__version__}, and the exploration was started by {self.version}",
                fix="Install the same version everywhere",
            )
        graph_of, lock = cache(load_graph), Lock()

        def run(task: Task) -> str:
            machine, network, level = task
            # A cluster's worker may have several threads, and they share the graphs.
            with lock:
                return measure(graph_of(self.file(machine, network)), self.space, machine, level)

        return run

    def file(self, machine: int, network: int) -> Path:
        """The integer network that a machine runs."""
        return self.networks[network].files[self.space.bits(machine)]

    def describe(self, task: Task) -> str:
        """A task in words."""
        return f"machine {self.space.name(task[0])} with {self.networks[task[1]].name}"


def measure(graph: Graph, space: Space, machine: int, level: int) -> str:
    """Compile a network for a machine and play it, as a line of a journal."""
    target = space.target(machine)
    try:
        compilation = compile_program(graph, target, CompileOptions(level=level))
    except (CompileError, MemoryPlanError) as error:
        return json.dumps({"failed": error.message})
    parts = compilation.partition.parts
    on_cpu = [op for part in parts if part.device == "cpu" for op in part.ops]
    host = sum(map(host_seconds, on_cpu))
    waits = 2 * LAUNCH * max(0, sum(part.device == "npu" for part in parts) - 1)
    cycles = simulate(compilation.model).total
    return Measured(
        seconds=cycles / float(target.compute.clock) + host + waits,
        cycles=cycles,
        bytes=dram_bytes(compilation.model),
        memory=max((part.schedule.memory for part in compilation.parts), default=0),
        on_cpu=len(on_cpu),
    ).text()


def dram_bytes(model: CompiledModel) -> int:
    """Bytes on the DRAM channel in a run."""
    total = 0
    for subgraph in model.subgraphs:
        for core, stream in enumerate(subgraph.streams if isinstance(subgraph, NpuSubgraph) else ()):
            totals = moved(stream, core, len(model.layers))
            total += sum(int(totals[name].sum()) for name in ("weights_in", "features_in", "features_out"))
    return total
