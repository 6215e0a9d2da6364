"""Banks: buffers that should have no bank in common are moved apart, as far as there is room.

This comes after planning and never needs more memory than it may use. One buffer (with all that share its address) at a
time is moved to the place where the fewest wishes are broken, the lowest of several; this goes on while it helps. It is a
local search: what is left is not proven to be the least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import lcm

from npuc.arrays import ceil_div
from npuc.schedule.memory.model import Banks, Buffer


def shared_pairs(
    buffers: Sequence[Buffer], addresses: Mapping[str, int], banks: Banks
) -> tuple[tuple[str, str], ...]:
    """The pairs that should have no bank in common but have."""
    size = {buffer.name: buffer.size for buffer in buffers}

    def touched(name: str) -> tuple[int, int]:
        at = addresses[name]
        return at // banks.size, (at + size[name] - 1) // banks.size

    pairs = []
    for a, b in banks.apart:
        (a_first, a_last), (b_first, b_last) = touched(a), touched(b)
        if a_first <= b_last and b_first <= a_last:
            pairs.append((a, b))
    return tuple(pairs)


def spread(
    buffers: Sequence[Buffer],
    addresses: Mapping[str, int],
    banks: Banks,
    room: int,
    groups: Sequence[Sequence[int]],
) -> dict[str, int]:
    """Addresses with fewer broken wishes, all below `room`."""
    now = dict(addresses)
    wished = {name for pair in banks.apart for name in pair}
    movable = [
        [buffers[k] for k in group]
        for group in groups
        if any(buffers[k].name in wished for k in group)
        and all(buffers[k].fixed is None and buffers[k].bank is None for k in group)
    ]
    broken = len(shared_pairs(buffers, now, banks))
    improved = True
    while improved and broken:
        improved = False
        for members in movable:
            for at in _places(members, buffers, now, banks, room):
                trial = now | {b.name: at for b in members}
                count = len(shared_pairs(buffers, trial, banks))
                if count < broken:
                    now, broken, improved = trial, count, True
    return now


def _places(
    members: Sequence[Buffer],
    buffers: Sequence[Buffer],
    addresses: Mapping[str, int],
    banks: Banks,
    room: int,
) -> Iterator[int]:
    """The lowest free address of a group in every bank and above every neighbour, rising."""
    names = {b.name for b in members}
    height = max(b.size for b in members)
    alignment = lcm(*(b.alignment for b in members))
    taken = [
        (addresses[o.name] - b.size, addresses[o.name] + o.size)
        for b in members
        for o in buffers
        if o.name not in names and b.start < o.end and o.start < b.end
    ]
    starts = {0, *range(0, room, banks.size), *(end for _, end in taken)}
    for start in sorted(ceil_div(s, alignment) * alignment for s in starts):
        if start + height <= room and all(start <= low or start >= high for low, high in taken):
            yield start
