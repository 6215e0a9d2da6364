"""Memory for the tensors of a program that runs in a fixed order: a tensor that is dead lends its memory to the next.

Addresses are fixed when a program is laid out, so memory is given and taken back in the order of the steps, not at run
time. Arrays may be views of one another: memory is free when no array that shows it is in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from npuc.arrays import Array, ceil_div

_ALIGNMENT = 64


class Arena:
    """Buffers, each with the number of arrays in use that show it."""

    def __init__(self) -> None:
        self._users: dict[int, int] = {}
        self._buffers: dict[int, Array] = {}
        self._free: list[Array] = []

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(buffer.size for buffer in self._buffers.values())

    def new(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """A dense array with no user yet."""
        size = prod(shape) * dtype.itemsize
        buffer = self._buffer(ceil_div(size, _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT)
        start = -buffer.ctypes.data % _ALIGNMENT
        array: Array = buffer[start : start + size].view(dtype).reshape(shape)
        return array

    def _buffer(self, size: int) -> Array:
        fitting = [buffer for buffer in self._free if buffer.size >= size]
        if fitting:
            smallest = min(fitting, key=lambda buffer: buffer.size)
            # Not one that is far too large: a later tensor may need all of it.
            if smallest.size <= 4 * size:
                self._free = [buffer for buffer in self._free if buffer is not smallest]
                self._users[id(smallest)] = 0
                return smallest
        fresh = np.empty(size, np.uint8)
        self._buffers[id(fresh)] = fresh
        self._users[id(fresh)] = 0
        return fresh

    def use(self, array: Array) -> None:
        """One more array shows the memory behind this one."""
        key = id(array if array.base is None else array.base)
        if key in self._users:
            self._users[key] += 1

    def drop(self, array: Array) -> None:
        """One array less."""
        key = id(array if array.base is None else array.base)
        if key in self._users:
            self._users[key] -= 1

    def sweep(self) -> None:
        """Take back what nobody uses."""
        for key in [key for key, users in self._users.items() if users <= 0]:
            del self._users[key]
            self._free.append(self._buffers[key])
