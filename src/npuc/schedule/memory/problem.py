"""From buffers to what the core plans: items in units, time in sections.

Buffers that share an address become one item of several parts. Where all alignments have a common divisor, sizes are
rounded up to it, which loses nothing but makes bounds exact; what all sizes and addresses have in common is divided out.
Time is cut down to the moments at which the set of live buffers is maximal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

import numpy as np

from npuc.arrays import ceil_div
from npuc.errors import MemoryPlanError
from npuc.schedule.memory.core import LARGEST, MOST, Items, Longs
from npuc.schedule.memory.model import Banks, Buffer

_FREE = LARGEST


@dataclass(frozen=True, eq=False)
class Problem:
    """Items that stand for groups of buffers; `unit` is what they are counted in."""

    buffers: tuple[Buffer, ...]
    groups: tuple[tuple[int, ...], ...]
    unit: int
    items: Items
    heights: Longs  # of items, in bytes: the largest buffer of each, not rounded
    lower_bound: int

    def limited(self, capacity: int) -> Items:
        """The items with `capacity` (in bytes) as a limit to each."""
        items, unit = self.items, self.unit
        most = np.maximum.reduceat(items.size, items.first[:-1])
        last = (capacity - self.heights) // unit  # the highest address
        high = np.maximum(np.minimum(items.high, last + most), 0)
        return Items(
            items.sections,
            items.first,
            items.start,
            items.end,
            items.size,
            items.alignment,
            items.low,
            high.astype(np.int64),
        )

    def size(self, address: Longs) -> int:
        """The end of the highest buffer, in bytes."""
        return int((address * self.unit + self.heights).max())

    def addresses(self, address: Longs) -> dict[str, int]:
        """Of buffers, in their order, in bytes."""
        placed = [0] * len(self.buffers)
        for group, at in zip(self.groups, address.tolist(), strict=True):
            for index in group:
                placed[index] = at * self.unit
        return {buffer.name: at for buffer, at in zip(self.buffers, placed, strict=True)}


def check(buffers: Sequence[Buffer], banks: Banks | None) -> None:
    """Refuse buffers that make no sense by themselves."""
    if len(buffers) > MOST:
        raise MemoryPlanError(f"there are {len(buffers):,} buffers; the planner takes {MOST:,}")
    if banks is not None and not 1 <= banks.size <= LARGEST:
        raise MemoryPlanError(f"banks of {banks.size} bytes make no sense")
    names: set[str] = set()
    for b in buffers:
        where = f"buffer '{b.name}'"
        if b.name in names:
            raise MemoryPlanError("two buffers have this name", where=where)
        names.add(b.name)
        if not 1 <= b.size <= LARGEST:
            raise MemoryPlanError(f"a size of {b.size} bytes makes no sense", where=where)
        if not -LARGEST <= b.start <= LARGEST or not -LARGEST <= b.end <= LARGEST:
            raise MemoryPlanError(f"a lifetime of [{b.start}, {b.end}) makes no sense", where=where)
        if b.start >= b.end:
            raise MemoryPlanError(f"it is never alive: its lifetime is [{b.start}, {b.end})", where=where)
        if not 1 <= b.alignment <= LARGEST:
            raise MemoryPlanError(f"an alignment of {b.alignment} makes no sense", where=where)
        if b.fixed is not None and not 0 <= b.fixed <= LARGEST:
            raise MemoryPlanError(f"a fixed address of {b.fixed} makes no sense", where=where)
        if b.fixed is not None and b.fixed % b.alignment:
            raise MemoryPlanError(
                f"its fixed address {b.fixed} is not a multiple of its alignment {b.alignment}", where=where
            )
        if b.bank is not None:
            _check_bank(b, b.bank, banks)
    for pair in banks.apart if banks else ():
        for name in pair:
            if name not in names:
                raise MemoryPlanError(f"a wish for different banks names '{name}', which is no buffer")


def _check_bank(buffer: Buffer, bank: int, banks: Banks | None) -> None:
    where = f"buffer '{buffer.name}'"
    if banks is None:
        raise MemoryPlanError(f"it must lie in bank {bank}, but memory has no banks", where=where)
    if bank < 0 or (bank + 1) * banks.size > LARGEST:
        raise MemoryPlanError(f"there is no bank {bank}", where=where)
    if buffer.size > banks.size:
        raise MemoryPlanError(f"its {buffer.size:,} bytes do not fit a bank of {banks.size:,}", where=where)


def groups_of(buffers: Sequence[Buffer], aliases: Iterable[Sequence[str]]) -> tuple[tuple[int, ...], ...]:
    """Buffers by index, those that share an address together, in the order of their first member."""
    index = {buffer.name: k for k, buffer in enumerate(buffers)}
    root = list(range(len(buffers)))

    def find(k: int) -> int:
        while root[k] != k:
            root[k] = root[root[k]]
            k = root[k]
        return k

    for group in aliases:
        for name in group:
            if name not in index:
                raise MemoryPlanError(f"an alias names '{name}', which is no buffer")
            a, b = find(index[group[0]]), find(index[name])
            root[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = {}
    for k in range(len(buffers)):
        members.setdefault(find(k), []).append(k)
    return tuple(tuple(group) for group in members.values())


def build(buffers: Sequence[Buffer], groups: tuple[tuple[int, ...], ...], banks: Banks | None) -> Problem:
    """The problem of some buffers, which `check` has passed."""
    common = gcd(*(b.alignment for b in buffers))
    rounded = [ceil_div(b.size, common) * common for b in buffers]
    alignment, low, high, heights = [], [], [], []
    for group in groups:
        members = [buffers[k] for k in group]
        height, tall = max(b.size for b in members), max(rounded[k] for k in group)
        at, end = _limits(members, banks)
        align = lcm(*(b.alignment for b in members))
        if align > LARGEST:
            raise MemoryPlanError("the alignments have no common multiple", where=_words(members))
        alignment.append(align)
        heights.append(height)
        low.append(at)
        high.append(_FREE if end is None else max((end - height) // common * common + tall, 0))
    unit = _unit(rounded, alignment, [v for v in (*low, *high) if v != _FREE])
    flat = [k for group in groups for k in group]
    if sum(rounded) + sum(alignment) > LARGEST:
        raise MemoryPlanError("the buffers are too large for the planner in all")
    first = np.cumsum([0, *map(len, groups)]).astype(np.int32)
    start = np.array([buffers[k].start for k in flat], np.int64)
    end_times = np.array([buffers[k].end for k in flat], np.int64)
    begin, finish, sections = sections_of(start, end_times)
    items = Items(
        sections,
        first,
        begin,
        finish,
        np.array([rounded[k] // unit for k in flat], np.int64),
        np.array([max(a // unit, 1) for a in alignment], np.int64),
        np.array(low, np.int64) // unit,
        np.array([h if h == _FREE else h // unit for h in high], np.int64),
    )
    bytes_high = np.array(heights, np.int64)
    bound = bound_of(items, unit, bytes_high)
    return Problem(tuple(buffers), groups, unit, items, bytes_high, bound)


def _limits(members: Sequence[Buffer], banks: Banks | None) -> tuple[int, int | None]:
    """The lowest address of a group and the end of what it may use."""
    low, high = 0, None
    for b in members:
        for at, end in (
            *(((b.fixed, b.fixed + max(m.size for m in members)),) if b.fixed is not None else ()),
            *(((b.bank * banks.size, (b.bank + 1) * banks.size),) if b.bank is not None and banks else ()),
        ):
            low, high = max(low, at), end if high is None else min(high, end)
    size = max(b.size for b in members)
    if high is not None and low + size > high:
        raise MemoryPlanError(
            f"{_words(members)} must be at two places at once", fix="Look at 'fixed' and 'bank' of each."
        )
    for b in members:
        if b.fixed is not None and low != b.fixed:
            raise MemoryPlanError(
                f"{_words(members)} must be at two places at once", fix="Look at 'fixed' and 'bank' of each."
            )
    return low, high


def _words(members: Sequence[Buffer]) -> str:
    names = [f"'{b.name}'" for b in members[:4]]
    more = f" and {len(members) - 4} more" if len(members) > 4 else ""
    return f"buffer{'s' if len(members) > 1 else ''} {', '.join(names)}{more}"


def _unit(sizes: Sequence[int], alignments: Iterable[int], places: Iterable[int]) -> int:
    unit = gcd(*sizes, *places)
    for _ in range(64):
        before = unit
        for a in alignments:
            if unit % a:
                unit = gcd(unit, a)
        if unit == before:
            break
    return unit


def sections_of(start: Any, end: Any) -> tuple[Any, Any, int]:
    """Lifetimes in sections, and their number: the moments at which no other moment's live set holds this one's.

    >>> sections_of(np.array([0, 1, 5]), np.array([3, 9, 9]))
    (array([0, 0, 1], dtype=int32), array([1, 2, 2], dtype=int32), 2)
    """
    times = np.array(sorted({*start.tolist(), *end.tolist()}), np.int64)  # np.unique loads masked arrays
    begins, ends = np.searchsorted(times, start), np.searchsorted(times, end)
    has_begin, has_end = np.zeros(len(times), bool), np.zeros(len(times), bool)
    has_begin[begins], has_end[ends] = True, True
    kept = has_begin[:-1] & has_end[1:]
    number = np.concatenate([[0], np.cumsum(kept)])
    return number[begins].astype(np.int32), number[ends].astype(np.int32), int(kept.sum())


def bound_of(items: Items, unit: int, heights: Longs) -> int:
    """What no plan can be smaller than, in bytes.

    In every section: all rounded sizes that are alive, less the rounding of one of them, which may be on top. And every
    item by itself, from its lowest address.
    """
    size, part_first = items.size, items.first
    owner = np.repeat(np.arange(items.count), np.diff(part_first))
    tall = np.maximum.reduceat(size, part_first[:-1])
    spare = tall * unit - heights
    load = np.zeros(items.sections + 1, np.int64)
    single = np.diff(part_first) == 1
    plain = single[owner]
    np.add.at(load, items.start[plain], size[plain])
    np.subtract.at(load, items.end[plain], size[plain])
    load = np.cumsum(load)[:-1]
    for item in np.flatnonzero(~single):
        outline = np.zeros(items.sections, np.int64)
        for part in range(part_first[item], part_first[item + 1]):
            section = slice(items.start[part], items.end[part])
            outline[section] = np.maximum(outline[section], size[part])
        load += outline
    low = ceil_div(items.low, items.alignment) * items.alignment
    alone = int((low * unit + heights).max())
    return max(alone, int(load.max()) * unit - int(spare.max(initial=0)))
