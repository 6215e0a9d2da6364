"""Statistics of float tensors by the native core: extremes, sums and a histogram in one call.

The histogram covers [-2^e, 2^e) and grows by doubling `e`, merging neighbouring bins: all counts stay exact, so one
pass over any amount of data is enough and needs the memory of one histogram. NaN and values beyond a bound are counted
and left out.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.native import library

EMPTY = -(2**31)
"""The exponent of statistics that have seen no value."""
PORTABLE = 1
"""Flag: no instructions beyond the baseline; the same bits result."""
_STATUS = {1: "an argument makes no sense", 2: "out of memory", 3: "not supported"}


class RawStatistics(ctypes.Structure):
    """`npuc_statistics` of native/include/npuc/observe.h."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("nans", ctypes.c_int64),
        ("infinite", ctypes.c_int64),
        ("sum", ctypes.c_double),
        ("square", ctypes.c_double),
        ("absolute", ctypes.c_double),
        ("min", ctypes.c_float),
        ("max", ctypes.c_float),
        ("batch_min", ctypes.c_float),
        ("batch_max", ctypes.c_float),
        ("batch_count", ctypes.c_int64),
        ("exponent", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


def empty_statistics() -> RawStatistics:
    """Statistics of nothing.

    >>> empty_statistics().count
    0
    """
    return RawStatistics(exponent=EMPTY)


def observe(
    values: Array,
    statistics: RawStatistics,
    histogram: Array,
    tail: Array,
    *,
    bound: float,
    tail_ratio: float,
    flags: int = 0,
) -> None:
    """Take a tensor of float32 into `statistics`, `histogram` (uint64) and `tail` (uint64, half as long).

    >>> statistics, histogram = empty_statistics(), np.zeros(16, np.uint64)
    >>> observe(np.float32([-1, 3]), statistics, histogram, np.zeros(8, np.uint64), bound=1e30, tail_ratio=0)
    >>> statistics.max, int(histogram.sum())
    (3.0, 2)
    """
    values = _floats(values)
    for name, array, size in (("histogram", histogram, histogram.size), ("tail", tail, histogram.size // 2)):
        if array.dtype != np.uint64 or not array.flags.c_contiguous or array.size != size:
            raise ValueError(f"{name}: a contiguous array of {size} uint64 is needed")
    function, _ = _functions()
    _check(
        function(
            _address(values),
            values.size,
            bound,
            histogram.size,
            tail_ratio,
            flags,
            ctypes.byref(statistics),
            _address(histogram),
            _address(tail),
        )
    )


def observe_channels(values: Array, axis: int, minimum: Array, maximum: Array, *, bound: float) -> None:
    """Widen `minimum` and `maximum` (float32, one entry a channel) by the values of each channel of a tensor.

    >>> low, high = np.full(2, np.inf, np.float32), np.full(2, -np.inf, np.float32)
    >>> observe_channels(np.float32([[1, 2], [3, 0]]), 1, low, high, bound=1e30)
    >>> low.tolist(), high.tolist()
    ([1.0, 0.0], [3.0, 2.0])
    """
    values = _floats(values)
    axis %= values.ndim
    outer, channels, inner = (
        int(np.prod(part, dtype=np.int64))
        for part in (values.shape[:axis], values.shape[axis : axis + 1], values.shape[axis + 1 :])
    )
    for array in (minimum, maximum):
        if array.dtype != np.float32 or not array.flags.c_contiguous or array.size != channels:
            raise ValueError(f"a contiguous array of {channels} float32 is needed")
    _, function = _functions()
    _check(function(_address(values), outer, channels, inner, bound, _address(minimum), _address(maximum)))


@cache
def _functions() -> tuple[Any, Any]:
    core = library()
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    core.npuc_observe.restype = core.npuc_observe_channels.restype = ctypes.c_int
    core.npuc_observe.argtypes = [
        pointer,
        size,
        ctypes.c_float,
        ctypes.c_int32,
        ctypes.c_double,
        ctypes.c_int32,
        ctypes.POINTER(RawStatistics),
        pointer,
        pointer,
    ]
    core.npuc_observe_channels.argtypes = [pointer, size, size, size, ctypes.c_float, pointer, pointer]
    return core.npuc_observe, core.npuc_observe_channels


def _address(array: Array) -> int:
    # `array.ctypes` would make a reference cycle, which keeps the array until the next garbage collection.
    address: int = array.__array_interface__["data"][0]
    return address


def _floats(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float32)


def _check(status: int) -> None:
    if status == 2:
        raise MemoryError
    if status:
        raise ValueError(f"npuc_observe: {_STATUS.get(status, status)}")
