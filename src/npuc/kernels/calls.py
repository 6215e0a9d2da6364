"""What the bindings of the vector kernels share: declared functions, element types, strides and statuses.

A function of the core is declared once, by the short type names below, and called through `call`, which turns a status
other than 0 into a `ValueError`. The bindings check shapes and types themselves, with words; a status is the last net.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.kernels.requant import Requant
from npuc.kernels.tape import contiguous, current, empty
from npuc.native import library

__all__ = [
    "CODES",
    "RawRequant",
    "RawView",
    "address",
    "broadcast_views",
    "call",
    "check_status",
    "check_zero_point",
    "code",
    "contiguous",
    "declared",
    "empty",
    "raw_requant",
    "status_words",
]

CODES: dict[np.dtype[Any], int] = {
    dtype.numpy: dtype.code for dtype in map(dtype_of, ("i8", "ui8", "i16", "i32")) if dtype.code is not None
}
"""`npuc_dtype` of NumPy's types."""

_STATUS = {
    1: "an argument makes no sense",
    2: "memory is short",
    3: "this combination of types has no kernel",
}
_TYPES = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int32,
    "l": ctypes.c_int64,
    "f": ctypes.c_float,
}


class RawRequant(ctypes.Structure):
    """`npuc_requant` of native/include/npuc/kernels.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("multiplier", ctypes.c_void_p),
        ("shift", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("zero_point", ctypes.c_int32),
        ("lo", ctypes.c_int32),
        ("hi", ctypes.c_int32),
    )


class RawView(ctypes.Structure):
    """`npuc_view` of native/include/npuc/vector.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("stride", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("zero_point", ctypes.c_int32),
    )


@cache
def declared(name: str, types: str) -> Any:
    """A function of the core; `types` has a letter an argument, as for `call`."""
    function = getattr(library(), name)
    function.argtypes = [_TYPES[letter] for letter in types]
    function.restype = ctypes.c_int
    return function


def address(array: Array) -> int:
    """Where an array's memory starts: `array.ctypes.data`, but without the 2 µs that this takes where it can be."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # read-only, strided or empty
        return array.ctypes.data


def call(name: str, types: str, *arguments: Any) -> None:
    """Call a function of the core; `types` has a letter an argument: pointer, int32, int64 (l) or float."""
    passed = [a if type(a) is int or type(a) is float else _passed(a) for a in arguments]
    function, tape = declared(name, types), current()
    if tape is not None:
        cells = tape.cells
        placed = [
            cells.get(a, a) if isinstance(a, int) and t == "p" else a
            for a, t in zip(passed, types, strict=True)
        ]
        tape.calls.append(partial(function, *placed))
        tape.kept.append(arguments)
        return
    check_status(name, function(*passed))


def check_status(name: str, status: int) -> None:
    """Raise what a function of the core says by a status other than 0."""
    if status:
        raise ValueError(f"{name}: {status_words(status)}")


def _passed(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return address(argument)
    return ctypes.addressof(argument) if isinstance(argument, ctypes.Structure) else argument


def status_words(status: int) -> str:
    """What a status other than 0 means."""
    return _STATUS.get(status, f"status {status}")


@lru_cache(maxsize=1024)
def code(dtype: Any, what: str, allowed: tuple[str, ...] = ("int8", "uint8", "int16")) -> int:
    """The `npuc_dtype` of an array's type, which must be one of `allowed`."""
    dtype = np.dtype(dtype)
    if dtype.name not in allowed:
        raise ValueError(f"{what} must be {' or '.join(allowed)}, not {dtype.name}")
    return CODES[dtype]


@lru_cache(maxsize=1024)
def check_zero_point(zero_point: int, dtype: Any, what: str) -> None:
    """A zero point is a value of its type."""
    limits = np.iinfo(np.dtype(dtype))
    if not limits.min <= zero_point <= limits.max:
        raise ValueError(f"the zero point of {what}, {zero_point}, is no {np.dtype(dtype).name}")


def raw_requant(rq: Requant, dtype: Any, entries: int | None = None) -> RawRequant:
    """`npuc_requant` of an output stage of `dtype`; `entries` is the number of parameters that it must have."""
    limits = np.iinfo(np.dtype(dtype))
    if not limits.min <= rq.lo <= rq.hi <= limits.max:
        raise ValueError(f"the output range {rq.lo}..{rq.hi} does not fit {np.dtype(dtype).name}")
    check_zero_point(rq.zero_point, dtype, "the output")
    if entries is not None and rq.count != entries:
        raise ValueError(f"the output stage has {rq.count} entries, not {entries}")
    pointers = {
        name: None if array is None else array.ctypes.data
        for name, array in (("multiplier", rq.multiplier), ("shift", rq.shift), ("scale", rq.scale))
    }
    raw = RawRequant(
        kind=rq.kind.code, count=rq.count, zero_point=rq.zero_point, lo=rq.lo, hi=rq.hi, **pointers
    )
    raw.keep = rq  # the memory behind the pointers lives as long as they do
    return raw


def broadcast_views(
    a: Array, b: Array, zero_a: int, zero_b: int
) -> tuple[tuple[int, ...], RawView, RawView, Array]:
    """The shape of `a op b`, both operands as `npuc_view`, and the shape as the core takes it."""
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(f"the shapes {a.shape} and {b.shape} do not broadcast") from None
    if len(shape) > 8:
        raise ValueError(f"the result has {len(shape)} dimensions; the kernels have at most 8")
    views = []
    for array, zero, what in ((a, zero_a, "a"), (b, zero_b, "b")):
        dtype = code(array.dtype, what)
        check_zero_point(zero, array.dtype, what)
        spread = np.broadcast_to(array, shape)
        strides = np.array([s // array.itemsize for s in spread.strides] or [0], np.int64)
        view = RawView(data=array.ctypes.data, stride=strides.ctypes.data, dtype=dtype, zero_point=zero)
        view.keep = (array, strides)
        views.append(view)
    return shape, views[0], views[1], np.array(shape or (1,), np.int64)
