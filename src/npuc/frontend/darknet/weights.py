"""Darknet's `.weights`: a header, then float32 of layer after layer without any marks between.

Which number belongs to what follows from the layers alone, so they are read in order. Without a file they are random,
with a seed. Header: major, minor, revision, and how many images were seen, as 32 bits before version 0.2 and as 64 bits
since.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError, InvalidModelError
from npuc.frontend.layered.network import Shape
from npuc.frontend.layered.random_weights import SEED, RandomWeights
from npuc.ir import MappedFile


class DarknetWeights:
    """Numbers in the order of the file; random ones where there is none."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.transposed = False
        """Whether weights of connected layers lie the other way round."""
        self.taken: dict[tuple[str, int], Array] = {}
        """What has been given out, by layer and place, in the order of the file."""
        self._at = 0
        self._numbers: Array | None = None
        self._random = np.random.default_rng(SEED)
        self._made = RandomWeights()
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        file = MappedFile(path)
        if file.size < 16:
            raise FileFormatError(
                "is too short for Darknet weights", where=str(path), fix="Download or save it again"
            )
        major, minor, _ = (int(n) for n in np.frombuffer(file.buffer, "<i4", 3))
        if not 0 <= major <= 2000 or not 0 <= minor <= 2000:
            raise FileFormatError(
                f"does not look like Darknet weights: its header says version {major}.{minor}",
                where=str(path),
                fix="Give the .weights file that belongs to the .cfg",
            )
        self.transposed = major > 1000 or minor > 1000
        wide = major * 10 + minor >= 2 and major < 1000 and minor < 1000
        header = 20 if wide else 16
        count = max(0, file.size - header) // 4
        self._numbers = np.frombuffer(file.buffer, "<f4", count, header) if count else np.zeros(0, np.float32)

    def get(self, label: str, place: int, shape: Shape, role: str) -> Array:
        """The numbers that a layer asks for in a place; those of new places come next in the file.

        `role` tells how random ones have to look: weight, bias, scale, variance.
        """
        if (label, place) not in self.taken:
            self.taken[label, place] = self._next(label, shape, role)
        return self.taken[label, place].reshape(shape)

    def _next(self, label: str, shape: Shape, role: str) -> Array:
        count = prod(shape)
        if any(size < 1 for size in shape):
            raise InvalidModelError(f"{label} needs weights of the impossible shape {list(shape)}")
        if self._numbers is None:
            return self._made.make(self._random, shape, role)
        left = self._numbers.size - self._at
        if count > left:
            raise InvalidModelError(
                f"{label} needs {count} numbers, but {left} are left in the weights",
                where=str(self.path),
                fix="The file is cut off, holds the first layers only, or belongs to another .cfg",
            )
        self._at += count
        return np.require(self._numbers[self._at - count : self._at], np.float32, ["A", "C"]).reshape(shape)

    @property
    def left(self) -> int:
        """How many numbers of the file nobody has asked for."""
        return 0 if self._numbers is None else self._numbers.size - self._at


def encode(arrays: Iterable[Array]) -> bytes:
    """A file of version 0.2 with these numbers."""
    header = np.array([0, 2, 5, 0, 0], "<i4").tobytes()
    return header + b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
