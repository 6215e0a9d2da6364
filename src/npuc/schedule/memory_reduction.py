"""Memory reduction: the same program, as fast or faster, in less local memory.

The first schedule issues each load as early as memory has room for it, which takes all the memory there is. The cycle simulator
then tells how late each load may be issued (`npuc.schedule.load_deadlines`). With these shorter lifetimes, a few prefetch
policies are tried: first with all memory, to find the fastest program, then with less, in ascending order, until one is about
as fast. The policy that was taken is a decision of the schedule like the others: a schedule file can state it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.errors import CompileError
from npuc.schedule.assemble import Spans
from npuc.schedule.cost import Costs
from npuc.schedule.decisions import Placing, PrefetchPolicy
from npuc.schedule.load_deadlines import Times, latest_issues, needed_memory
from npuc.schedule.prefetch import DoesNotPack, place, place_just_in_time
from npuc.schedule.scheduled import Scheduled
from npuc.target import Target

if TYPE_CHECKING:
    from npuc.sim.cycles import CoreTimeline, SubgraphTimeline

CostFunction = Callable[[Sequence[Array]], "SubgraphTimeline"]
"""From the instruction streams of a subgraph to its timeline, whose cycles are the cost."""

PRICE = 0.03
"""The part of its cycles that a program may lose if it saved all memory; for a part of the memory, that part of it."""
_IN_ALL: tuple[tuple[Placing, float], ...] = (("apart", 0.03), ("around", 0.03))
"""How objects are placed, and how much earlier loads come than they have to, as a part of the cycles of the program."""
_IN_LESS: tuple[tuple[Placing, float, float], ...] = (
    ("packed", 0.001, 1.0),
    ("apart", 0.03, 1.0),
    ("around", 0.03, 1.03),
    ("apart", 0.03, 1.3),
    ("apart", 0.1, 1.6),
    ("apart", 0.03, 2.5),
    ("apart", 0.03, 5.0),
)
"""The same, and the memory as a multiple of what is in use at a time at most."""
_GAIN = 0.98
"""The part of the memory of a program that the next one has to be below to be worth a try."""


def reduce_memory(
    done: Scheduled, target: Target, cost_function: CostFunction, timeline: SubgraphTimeline, limit: float
) -> tuple[int, Scheduled]:
    """The fastest program in the least memory that takes no more than `limit` cycles; and its cycles."""
    timing = _Timing(done, target, timeline)
    best = timeline.total, done
    for policy in timing.in_all():
        trial = timing.tried(policy, cost_function)
        if trial is not None and trial[0] < best[0]:
            best = trial
    price = (
        0.0 if done.schedule_decisions.local_memory else PRICE
    )  # who sets a limit has said what memory is worth
    for policy in timing.in_less(best[1].memory):
        trial = timing.tried(policy, cost_function)
        saved = 1 - policy.memory / best[1].memory
        if trial is not None and trial[0] <= min(limit, best[0] * (1 + price * saved)):
            return trial
    return best


def repeated(
    done: Scheduled, policy: PrefetchPolicy, target: Target, cost_function: CostFunction
) -> Scheduled:
    """What `reduce_memory` once found for the same schedule."""
    try:
        return _Timing(done, target, cost_function(done.streams)).write(policy)
    except DoesNotPack as error:
        raise CompileError(
            f"with loads just in time, the objects do not fit into {policy.memory} bytes of local memory",
            fix="Leave `policy` out of the schedule",
        ) from error


class _Timing:
    """A program with its timeline."""

    def __init__(self, done: Scheduled, target: Target, timeline: SubgraphTimeline) -> None:
        self.done, self.cycles = done, timeline.total
        self.bank = ceil_div(int(target.memory.local.size), target.memory.local.banks)
        cores = zip(done.spans, done.streams, timeline.cores, strict=True)
        self.times = [_times(*core, target) for core in cores]
        self._issues: dict[float, list[list[int]]] = {}

    def issues(self, margin: float) -> list[list[int]]:
        """For each core and load, before which step it is issued at the latest."""
        if margin not in self._issues:
            cycles = int(margin * self.cycles)
            pairs = zip(self.done.works, self.times, strict=True)
            self._issues[margin] = [latest_issues(work, times, cycles) for work, times in pairs]
        return self._issues[margin]

    def in_all(self) -> Iterator[PrefetchPolicy]:
        """The prefetch policies with all memory."""
        memory = self.done.schedule_decisions.local_memory or self.done.unplaced.local
        for placing, margin in _IN_ALL:
            yield PrefetchPolicy(memory, margin, placing)

    def in_less(self, memory: int) -> list[PrefetchPolicy]:
        """Those with less than that, the least first."""
        policies = []
        alignment = self.done.works[0].alignment
        for placing, margin, factor in _IN_LESS:
            pairs = zip(self.done.works, self.issues(margin), strict=True)
            need = max(needed_memory(work, issues) for work, issues in pairs)
            size = int(need * factor) // alignment * alignment
            if size <= memory * _GAIN:
                policies.append(PrefetchPolicy(size, margin, placing))
        return sorted(policies, key=lambda policy: policy.memory)

    def tried(self, policy: PrefetchPolicy, cost_function: CostFunction) -> tuple[int, Scheduled] | None:
        """The cycles of the program under a policy and the program, if its objects fit."""
        try:
            program = self.write(policy)
        except DoesNotPack:
            return None
        return cost_function(program.streams).total, program

    def write(self, policy: PrefetchPolicy) -> Scheduled:
        """The program with loads just in time."""
        pairs = zip(self.done.works, self.issues(policy.margin), strict=True)
        if policy.placing == "packed":
            addresses = [place_just_in_time(work, policy.memory, issues) for work, issues in pairs]
        else:
            bank = self.bank if policy.placing == "apart" else 0
            addresses = [place(work, policy.memory, issues, bank) for work, issues in pairs]
        return self.done.unplaced.write(addresses, policy)


def _times(spans: Spans, stream: Array, core: CoreTimeline, target: Target) -> Times:
    """The cycles of steps and loads; a step without instructions takes none, at the start."""
    from npuc.sim.cycles import costs

    start, end = np.append(core.start, 0), np.append(core.end, 0)
    steps = np.zeros((len(spans.steps), 2), np.int64)
    for number, (first, last) in enumerate(spans.steps):
        if first < last:
            steps[number] = start[first], end[first:last].max()
    loads = np.array(spans.loads, np.int64)
    alone = np.append(costs(target, stream), 0)[loads]
    latency = Costs(target).latency
    queue = np.argsort(loads, kind="stable")
    return Times(steps, np.stack([start[loads], end[loads]], 1), alone, latency, queue)
