"""The checksums at the end of a `.npu` file: a SHA-256 of every chunk of it, then one of these digests.

Chunks are independent, so that several threads can compare them, and so that what a loader needs at once (tables,
instructions) can be compared before the weights, which wait until something is about to run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npuc.arrays import Array, ceil_div

CHUNK = 1 << 18
"""Bytes that have a digest of their own."""
BYTES = 32
"""Of a digest."""
_FEW = 8
"""So many chunks are not worth a thread."""


def size_for(body: int) -> int:
    """Bytes of all digests of a file with so many bytes before them.

    >>> size_for(1000), size_for(CHUNK + 1)
    (64, 96)
    """
    return BYTES * (ceil_div(body, CHUNK) + 1)


def seal(pieces: Iterable[memoryview | bytes]) -> bytes:
    """All digests of a file whose bytes are these, one after the other."""
    digests: list[bytes] = []
    hashed, room = hashlib.sha256(), CHUNK
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest):
            part, rest = rest[:room], rest[room:]
            hashed.update(part)
            room -= len(part)
            if not room:
                digests.append(hashed.digest())
                hashed, room = hashlib.sha256(), CHUNK
    if room < CHUNK:
        digests.append(hashed.digest())
    table = b"".join(digests)
    return table + hashlib.sha256(table).digest()


@dataclass(frozen=True)
class Checksums:
    """The digests of a file that was read, and the bytes that they belong to."""

    body: Array
    table: Array
    """All digests, the last one that of the others."""

    @property
    def count(self) -> int:
        """Chunks of the file."""
        return len(self.table) // BYTES - 1

    def table_is_right(self) -> bool:
        """True if the last digest is that of the others."""
        table = self.table.tobytes()
        return hashlib.sha256(table[:-BYTES]).digest() == table[-BYTES:]

    def are_right(self, chunks: Sequence[int]) -> bool:
        """True if chunks are as they were written; several threads, if there are many."""
        workers = min(4, os.cpu_count() or 1, len(chunks) // _FEW)
        if workers < 2:
            return all(map(self._is_right, chunks))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(workers) as pool:
            parts = [chunks[first::workers] for first in range(workers)]
            return all(pool.map(lambda part: all(map(self._is_right, part)), parts))

    def inside(self, first: int, end: int) -> range:
        """The chunks of which every byte is in `first` to `end`."""
        low = ceil_div(first, CHUNK)
        return range(low, max(low, end // CHUNK))

    def _is_right(self, chunk: int) -> bool:
        digest = hashlib.sha256(self.body[chunk * CHUNK : (chunk + 1) * CHUNK].data).digest()
        return digest == self.table[chunk * BYTES : (chunk + 1) * BYTES].tobytes()
