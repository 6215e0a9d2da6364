"""Cycle mode: the queues of a compiled model played against the rates of its machine (docs/cycles.md)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arithmetic.machine import HasMachine, Machine
from npuc.arrays import Array
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.sim import calls
from npuc.sim.machine import machine_of


@dataclass(frozen=True)
class CoreTimeline:
    """Cycles of the instructions of one stream, counted from the start of its subgraph."""

    issue: Array
    """When each left its queue."""
    start: Array
    """When its work, or the data of a transfer, began."""
    end: Array
    """When it was finished."""


@dataclass(frozen=True)
class SubgraphTimeline:
    """How an NPU subgraph went."""

    name: str
    total: int
    cores: tuple[CoreTimeline, ...]


@dataclass(frozen=True)
class Timeline:
    """How a model went. What runs on the CPU takes no cycles here."""

    total: int
    """Cycles of all NPU subgraphs, one after the other."""
    subgraphs: tuple[SubgraphTimeline, ...]


def simulate(compiled: CompiledModel) -> Timeline:
    """Play a compiled model on its target."""
    machine = compiled.machine
    timelines = tuple(
        simulate_streams(machine, subgraph.streams, subgraph.name, compiled.layers)
        for subgraph in compiled.subgraphs
        if isinstance(subgraph, NpuSubgraph)
    )
    return Timeline(sum(subgraph.total for subgraph in timelines), timelines)


def simulate_streams(
    target: Machine | HasMachine, streams: Sequence[Array], name: str = "program", layers: Sequence[str] = ()
) -> SubgraphTimeline:
    """Play streams, one a core."""
    machine, program, error = (
        machine_of(target),
        calls.Program(streams),
        calls.RawError(core=-1, instruction=-1),
    )
    count = int(program.counts.sum())
    issue, start, end = (np.zeros(count + 1, np.int64) for _ in range(3))
    total = ctypes.c_int64()
    status = calls.function("npuc_sim_cycles")(
        ctypes.addressof(machine), program.address, issue.ctypes.data, start.ctypes.data, end.ctypes.data,
        ctypes.addressof(total), ctypes.addressof(error),
    )  # fmt: skip
    calls.check(status, error, program.streams, layers, name)
    ends = np.cumsum(program.counts)
    cores = tuple(
        CoreTimeline(*(times[last - size : last] for times in (issue, start, end)))
        for size, last in zip(program.counts, ends, strict=True)
    )
    return SubgraphTimeline(name, total.value, cores)


def costs(target: Machine | HasMachine, stream: Array) -> Array:
    """Cycles of each instruction on its own: of an engine with its start, of a transfer the data without latency."""
    machine, program, error = (
        machine_of(target),
        calls.Program([stream]),
        calls.RawError(core=-1, instruction=-1),
    )
    cycles = np.zeros(int(program.counts[0]) + 1, np.int64)
    status = calls.function("npuc_sim_cost")(
        ctypes.addressof(machine), program.streams[0].ctypes.data, program.counts[0], cycles.ctypes.data,
        ctypes.addressof(error),
    )  # fmt: skip
    calls.check(status, error, program.streams, (), "program")
    return cycles[:-1]
