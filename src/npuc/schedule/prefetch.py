"""When loads are issued, and where everything lies in local memory.

What steps make (results, scratch) comes first: its lifetimes are given, and the memory planner packs it. Then the loads, in
the order in which they are needed: each is issued as early as there is room for it beside everything that has a place
already, not before the load before it, and lies as high in memory as it can. So the DMA runs ahead as far as local memory
can hold, and what it brings never takes the place of what the steps need.

Example: ten blocks of memory; step 0 makes R0 (3 blocks) of W0 (2), step 1 makes R1 (3) of R0 and W1 (2), step 2 works on R1 and
W2 (2). The results come first: R0 lies in blocks 0 to 2 during steps 0 and 1, R1 in 3 to 5 during steps 1 and 2.

    W0    needed by step 0    issued before step 0    blocks 8, 9    as high as there is room
    W1    needed by step 1    issued before step 0    blocks 6, 7    beside W0, a step ahead
    W2    needed by step 2    issued before step 1    blocks 8, 9    before step 0, W0 and W1 are in the way until its end

So weights come a step ahead of their use, and two places are used in turn: double buffering is what the rule leads to where
memory has room for two, and more than that where it has more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.errors import MemoryPlanError
from npuc.schedule.memory import Buffer as Rectangle
from npuc.schedule.memory import plan
from npuc.schedule.memory.planner import STEPS
from npuc.schedule.steps import Buffer, Fence, Load, Work

_FEW = 300_000
"""Steps of the memory planner, about ten milliseconds, where there are other ways."""


class DoesNotPack(Exception):
    """The objects that are needed at once do not fit local memory."""

    def __init__(self, layer: int) -> None:
        super().__init__("the objects that are needed at once do not fit local memory")
        self.layer = layer
        """A layer that has no room: of the step that what found none is needed for, or that has the most to hold."""


def place_tightly(work: Work, capacity: int) -> dict[Buffer, int]:
    """Like `place` with every load when it is needed, and everything packed at once: what takes the least memory."""
    starts = _issued(work, [0] * len(work.loads), lambda load, _: max(load.ready, load.need))
    return _packed(work, [buffer for buffer in work.buffers if buffer.last >= 0], starts, capacity)


def place_just_in_time(work: Work, capacity: int, issues: Sequence[int]) -> dict[Buffer, int]:
    """Like `place_tightly` with every load issued as `issues` says; what does not pack soon does not pack."""
    starts = _issued(work, issues, lambda load, issue: max(load.ready, issue))
    return _packed(work, [buffer for buffer in work.buffers if buffer.last >= 0], starts, capacity, _FEW)


def _issued(work: Work, issues: Sequence[int], earliest: Callable[[Load, int], int]) -> dict[Buffer, int]:
    """Issue every load as `earliest` says, in order; for each buffer, when the first load of it is issued."""
    starts: dict[Buffer, int] = {}
    previous = [0, 0]  # of tensors, which wait for barriers, and of constants, which may not
    for load, issue in zip(work.loads, issues, strict=True):
        if isinstance(load, Fence):
            previous[0] = load.issue
            continue
        kind = work.runs_ahead and load.is_constant
        load.issue = previous[kind] = max(previous[kind], earliest(load, issue))
        starts.setdefault(load.buffer, load.issue)
    return starts


def _packed(
    work: Work, buffers: Sequence[Buffer], starts: Mapping[Buffer, int], capacity: int, steps: int = STEPS
) -> dict[Buffer, int]:
    """Addresses of buffers whose lifetimes are known; those in `starts` are there earlier than they are touched."""
    if not buffers:
        return {}
    rectangles = [
        Rectangle(
            str(number),
            work.room_for(buffer),
            min(starts.get(buffer, buffer.first), buffer.first),
            buffer.last + 1,
            work.alignment,
        )
        for number, buffer in enumerate(buffers)
    ]
    try:
        memory_plan = plan(rectangles, capacity, steps=steps)
    except MemoryPlanError as error:
        fullest = int(np.argmax(_in_use(rectangles, len(work.steps))))
        raise DoesNotPack(work.steps[fullest].layer) from error
    return {buffer: memory_plan.addresses[str(number)] for number, buffer in enumerate(buffers)}


def _in_use(rectangles: Sequence[Rectangle], steps: int) -> Array:
    """Bytes that objects take at each step."""
    change = np.zeros(steps + 1, np.int64)
    for rectangle in rectangles:
        change[rectangle.start] += rectangle.size
        change[min(rectangle.end, steps)] -= rectangle.size
    return np.cumsum(change)[:steps]


def place(work: Work, capacity: int, issues: Sequence[int] | None = None, bank: int = 0) -> dict[Buffer, int]:
    """An issue for every load, not before the one in `issues`, and an address for every buffer.

    With `bank`, the bytes of a bank, loads keep out of the banks that are at work when they come, where they can.
    """
    loaded = {load.buffer for load in work.loads if isinstance(load, Load) and not load.buffer.is_made}
    computed = [buffer for buffer in work.buffers if buffer.last >= 0 and buffer not in loaded]
    if capacity not in work.made_at:
        work.made_at[capacity] = _packed(work, computed, {}, capacity)
    addresses = dict(work.made_at[capacity])
    room = _Room(len(work.buffers), capacity, work.alignment)
    for buffer in computed:
        room.take(buffer.first, buffer.last + 1, addresses[buffer], work.room_for(buffer), buffer.first)
    previous = [0, 0]  # of tensors, which wait for barriers, and of constants, which may not
    starts: dict[Buffer, int] = {}
    for number, load in enumerate(work.loads):
        if isinstance(load, Fence):
            previous[0] = load.issue
            continue
        kind = work.runs_ahead and load.is_constant
        buffer = load.buffer
        if buffer.last < 0:
            load.issue = previous[kind]
            continue
        if buffer.is_made:  # there is room for it from the step on that writes to it first
            starts[buffer] = max(buffer.first, issues[number] if issues is not None else 0)
        elif buffer not in starts:
            low = max(previous[kind], load.ready, issues[number] if issues is not None else 0)
            end, size = buffer.last + 1, work.room_for(buffer)
            gap = room.earliest(low, max(load.need, low), end, size)
            if gap is None:
                raise DoesNotPack(load.layer)
            start, address = gap
            if bank:
                address = room.apart(start, max(load.need, low), end, size, bank, address)
            starts[buffer] = start
            addresses[buffer] = address
            room.take(start, end, address, size, buffer.first)
        load.issue = previous[kind] = max(previous[kind], load.ready, starts[buffer])
    return addresses


class _Room:
    """Rectangles of time and address that are taken."""

    def __init__(self, count: int, capacity: int, alignment: int) -> None:
        self.capacity, self.alignment, self.count = capacity, alignment, 0
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
        near = (self.first[:n] < need) & (self.ends[:n] > start)
        # One more from the first bank of each on, one fewer behind its last.
        change = np.zeros(ceil_div(self.capacity, bank) + 2, np.int64)
        np.add.at(change, self.low[:n][near] // bank, 1)
        np.add.at(change, (self.high[:n][near] - 1) // bank + 1, -1)
        busy = np.cumsum(change) > 0
        hit = np.flatnonzero((self.starts[:n] < end) & (self.ends[:n] > start))
        order = hit[np.argsort(-self.high[hit], kind="stable")]
        ceilings = np.minimum.accumulate(np.concatenate([[self.capacity], self.low[order]]))
        floors = np.concatenate([self.high[order], [0]])
        wide = ceilings - floors >= size
        for ceiling, floor in zip(ceilings[wide].tolist(), floors[wide].tolist(), strict=True):
            # The top of the gap, and the ends of the banks in it.
            for high in (ceiling, *range(ceiling // bank * bank, floor, -bank)):
                address = int(high - size) // self.alignment * self.alignment
                if address < floor:
                    break
                if not busy[address // bank : (address + size - 1) // bank + 1].any():
                    return address
        return otherwise

    def earliest(self, low: int, high: int, end: int, size: int) -> tuple[int, int] | None:
        """The earliest start from `low` to `high` at which there is room until `end`, and the highest address; None if there
        is no room."""
        n = self.count
        hit = ((self.starts[:n] < end) & (self.ends[:n] > low)).nonzero()[0]
        order = hit[(-self.high[hit]).argsort(kind="stable")]
        gaps = _Gaps(self.capacity, self.alignment, size, self.ends[order], self.low[order], self.high[order])
        # The later the start, the fewer are in the way.
        best = gaps.highest(low)
        if best is not None:
            return low, best
        start, best = high, gaps.highest(high)
        if best is None:
            return None
        low += 1
        while low < start:
            middle = (low + start) // 2
            address = gaps.highest(middle)
            if address is None:
                low = middle + 1
            else:
                start, best = middle, address
        return start, best


class _Gaps(NamedTuple):
    """The rectangles that may be in the way of one of `size` bytes, from the one that ends highest to the lowest."""

    capacity: int
    alignment: int
    size: int
    ends: Array
    low: Array
    high: Array

    def highest(self, start: int) -> int | None:
        """The highest address that is free from `start` on."""
        here = self.ends > start
        floors = np.minimum.accumulate(self.low[here])
        # The gap above each rectangle: from its top to the lowest floor of those that end higher. The last is below all.
        ceilings = np.empty(floors.size + 1, np.int64)
        ceilings[0], ceilings[1:] = self.capacity, floors
        room = ceilings.copy()
        room[:-1] -= self.high[here]
        fits = room >= self.size
        at = int(fits.argmax())
        return int(ceilings[at] - self.size) // self.alignment * self.alignment if fits[at] else None
