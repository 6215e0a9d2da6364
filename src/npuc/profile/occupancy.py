"""Local memory over time: which object is where from when to when, and how full it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.profile.work import heads
from npuc.program.model import Allocation, CompiledModel, NpuSubgraph
from npuc.sim.cycles import SubgraphTimeline


@dataclass(frozen=True)
class Box:
    """An object in the local memory of a core, from one cycle to another."""

    name: str
    core: int
    address: int
    size: int
    start: int
    end: int


def boxes(subgraph: NpuSubgraph, subgraph_timeline: SubgraphTimeline, begins: int = 0) -> list[Box]:
    """The allocations of a subgraph in cycles: from the issue of the first instruction that may touch one to the end of
    the last."""
    rectangles = []
    for allocation in subgraph.allocations:
        times = subgraph_timeline.cores[allocation.core]
        if not times.end.size:
            continue
        first, last = (min(max(at, 0), times.end.size - 1) for at in (allocation.first, allocation.last))
        start, end = int(times.issue[first]), int(times.end[last])
        rectangles.append(
            Box(
                allocation.name,
                allocation.core,
                allocation.address,
                allocation.size,
                begins + start,
                begins + max(start, end),
            )
        )
    return rectangles


def local_peak(compiled: CompiledModel) -> int:
    """The most bytes of the local memory of a core that objects take at once. They may lie apart: what lies highest, says
    where they are, not how much they need."""
    return max(
        (
            int(fill(subgraph.allocations, core, len(heads(stream))).max(initial=0))
            for subgraph in compiled.subgraphs
            if isinstance(subgraph, NpuSubgraph)
            for core, stream in enumerate(subgraph.streams)
        ),
        default=0,
    )


def local_reach(compiled: CompiledModel) -> int:
    """The byte behind the highest one of a core's local memory that an object lies in."""
    allocations = (
        allocation
        for part in compiled.subgraphs
        if isinstance(part, NpuSubgraph)
        for allocation in part.allocations
    )
    return max((allocation.address + allocation.size for allocation in allocations), default=0)


def fill(allocations: tuple[Allocation, ...], core: int, instructions: int) -> Array:
    """Bytes of the local memory of a core that are taken while each instruction of its stream is in turn."""
    change = np.zeros(instructions + 1, np.int64)
    for allocation in allocations:
        if allocation.core == core:
            change[min(max(allocation.first, 0), instructions)] += allocation.size
            change[min(max(allocation.last + 1, 0), instructions)] -= allocation.size
    return np.cumsum(change)[:instructions]
