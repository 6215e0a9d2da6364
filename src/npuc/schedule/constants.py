"""The constants of a layer: named arrays that lie one after the other in one block of memory.

>>> import numpy as np
>>> block = Constants({"weight": np.zeros((4, 5), np.int8), "bias": np.ones(4, np.int32)})
>>> block
Constants(weight=int8[4x5], bias=int32[4])
>>> block.places, block.size
({'weight': 0, 'bias': 32}, 48)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from npuc.arrays import Array, ceil_div

ALIGNMENT = 16
"""Bytes that the arrays of a block are aligned to."""


class Constants(Mapping[str, Array]):
    """Arrays by name, in the order in which they lie in memory. Two are equal if all their names, types and numbers are."""

    def __init__(self, arrays: Mapping[str, Array] | None = None) -> None:
        self._arrays = dict(arrays or {})

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constants):
            return NotImplemented
        return list(self) == list(other) and all(
            a.dtype == b.dtype and np.array_equal(a, b)
            for a, b in zip(self.values(), other.values(), strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple((name, array.shape) for name, array in self.items()))

    def __repr__(self) -> str:
        shapes = (f"{name}={a.dtype}[{'x'.join(map(str, a.shape))}]" for name, a in self.items())
        return f"Constants({', '.join(shapes)})"

    @cached_property
    def places(self) -> dict[str, int]:
        """The first byte of each array."""
        places, at = {}, 0
        for name, array in self._arrays.items():
            places[name] = at
            at += ceil_div(array.nbytes, ALIGNMENT) * ALIGNMENT
        return places

    @cached_property
    def size(self) -> int:
        """Bytes of the block."""
        return sum(ceil_div(array.nbytes, ALIGNMENT) * ALIGNMENT for array in self._arrays.values())

    def packed(self) -> Array:
        """The bytes of the block."""
        block = np.zeros(self.size, np.uint8)
        for name, array in self._arrays.items():
            at = self.places[name]
            block[at : at + array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        return block


NO_CONSTANTS = Constants()
