"""The order of commands, their numbers, and what each waits for.

Program order is right by itself. Loads may begin earlier: each moves up past commands that have nothing to do with its bytes, so
that they overlap with what the TIU computes. Then commands are counted by engine, and each names the last command of the other
engine that it may not overtake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from npuc.schedule.bm1684x.memory import share_bank
from npuc.schedule.bm1684x.work import LOOK_UP, Issue, Span

REACH = 1000
"""Commands that a load may move up past."""


@dataclass(frozen=True)
class Ordered:
    """A command with its number among those of its engine, and that of the other engine's that it waits for."""

    issue: Issue
    number: int
    waits_for: int


def overlap(a: Sequence[Span], b: Sequence[Span]) -> bool:
    """Whether two lists of bytes meet."""
    return any(
        space == other and low < end and begin < high for space, low, high in a for other, begin, end in b
    )


def conflict(first: Issue, second: Issue) -> bool:
    """Whether the order of two commands matters: one writes what the other reads or writes."""
    return (
        overlap(first.writes, second.reads)
        or overlap(first.reads, second.writes)
        or overlap(first.writes, second.writes)
    )


def hoisted(issues: Sequence[Issue], reach: int = REACH) -> list[Issue]:
    """With loads as early as they may be; loads keep their order."""
    order: list[Issue] = []
    for issue in issues:
        at = len(order)
        if issue.is_load:
            while at > max(0, len(order) - reach):
                before = order[at - 1]
                if before.is_load or conflict(before, issue):
                    break
                at -= 1
        order.insert(at, issue)
    return order


def with_its_look_up(issue: Issue) -> Issue:
    """A command as it depends on where its operands are in the end: elements are looked up fast across banks."""
    if issue.form != "SG" or any_share_bank(*issue.reads, *issue.writes):
        return issue
    return replace(issue, values={**issue.values, "tsk_eu_typ": LOOK_UP})


def any_share_bank(*spans: Span) -> bool:
    """Whether two of them have bytes in one bank of a lane."""
    return any(share_bank(a[1:], b[1:]) for i, a in enumerate(spans) for b in spans[:i])


def ordered(issues: Sequence[Issue]) -> list[Ordered]:
    """Numbers and waits of commands in their order."""
    queues: dict[str, list[Issue]] = {"tiu": [], "gdma": []}
    waited = {"tiu": 0, "gdma": 0}
    done = []
    for issue in issues:
        engine = issue.engine
        others = queues["gdma" if engine == "tiu" else "tiu"]
        for number in range(len(others), waited[engine], -1):
            if conflict(others[number - 1], issue):
                waited[engine] = number
                break
        queues[engine].append(issue)
        done.append(Ordered(with_its_look_up(issue), len(queues[engine]), waited[engine]))
    return done
