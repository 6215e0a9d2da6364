"""Deadlines of loads: the latest step at which each may be issued. Data that comes just in time takes the least local memory.

The timeline of a program tells when every transfer moved its data and when every step began. From the last load to the first,
each is put off until its data would arrive as the step that needs it begins, but before the data of the load behind it, and
in the time that stores leave the DRAM channel. A program whose loads are issued then is as fast, in less memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from npuc.arrays import Array
from npuc.schedule.steps import Buffer, Fence, Load, Store, Work


@dataclass(frozen=True)
class Times:
    """Cycles of a core's work, as the simulator has them."""

    steps: Array
    """Begin and end of each step, (steps, 2)."""
    loads: Array
    """Begin and end of the data of each load, (loads, 2); what lies at a fence, or at what nothing reads, does not matter."""
    costs: Array
    """Cycles of each load on its own."""
    latency: int
    """Cycles from the issue of a load to its data."""
    queue: Array | None = None
    """The loads in the order in which they were issued; None: that of the work."""


def latest_issues(work: Work, times: Times, margin: int) -> list[int]:
    """For each load the last step before which it may be issued, so that it comes `margin` cycles before it is needed.

    Delays add up where loads wait for memory that the steps before free, so a margin is what keeps a program as fast.
    """
    stores = [
        tuple(map(int, times.steps[at])) for at, step in enumerate(work.steps) if isinstance(step, Store)
    ]
    finished = np.maximum.accumulate(times.steps[:, 1])
    queue = np.arange(len(work.loads)) if times.queue is None else times.queue
    ended = np.maximum.accumulate(np.append(0, times.loads[queue, 1]))
    issues = [0] * len(work.loads)
    free = inf
    for place in range(len(queue) - 1, -1, -1):
        number = int(queue[place])
        load = work.loads[number]
        if isinstance(load, Fence) or load.buffer.last < 0:
            continue
        begin, end = map(int, times.loads[number])
        needed = int(times.steps[min(load.need, len(work.steps) - 1), 0])
        by = min(max(needed - margin, end), free)
        # Data that is decoded may have waited for the decoder, which is no time of its own.
        free = _before(by, end - max(begin, int(ended[place])), stores)
        issue_cycle = min(free, by - int(times.costs[number])) - times.latency
        # The memory is free when all steps before the issue have finished.
        latest = int(np.searchsorted(finished, issue_cycle, side="right"))
        issues[number] = min(max(latest, load.ready), load.need)
    return issues


def _before(end: float, cycles: int, stores: list[tuple[int, ...]]) -> float:
    """When a transfer has to begin to end in time, with a channel that stores take first."""
    begin = end - cycles
    while stores and stores[-1][0] >= end:
        stores.pop()
    for low, high in reversed(stores):
        if high <= begin:
            break
        begin -= min(high, end) - low
    return begin


def needed_memory(work: Work, issues: list[int]) -> int:
    """The most bytes that are in use at a time if loads are issued then: no plan takes less."""
    starts: dict[Buffer, int] = {}
    for load, issue in zip(work.loads, issues, strict=True):
        if isinstance(load, Load):
            starts.setdefault(load.buffer, issue)
    change = np.zeros(len(work.steps) + 2, np.int64)
    for buffer in work.buffers:
        if buffer.last >= 0:
            size = work.room_for(buffer)
            change[min(starts.get(buffer, buffer.first), buffer.first)] += size
            change[buffer.last + 1] -= size
    return int(np.cumsum(change).max(initial=0))
