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
from npuc.schedule.memory.planner import STEPS
from npuc.schedule.steps import Buffer, Fence, Load, Work

Array = np.ndarray[Any, Any]
_FEW = 300_000
"""Steps of the memory planner, about ten milliseconds, where there are other ways."""


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


def place_just_in_time(work: Work, capacity: int, issues: Sequence[int]) -> dict[Buffer, int]:
    """Like `place_tightly` with every load issued as `issues` says; what does not pack soon does not pack."""
    starts: dict[Buffer, int] = {}
    previous = 0
    for load, issue in zip(work.loads, issues, strict=True):
        if isinstance(load, Fence):
            previous = load.issue
            continue
        load.issue = previous = max(previous, load.ready, issue)
        starts.setdefault(load.buffer, previous)
    return _packed([buffer for buffer in work.buffers if buffer.last >= 0], starts, capacity, _FEW)


def _packed(
    buffers: Sequence[Buffer], starts: Mapping[Buffer, int], capacity: int, steps: int = STEPS
) -> dict[Buffer, int]:
    """Addresses of buffers whose lifetimes are known; those in `starts` are there earlier than they are touched."""
    if not buffers:
        return {}
    rectangles = [
        Rectangle(str(number), aligned(buffer.size), starts.get(buffer, buffer.first), buffer.last + 1, BLOCK)
        for number, buffer in enumerate(buffers)
    ]
    try:
        found = plan(rectangles, capacity, steps=steps)
    except MemoryPlanError as error:
        raise DoesNotPack from error
    return {buffer: found.addresses[str(number)] for number, buffer in enumerate(buffers)}


def place(work: Work, capacity: int, issues: Sequence[int] | None = None, bank: int = 0) -> dict[Buffer, int]:
    """An issue for every load, not before the one in `issues`, and an address for every buffer.

    With `bank`, the bytes of a bank, loads keep out of the banks that are at work when they come, where they can.
    """
    loaded = {load.buffer for load in work.loads if isinstance(load, Load)}
    made = [buffer for buffer in work.buffers if buffer.last >= 0 and buffer not in loaded]
    addresses = _packed(made, {}, capacity)
    room = _Room(len(work.buffers), capacity)
    for buffer in made:
        room.take(buffer.first, buffer.last + 1, addresses[buffer], aligned(buffer.size), buffer.first)
    previous = 0
    starts: dict[Buffer, int] = {}
    for number, load in enumerate(work.loads):
        if isinstance(load, Fence):
            previous = load.issue
            continue
        buffer = load.buffer
        if buffer.last < 0:
            load.issue = previous
            continue
        if buffer not in starts:
            low = max(previous, load.ready, issues[number] if issues is not None else 0)
            end, size = buffer.last + 1, aligned(buffer.size)
            start, address = room.earliest(low, max(load.need, low), end, size)
            if bank:
                address = room.apart(start, max(load.need, low), end, size, bank, address)
            starts[buffer] = start
            addresses[buffer] = address
            room.take(start, end, address, size, buffer.first)
        load.issue = previous = max(previous, load.ready, starts[buffer])
    return addresses


class _Room:
    """Rectangles of time and address that are taken."""

    def __init__(self, count: int, capacity: int) -> None:
        self.capacity, self.count = capacity, 0
        self.starts, self.ends, self.low, self.high, self.first = (
            np.zeros(count, np.int64) for _ in range(5)
        )

    def take(self, start: int, end: int, address: int, size: int, first: int) -> None:
        """Put a rectangle there, which steps touch from `first` on."""
        i = self.count
        self.starts[i], self.ends[i], self.low[i], self.high[i] = start, end, address, address + size
        self.first[i] = first
        self.count += 1

    def apart(self, start: int, need: int, end: int, size: int, bank: int, otherwise: int) -> int:
        """The highest address at which there is room in banks that no step touches from `start` to `need`."""
        n = self.count
        busy = np.zeros(-(-self.capacity // bank) + 1, bool)
        for i in np.flatnonzero((self.first[:n] < need) & (self.ends[:n] > start)):
            busy[self.low[i] // bank : (self.high[i] - 1) // bank + 1] = True
        hit = np.flatnonzero((self.starts[:n] < end) & (self.ends[:n] > start))
        order = hit[np.argsort(-self.high[hit], kind="stable")]
        floors = np.minimum.accumulate(np.concatenate([[self.capacity], self.low[order]]))
        tops = np.concatenate([self.high[order], [0]])
        for ceiling, floor in zip(floors.tolist(), tops.tolist(), strict=True):
            # The top of the gap, and the ends of the banks in it.
            for high in (ceiling, *range(ceiling // bank * bank, floor, -bank)):
                address = int(high - size) // BLOCK * BLOCK
                if address < floor:
                    break
                if not busy[address // bank : (address + size - 1) // bank + 1].any():
                    return address
        return otherwise

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
