"""The native planners: placing greedily, climbing, and the exact search (native/include/npuc/plan.h)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from npuc.errors import InternalError
from npuc.native import library

Ints = np.ndarray[Any, np.dtype[np.int32]]
Longs = np.ndarray[Any, np.dtype[np.int64]]

LARGEST = 1 << 52
"""`NPUC_PLAN_LARGEST`: the largest size and address, in units."""
MOST = 1_000_000
"""`NPUC_PLAN_MOST`: the largest number of buffers."""

PRESSED, TWINS = 1, 2
"""Modes of `search`: the fullest sections first; of equal items the first is lower."""

_POINTER = ctypes.c_void_p


class _Raw(ctypes.Structure):
    _fields_ = (
        ("items", ctypes.c_int32),
        ("parts", ctypes.c_int32),
        ("sections", ctypes.c_int32),
        ("first", _POINTER),
        ("start", _POINTER),
        ("end", _POINTER),
        ("size", _POINTER),
        ("alignment", _POINTER),
        ("low", _POINTER),
        ("high", _POINTER),
    )


@dataclass(frozen=True, eq=False)
class Items:
    """Items of one or more parts, as `npuc_plan_problem` has them; all sizes and addresses in units."""

    sections: int
    first: Ints
    start: Ints
    end: Ints
    size: Longs
    alignment: Longs
    low: Longs
    high: Longs

    @property
    def count(self) -> int:
        """The number of items."""
        return len(self.alignment)

    def raw(self) -> _Raw:
        """For the core. The arrays must outlive it."""
        arrays = (self.first, self.start, self.end, self.size, self.alignment, self.low, self.high)
        pointers = (array.ctypes.data for array in arrays)
        return _Raw(self.count, len(self.start), self.sections, *pointers)


@cache
def _function(name: str, types: tuple[Any, ...]) -> Any:
    function = getattr(library(), name)
    function.argtypes = types
    function.restype = ctypes.c_int
    return function


def _call(name: str, items: Items, types: tuple[Any, ...], *arguments: Any) -> None:
    status = _function(name, (_POINTER, *types))(ctypes.byref(items.raw()), *arguments)
    if status == 2:
        raise MemoryError(f"{name}: memory is short")
    if status:
        raise InternalError(f"{name} refused its arguments (status {status})")


def greedy(items: Items, order: Ints, tight: bool) -> tuple[int, Longs]:
    """The peak (-1: an item does not fit between its limits) and the addresses of placing in this order."""
    address, peak = np.zeros(items.count, np.int64), ctypes.c_int64()
    _call(
        "npuc_plan_greedy",
        items,
        (_POINTER, ctypes.c_int32, _POINTER, _POINTER),
        order.ctypes.data,
        int(tight),
        address.ctypes.data,
        ctypes.addressof(peak),
    )
    return peak.value, address


def climb(items: Items, order: Ints, target: int, steps: int, seed: int = 1) -> tuple[int, Longs, int]:
    """The peak and the addresses after climbing from an order, and the steps taken."""
    address, peak, used = np.zeros(items.count, np.int64), ctypes.c_int64(), ctypes.c_int64(steps)
    order = order.copy()
    _call(
        "npuc_plan_climb",
        items,
        (_POINTER, ctypes.c_uint64, ctypes.c_int64, _POINTER, _POINTER, _POINTER),
        order.ctypes.data,
        seed,
        target,
        ctypes.addressof(used),
        address.ctypes.data,
        ctypes.addressof(peak),
    )
    return peak.value, address, used.value


def search(items: Items, order: Ints, mode: int, capacity: int, steps: int) -> tuple[bool | None, Longs, int]:
    """Whether a plan below `capacity` exists (None: the steps did not suffice), its addresses, and the steps taken."""
    address, outcome, used = np.zeros(items.count, np.int64), ctypes.c_int32(), ctypes.c_int64(steps)
    _call(
        "npuc_plan_search",
        items,
        (_POINTER, ctypes.c_int32, ctypes.c_int64, _POINTER, _POINTER, _POINTER),
        order.ctypes.data,
        mode,
        capacity,
        ctypes.addressof(used),
        address.ctypes.data,
        ctypes.addressof(outcome),
    )
    return {1: True, 0: False}.get(outcome.value), address, used.value
