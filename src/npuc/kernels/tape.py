"""A tape: what a step would do, written down once and played many times.

While a tape is recording (in this thread), the bindings call nothing: a call of the core is noted with its arguments as
the core takes them, memory comes from the tape's owner, and copies are noted too. Played, it does the same to whatever
the same memory then holds, without the cost of preparing each call. This holds for steps made of views, of bindings that
get their memory from `empty` and `contiguous`, and of `copy` and `do`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from npuc.arrays import Array

Call = Callable[[], Any]
"""Something to do; a result other than 0 or None is the status of a failure."""


class Tape:
    """Calls to be made later; `new` gives the memory of results."""

    def __init__(
        self, new: Callable[[Sequence[int], Any], Array], cells: Mapping[int, ctypes.c_void_p] | None = None
    ) -> None:
        self.new = new
        self.cells = cells or {}
        """For addresses that change from run to run, what holds the one of the moment."""
        self.calls: list[Call] = []
        self.kept: list[Any] = []
        """What the addresses in the calls point to."""


_FEW = 16
_here = threading.local()


def current() -> Tape | None:
    """The tape that is recording in this thread."""
    return getattr(_here, "tape", None)


@contextmanager
def recording(tape: Tape) -> Iterator[Tape]:
    """Note what the bindings are asked for instead of doing it."""
    assert current() is None
    _here.tape = tape
    try:
        yield tape
    finally:
        _here.tape = None


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """Memory for a result: dense, with nothing in it yet."""
    tape = current()
    return np.empty(shape, dtype) if tape is None else tape.new(shape, np.dtype(dtype))


def contiguous(array: Array) -> Array:
    """The array itself if its memory is dense, in order and aligned to its elements, or a copy that is."""
    is_dense = array.flags.c_contiguous and array.flags.aligned
    if type(array) is np.ndarray and is_dense:
        return array
    tape = current()
    if tape is None or is_dense:
        # ascontiguousarray would give a scalar an axis
        return np.require(array, requirements=("C", "A", "E"))
    dense = tape.new(array.shape, array.dtype)
    copy(dense, array)
    return dense


def copy(to: Array, source: Array) -> None:
    """Copy elements; runs that are dense on both sides move as one."""
    if to.ndim and to.dtype == source.dtype and to.shape == source.shape:
        unit = to.itemsize
        inner = next(
            (axis for axis in range(to.ndim) if to.strides[axis] == unit and to.shape[axis] > 1), None
        )
        if to.strides[-1] == source.strides[-1] == unit and to.shape[-1] > 1:
            if not (to.flags.c_contiguous and source.flags.c_contiguous):
                # NumPy moves an element of many bytes faster than many elements of one.
                element = f"V{to.shape[-1] * unit}"
                to, source = to.view(element)[..., 0], source.view(element)[..., 0]
        elif (
            inner is not None and to.shape[inner] <= _FEW < to.size // _FEW and source.strides[inner] != unit
        ):
            # A few channels, innermost on one side only: channel by channel, the loops are long.
            for channel in range(to.shape[inner]):
                where: Any = (*(slice(None),) * inner, channel, ...)
                do(np.copyto, to[where], source[where])
            return
    do(np.copyto, to, source)


def do(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Call a function that writes to memory from `empty` and returns None, now or when the tape is played."""
    tape = current()
    if tape is None:
        function(*arguments, **options)
    else:
        tape.calls.append(partial(function, *arguments, **options))
