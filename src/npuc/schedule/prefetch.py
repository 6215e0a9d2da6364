"""When loads are issued, and where everything lies in local memory.

What steps make (results, scratch) comes first: its lifetimes are given, and the memory planner packs it. Then the loads, in
the order in which they are needed: each is issued as early as there is room for it beside everything that has a place
already, not before the load before it, and lies as high in memory as it can. So the DMA runs ahead as far as local memory
can hold, and what it brings never takes the place of what the steps need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.errors import MemoryPlanError
from npuc.schedule.layers import BLOCK, aligned
from npuc.schedule.memory import Buffer as Rectangle
from npuc.schedule.memory import plan
from npuc.schedule.steps import Buffer, Fence, Load, Work

Array = np.ndarray[Any, Any]


class DoesNotPack(Exception):
    """The objects that are needed at once do not fit local memory."""


def place_tightly(work: Work, capacity: int) -> dict[Buffer, int]:
    """Like `place` with every load when it is needed, and everything packed at once: what takes the least memory."""
    starts: dict[Buffer, int] = {}
    previous = 0
    for load in work.loads:
        if isinstance(load, Fence):
            previous = load.issue
            continue
        load.issue = previous = max(previous, load.ready, load.need)
        starts.setdefault(load.buffer, previous)
    return _packed([buffer for buffer in work.buffers if buffer.last >= 0], starts, capacity)


def _packed(buffers: Sequence[Buffer], starts: Mapping[Buffer, int], capacity: int) -> dict[Buffer, int]:
    """Addresses of buffers whose lifetimes are known; those in `starts` are there earlier than they are touched."""
    if not buffers:
        return {}
    rectangles = [
        Rectangle(str(number), aligned(buffer.size), starts.get(buffer, buffer.first), buffer.last + 1, BLOCK)
        for number, buffer in enumerate(buffers)
    ]
    try:
        found = plan(rectangles, capacity)
    except MemoryPlanError as error:
        raise DoesNotPack from error
    return {buffer: found.addresses[str(number)] for number, buffer in enumerate(buffers)}


def place(work: Work, capacity: int) -> dict[Buffer, int]:
    """An issue for every load, and an address for every buffer."""
    loaded = {load.buffer for load in work.loads if isinstance(load, Load)}
    made = [buffer for buffer in work.buffers if buffer.last >= 0 and buffer not in loaded]
    addresses = _packed(made, {}, capacity)
    room = _Room(len(work.buffers), capacity)
    for buffer in made:
        room.take(buffer.first, buffer.last + 1, addresses[buffer], aligned(buffer.size))
    previous = 0
    starts: dict[Buffer, int] = {}
    for load in work.loads:
        if isinstance(load, Fence):
            previous = load.issue
            continue
        buffer = load.buffer
        if buffer.last < 0:
            load.issue = previous
            continue
        if buffer not in starts:
            low = max(previous, load.ready)
            start, address = room.earliest(low, max(load.need, low), buffer.last + 1, aligned(buffer.size))
            starts[buffer] = start
            addresses[buffer] = address
            room.take(start, buffer.last + 1, address, aligned(buffer.size))
        load.issue = previous = max(previous, load.ready, starts[buffer])
    return addresses


class _Room:
    """Rectangles of time and address that are taken."""

    def __init__(self, count: int, capacity: int) -> None:
        self.capacity, self.count = capacity, 0
        self.starts, self.ends, self.low, self.high = (np.zeros(count, np.int64) for _ in range(4))

    def take(self, start: int, end: int, address: int, size: int) -> None:
        """Put a rectangle there."""
        i = self.count
        self.starts[i], self.ends[i], self.low[i], self.high[i] = start, end, address, address + size
        self.count += 1

    def earliest(self, low: int, high: int, end: int, size: int) -> tuple[int, int]:
        """The earliest start from `low` to `high` at which there is room until `end`, and the highest address."""
        best = self._highest(high, end, size)
        if best is None:
            raise DoesNotPack
        start = high
        while low < start:  # the later the start, the fewer are in the way
            middle = (low + start) // 2
            address = self._highest(middle, end, size)
            if address is None:
                low = middle + 1
            else:
                start, best = middle, address
        return start, best

    def _highest(self, start: int, end: int, size: int) -> int | None:
        n = self.count
        hit = np.flatnonzero((self.starts[:n] < end) & (self.ends[:n] > start))
        if not hit.size:
            return (self.capacity - size) // BLOCK * BLOCK if size <= self.capacity else None
        order = hit[np.argsort(-self.high[hit], kind="stable")]
        top = self.capacity
        floors = np.minimum.accumulate(self.low[order])
        # The gap above each rectangle: from its top to the lowest floor of those that end higher.
        ceilings = np.concatenate([[top], floors[:-1]])
        gaps = np.flatnonzero(ceilings - self.high[order] >= size)
        if gaps.size:
            return int(ceilings[gaps[0]] - size) // BLOCK * BLOCK
        return int(floors[-1] - size) // BLOCK * BLOCK if floors[-1] >= size else None
