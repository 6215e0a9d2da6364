"""Constants early: where they lie in the lanes decides how early they can be loaded.

Commands are made layer by layer, and the constants of a layer take bytes that are free at that moment. Whether those bytes have
been free long before, so that the DMA can bring the constants while earlier layers compute, is known only when all commands are
there. So constants move then: each to bytes that have been free since the DMA could begin to load it, or at least as long as any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.program.bm1684x.commands import BANK_BYTES, EU_BYTES
from npuc.schedule.bm1684x.cycles import cycles_of
from npuc.schedule.bm1684x.memory import Buffer
from npuc.schedule.bm1684x.work import Issue, Span

_NEVER = 1 << 40
_OPERANDS = ("opd0", "opd1", "opd2", "opd3", "res0")
_BANK = BANK_BYTES // EU_BYTES


def prefetched(issues: Sequence[Issue], buffers: Sequence[Buffer], room: int) -> list[Issue]:
    """The same commands with constants where they can be loaded early; as they are if not all of them find a place."""
    moving = [(load, buffer) for buffer in buffers if (load := _only_load(issues, buffer)) is not None]
    moving.sort(key=lambda pair: pair[0])
    movable = {id(buffer) for _, buffer in moving}
    lanes = _Occupied([buffer for buffer in buffers if id(buffer) not in movable], room)
    cycles = [0 if issue.engine == "gdma" else cycles_of(issue) for issue in issues]
    times = np.cumsum([0, *cycles])
    """When the TIU begins each command, if it waits for constants only."""
    loaded = 0
    moved = list(issues)
    for load, buffer in moving:
        soon = int(np.searchsorted(times, loaded, "right")) - 1
        place = lanes.place(buffer, load, soon, _others(moved, buffer))
        if place is None:
            return list(issues)
        at, since = place
        loaded = max(loaded, int(times[since])) + cycles_of(issues[load])
        times[load:] += max(0, loaded - int(times[load]))
        for number in range(load, min(buffer.end, len(issues))):
            moved[number] = _shifted(moved[number], buffer, at - buffer.at)
    return moved


def _only_load(issues: Sequence[Issue], buffer: Buffer) -> int | None:
    """The command that loads constants to a buffer, if nothing else is ever written there."""
    load = None
    for number in range(buffer.begin, min(buffer.end, len(issues))):
        issue = issues[number]
        if any(_within(span, buffer) for span in issue.writes):
            if load is not None or issue.source is None or issue.source.space != "coefficients":
                return None
            load = number
    return load


def _within(span: Span, buffer: Buffer) -> bool:
    return span[0] == "local" and buffer.at <= span[1] < buffer.at + buffer.size


def _others(issues: Sequence[Issue], buffer: Buffer) -> list[tuple[int, int]]:
    """Bytes whose banks a table had better not lie in."""
    return [
        span[1:]
        for issue in issues[buffer.begin : buffer.end]
        if issue.form == "SG" and any(_within(span, buffer) for span in issue.reads)
        for span in (*issue.reads, *issue.writes)
        if not _within(span, buffer)
    ]


class _Occupied:
    """Since when bytes of the lanes are free, in vectors of 64, while constants are placed in the order of their loads."""

    def __init__(self, fixed: Sequence[Buffer], room: int) -> None:
        self._free_since = np.zeros(room // EU_BYTES, np.int64)
        self._buffers = sorted(fixed, key=lambda buffer: buffer.end)
        self._over = 0
        """Of the buffers, those that have been taken into account as bytes that were free again."""

    def place(
        self, buffer: Buffer, load: int, soon: int, apart: Sequence[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """Where a buffer goes, and the command from which on its bytes are free: not before they are of use, if that can be."""
        while self._over < len(self._buffers) and self._buffers[self._over].end <= load:
            over = self._buffers[self._over]
            part = self._free_since[_vectors(over.at, over.size)]
            np.maximum(part, over.end, out=part)
            self._over += 1
        since = self._free_since.copy()
        for other in self._buffers[self._over :]:
            if other.begin < buffer.end:
                since[_vectors(other.at, other.size)] = _NEVER
        width = ceil_div(buffer.size, EU_BYTES)
        for avoid in (apart, ()) if apart else ((),):
            masked = since.copy()
            for low, high in avoid:
                masked[low // BANK_BYTES * _BANK : ceil_div(high, BANK_BYTES) * _BANK] = _NEVER
            windows = _most(masked, width)
            late = windows > soon
            score = np.where(late, windows + _NEVER, soon - windows)
            best = len(score) - 1 - int(score[::-1].argmin())
            if windows[best] < _NEVER:
                self._insert(Buffer(best * EU_BYTES, buffer.size, int(windows[best]), buffer.end))
                return best * EU_BYTES, int(windows[best])
        return None

    def _insert(self, buffer: Buffer) -> None:
        at = self._over
        while at < len(self._buffers) and self._buffers[at].end < buffer.end:
            at += 1
        self._buffers.insert(at, buffer)


def _vectors(at: int, size: int) -> slice:
    return slice(at // EU_BYTES, ceil_div(at + size, EU_BYTES))


def _most(values: Array, width: int) -> Array:
    """The greatest of each run of so many values."""
    reach = 1
    while reach * 2 <= width:
        values = np.maximum(values[:-reach], values[reach:])
        reach *= 2
    rest = width - reach
    return np.maximum(values[: len(values) - rest], values[rest:]) if rest else values


def _shifted(issue: Issue, buffer: Buffer, by: int) -> Issue:
    """A command with its operands in a buffer so many bytes further."""
    spans = (*issue.reads, *issue.writes)
    if not by or not any(_within(span, buffer) for span in spans):
        return issue
    values = dict(issue.values)
    for name in _OPERANDS:
        at = values.get(f"{name}_addr")
        if at is not None and not values.get(f"{name}_const") and buffer.at <= at < buffer.at + buffer.size:
            values[f"{name}_addr"] = at + by
    target = issue.target
    if target is not None and target.space == "local":
        target = target.plus(by)
    reads, writes = (
        tuple(_moved(span, by) if _within(span, buffer) else span for span in side)
        for side in (issue.reads, issue.writes)
    )
    return replace(issue, values=values, reads=reads, writes=writes, target=target)


def _moved(span: Span, by: int) -> Span:
    return span[0], span[1] + by, span[2] + by
