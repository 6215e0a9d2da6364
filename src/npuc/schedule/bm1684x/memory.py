"""Which bytes of the lanes are taken, while commands are made.

A buffer that is given back stays cool for a while: the next layers take other bytes if there are any, so that their loads need
not wait for the layers before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from npuc.arrays import ceil_div
from npuc.program.bm1684x.commands import BANK_BYTES
from npuc.schedule.bm1684x.layout import aligned

Bytes = tuple[int, int]
"""Bytes of a lane, the end excluded."""
COOLNESS = (4, 2, 0)
"""Layers for which bytes that were given back are spared, the first of these that leaves room."""


def share_bank(a: Bytes, b: Bytes) -> bool:
    """Whether two runs of bytes, the ends excluded, have bytes in one bank of a lane."""
    return a[0] // BANK_BYTES <= (b[1] - 1) // BANK_BYTES and b[0] // BANK_BYTES <= (a[1] - 1) // BANK_BYTES


class NoRoom(Exception):
    """There is no gap of so many bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes of each lane")
        self.size = size


@dataclass
class Buffer:
    """Bytes of the lanes that are in use for a while."""

    at: int
    size: int
    begin: int
    """Commands that there were when it was taken, and, below, when it was given back."""
    end: int = 1 << 30


class LaneMemory:
    """The bytes of a lane; all lanes have the same."""

    def __init__(self, size: int, commands: Callable[[], int] = lambda: 0) -> None:
        self.size, self._commands = size, commands
        self.buffers: list[Buffer] = []
        """All that were ever taken."""
        self._taken: dict[int, Buffer] = {}
        """Where buffers begin."""
        self._cool: list[tuple[int, int, int]] = []
        """Begin, end and when it was given back."""
        self.now = 0
        self.peak = 0

    def take(self, size: int, high: bool = False, apart: Sequence[Bytes] = ()) -> int:
        """A gap; from the top if it is for a short time, and in other banks than some bytes if that can be."""
        size = max(aligned(size), 64)
        for spans in (apart, ()) if apart else ((),):
            for coolness in COOLNESS:
                at = self._find(size, high, coolness, spans)
                if at is not None:
                    self._taken[at] = Buffer(at, size, self._commands())
                    self.buffers.append(self._taken[at])
                    self.peak = max(self.peak, sum(buffer.size for buffer in self._taken.values()))
                    return at
        raise NoRoom(size)

    def _find(self, size: int, high: bool, coolness: int, apart: Sequence[Bytes]) -> int | None:
        since = self.now - coolness
        gaps = self._gaps([(begin, end) for begin, end, given in self._cool if given > since])
        for begin, end in reversed(gaps) if high else gaps:
            if end - begin < size:
                continue
            if high:
                places: list[int] = [
                    end - size,
                    *range((end - size) // BANK_BYTES * BANK_BYTES, begin - 1, -BANK_BYTES),
                ]
                places += range(end // BANK_BYTES * BANK_BYTES - size, begin - 1, -BANK_BYTES)
            else:
                places = [begin, *range(ceil_div(begin, BANK_BYTES) * BANK_BYTES, end - size + 1, BANK_BYTES)]
            for at in places if apart else places[:1]:
                if not any(share_bank((at, at + size), span) for span in apart):
                    return at
        return None

    def give(self, at: int) -> None:
        """A buffer is free."""
        buffer = self._taken.pop(at)
        buffer.end = self._commands()
        self._cool = [entry for entry in self._cool if entry[2] > self.now - COOLNESS[0]]
        self._cool.append((at, at + buffer.size, self.now))

    @property
    def largest_gap(self) -> int:
        """Bytes of the largest free run."""
        return max((end - begin for begin, end in self._gaps([])), default=0)

    def _gaps(self, spared: list[tuple[int, int]]) -> list[tuple[int, int]]:
        at, gaps = 0, []
        for begin, end in sorted([(at, at + buffer.size) for at, buffer in self._taken.items()] + spared):
            if begin > at:
                gaps.append((at, begin))
            at = max(at, end)
        return [*gaps, (at, self.size)] if at < self.size else gaps
