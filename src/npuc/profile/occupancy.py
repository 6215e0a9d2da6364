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
    found = []
    for one in subgraph.allocations:
        times = subgraph_timeline.cores[one.core]
        if not times.end.size:
            continue
        first, last = (min(max(at, 0), times.end.size - 1) for at in (one.first, one.last))
        start, end = int(times.issue[first]), int(times.end[last])
        found.append(Box(one.name, one.core, one.address, one.size, begins + start, begins + max(start, end)))
    return found


def local_peak(compiled: CompiledModel) -> int:
    """The most bytes of the local memory of a core that objects take at once. They may lie apart: what lies highest, says
    where they are, not how much they need."""
    return max(
        (
            int(fill(one.allocations, core, len(heads(stream))).max(initial=0))
            for one in compiled.subgraphs
            if isinstance(one, NpuSubgraph)
            for core, stream in enumerate(one.streams)
        ),
        default=0,
    )


def local_reach(compiled: CompiledModel) -> int:
    """The byte behind the highest one of a core's local memory that an object lies in."""
    found = (one for part in compiled.subgraphs if isinstance(part, NpuSubgraph) for one in part.allocations)
    return max((one.address + one.size for one in found), default=0)


def fill(allocations: tuple[Allocation, ...], core: int, instructions: int) -> Array:
    """Bytes of the local memory of a core that are taken while each instruction of its stream is in turn."""
    change = np.zeros(instructions + 1, np.int64)
    for one in allocations:
        if one.core == core:
            change[min(max(one.first, 0), instructions)] += one.size
            change[min(max(one.last + 1, 0), instructions)] -= one.size
    return np.cumsum(change)[:instructions]
