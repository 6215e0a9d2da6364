"""Constants and barriers: on several cores, what comes from DRAM need not wait for what cores exchange.

Cores wait for each other between groups, and loads of tensors wait for barriers. Constants are in DRAM from the start, so they
may be loaded before barriers that stand before the group that needs them, and the DRAM channel is at work while cores compute.
But the transfers of a queue finish in order: rows of a tensor that are asked for behind ten blocks of constants come when those
are there. So each stretch between two barriers gets as many bytes of constants as the channel moves while the engines work on
it, in the order of need.

Example: three groups that compute for 1,000 cycles each, with constants of 100, 300 and 2,400 cycles on the channel. While the
first is at work those of the second come and 700 cycles of those of the third, then 1,000 more; 700 are left when the second is
done. With constants one barrier ahead only it would be 1,400, as none of the third group would come while the first is at work.

A multicast load is done by all cores at once. So all have those loads in one order, and behind the same barriers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from npuc.schedule.cost import Costs
from npuc.schedule.layers import InstructionTemplate, Tensor
from npuc.schedule.steps import Compute, Fence, Load, Work
from npuc.schedule.tiler import Choices


@dataclass(frozen=True)
class _Constant:
    """Constants that one core loads, or all at once."""

    segment: int
    """The barriers that they may be behind at most."""
    size: int
    loads: tuple[tuple[int, Load], ...]
    """Each core that loads them, with its load."""


def let_constants_run_ahead(
    works: Sequence[Work], costs: Costs, inputs: Iterable[Tensor], choices: Choices
) -> None:
    """Allow constants to come before barriers, and say before which step of its core none is issued."""
    fences = [_fences(work) for work in works]
    rate = float(costs.bytes_per_cycle)
    for work, times in zip(works, _times(works, costs), strict=True):
        work.runs_ahead, work.times, work.rate, work.patience = True, times, rate, choices.patience
        _number(work)
    spare = _stretches(works, fences)
    far = {tensor.storage for tensor in inputs}
    for load in (load for work in works for load in work.loads):
        if isinstance(load, Load) and load.source in far:
            spare[load.segment] -= load.size / rate
    at = 0
    for constant in _constants(works):
        at = min(max(at, constant.segment + 1 - choices.ahead), constant.segment)
        while at < constant.segment and spare[at] <= 0:
            spare[at + 1] += spare[at]
            at += 1
        spare[at] -= constant.size / rate
        for core, load in constant.loads:
            load.ready, load.least_segment = fences[core][at - 1] if at else 0, at


def order_queues(works: Sequence[Work]) -> None:
    """Say which barriers each load stands behind, the same for all cores where they load together.

    Constants whose room is free so late that they would not be there when the next barrier opens come behind it, and behind
    what waits for it, if they are not needed before.
    """
    if not works[0].runs_ahead:
        return
    fences = [_fences(work) for work in works]
    for work in works:
        _number(work)
    lengths = _stretches(works, fences)
    begin, free, at = 0.0, 0.0, 0
    issued = [0] * len(works)
    for constant in _constants(works):
        least = max(
            max(bisect_left(fences[core], load.issue), load.least_segment) for core, load in constant.loads
        )
        while True:
            room = begin
            for core, load in constant.loads:
                first = fences[core][at - 1] if at else 0
                times = works[core].times
                room = max(room, begin + times[max(load.issue, first)] - times[first])
            end = max(free, room) + constant.size / works[0].rate
            if at >= constant.segment or (at >= least and end <= begin + lengths[at] + works[0].patience):
                break
            begin, at = max(begin + lengths[at], free), at + 1
        free = end
        for core, load in constant.loads:
            load.segment = at
            load.issue = issued[core] = max(load.issue, issued[core], fences[core][at - 1] if at else 0)


def _fences(work: Work) -> list[int]:
    return [load.issue for load in work.loads if isinstance(load, Fence)]


def _number(work: Work) -> None:
    """State how many barriers each load is behind as the list has it."""
    count = 0
    for load in work.loads:
        count += isinstance(load, Fence)
        load.segment = count


def _constants(works: Sequence[Work]) -> Iterator[_Constant]:
    """Loads of constants in the order of need, which is that of each core, by the places that `_number` has stated."""
    lists = [[load for load in work.loads if isinstance(load, Load) and load.is_constant] for work in works]
    at = [0] * len(works)
    while any(at[core] < len(own) for core, own in enumerate(lists)):
        heads = [(core, own[at[core]]) for core, own in enumerate(lists) if at[core] < len(own)]
        alone = [(load.segment, core, load) for core, load in heads if not load.multicast]
        if alone:
            _, core, load = min(alone, key=lambda head: head[:2])
            heads = [(core, load)]
        for core, _ in heads:
            at[core] += 1
        yield _Constant(heads[0][1].segment, heads[0][1].size, tuple(heads))


def _times(works: Sequence[Work], costs: Costs) -> Iterator[list[float]]:
    """For each core, when each step begins if the busier of its engines never waits."""
    known: dict[InstructionTemplate, int] = {}
    for work in works:
        busy = {"matrix": 0, "vector": 0}
        times = [0.0]
        for step in work.steps:
            for template in step.templates if isinstance(step, Compute) else ():
                if template not in known:
                    known[template] = costs.cycles(template.instruction)
                busy[template.instruction.queue] += known[template]
            times.append(float(max(busy.values())))
        yield times


def _stretches(works: Sequence[Work], fences: Sequence[Sequence[int]]) -> list[float]:
    """Cycles of the busiest core between two barriers."""
    most = [0.0] * (len(fences[0]) + 1)
    for work, own in zip(works, fences, strict=True):
        cuts = [0, *own, len(work.steps)]
        for segment, (low, high) in enumerate(pairwise(cuts)):
            most[segment] = max(most[segment], work.times[high] - work.times[low])
    return most
