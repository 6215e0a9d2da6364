"""Local memory over time: which object is where from when to when, and how full it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.codegen.program import Allocation, NpuSubgraph
from npuc.sim.cycles import SubgraphTimeline

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Box:
    """An object in the local memory of a core, from one cycle to another."""

    name: str
    core: int
    address: int
    size: int
    start: int
    end: int


def boxes(subgraph: NpuSubgraph, played: SubgraphTimeline, begins: int = 0) -> list[Box]:
    """The allocations of a subgraph in cycles: from the issue of the first instruction that may touch one to the end of
    the last."""
    found = []
    for one in subgraph.allocations:
        times = played.cores[one.core]
        if not times.end.size:
            continue
        first, last = (min(max(at, 0), times.end.size - 1) for at in (one.first, one.last))
        start, end = int(times.issue[first]), int(times.end[last])
        found.append(Box(one.name, one.core, one.address, one.size, begins + start, begins + max(start, end)))
    return found


def fill(allocations: tuple[Allocation, ...], core: int, instructions: int) -> Array:
    """Bytes of the local memory of a core that are taken while each instruction of its stream is in turn."""
    change = np.zeros(instructions + 1, np.int64)
    for one in allocations:
        if one.core == core:
            change[min(max(one.first, 0), instructions)] += one.size
            change[min(max(one.last + 1, 0), instructions)] -= one.size
    return np.cumsum(change)[:instructions]
