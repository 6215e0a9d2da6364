"""Which bytes of the lanes are taken, while commands are made.

A buffer that is given back stays cool for a while: the next layers take other bytes if there are any, so that their loads need
not wait for the layers before.
"""

from __future__ import annotations

from npuc.schedule.bm1684x.layout import aligned


class NoRoom(Exception):
    """There is no gap of so many bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes of each lane")
        self.size = size


class LaneMemory:
    """The bytes of a lane; all lanes have the same."""

    def __init__(self, size: int, coolness: int = 2) -> None:
        self.size, self._coolness = size, coolness
        self._taken: dict[int, int] = {}
        """Where buffers begin, and their sizes."""
        self._cool: list[tuple[int, int, int]] = []
        """Begin, end and the time from which on it is free again."""
        self.now = 0
        self.peak = 0

    def take(self, size: int, high: bool = False) -> int:
        """A gap; from the top if it is for a short time."""
        size = max(aligned(size), 64)
        cool = [entry for entry in self._cool if entry[2] > self.now]
        self._cool = cool
        for spared in (cool, []):
            gaps = self._gaps([(begin, end) for begin, end, _ in spared])
            fitting = [(begin, end) for begin, end in gaps if end - begin >= size]
            if fitting:
                begin, end = fitting[-1] if high else fitting[0]
                at = end - size if high else begin
                self._taken[at] = size
                self.peak = max(self.peak, sum(self._taken.values()))
                return at
        raise NoRoom(size)

    def give(self, at: int) -> None:
        """A buffer is free."""
        size = self._taken.pop(at)
        self._cool.append((at, at + size, self.now + self._coolness))

    @property
    def largest_gap(self) -> int:
        """Bytes of the largest free run."""
        return max((end - begin for begin, end in self._gaps([])), default=0)

    def _gaps(self, spared: list[tuple[int, int]]) -> list[tuple[int, int]]:
        at, gaps = 0, []
        for begin, end in sorted([(at, at + size) for at, size in self._taken.items()] + spared):
            if begin > at:
                gaps.append((at, begin))
            at = max(at, end)
        return [*gaps, (at, self.size)] if at < self.size else gaps
