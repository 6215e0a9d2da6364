"""Softmax of integers: TFLite's algorithms under `double_rounding`, one of our own under the other kinds.

`softmax_parameters` computes what the kernel needs, offline in float64; `softmax` runs it over any axis. The arithmetic
is docs/arithmetic-softmax.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import exp, floor
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind, kind_named
from npuc.arithmetic.requantization import quantize_multiplier, round_away
from npuc.arrays import Array
from npuc.kernels.calls import call, check_zero_point, code, contiguous, empty
from npuc.kernels.tape import do

_DOUBLE_OUTPUTS = {
    ("int8", "int8"): (1 / 256, -128),
    ("uint8", "uint8"): (1 / 256, 0),
    ("int8", "int16"): (1 / 65536, -32768),
    ("int16", "int16"): (1 / 32768, 0),
}


@dataclass(frozen=True)
class SoftmaxParameters:
    """A softmax of one input type to one output type; `left` and `diff_min` are TFLite's."""

    kind: str
    x_dtype: str
    dtype: str
    multiplier: int
    shift: int
    left: int = 0
    diff_min: int = 0
    tables: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    zero_point: int = 0


def softmax_parameters(
    kind: str, scale_x: float, scale_y: float, zero_point: int, x_dtype: Any, dtype: Any, beta: float = 1.0
) -> SoftmaxParameters:
    """What `softmax` needs for these scales and types; `ValueError` where the kind does not define it.

    >>> softmax_parameters("double_rounding", 0.1, 1 / 256, -128, np.int8, np.int8).left
    23
    """
    source, target = np.dtype(x_dtype).name, np.dtype(dtype).name
    code(source, "x")
    code(target, "the output")
    check_zero_point(zero_point, target, "the output")
    kind = kind_named(kind)
    for name, value in (("scale of x", scale_x), ("scale of y", scale_y), ("beta", beta)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"the {name} is {value!r}; it must be a positive number")
    if kind != Kind.DOUBLE_ROUNDING:
        multiplier, shift = quantize_multiplier(1 / scale_y)
        tables = _exponentials(beta * scale_x * 256), _exponentials(beta * scale_x)
        return SoftmaxParameters(
            kind, source, target, multiplier, shift, tables=tables, zero_point=zero_point
        )
    defined = _DOUBLE_OUTPUTS.get((source, target))
    if defined is None:
        raise ValueError(f"TFLite has no softmax from {source} to {target}")
    if (scale_y, zero_point) != defined:
        raise ValueError(
            f"a softmax of kind {kind} to {target} has scale {defined[0]:g} and zero point {defined[1]}, "
            f"not {scale_y:g} and {zero_point}"
        )
    if source == "int16":
        multiplier, shift = quantize_multiplier(scale_x * beta / (10.0 / 65535.0))
        if shift < 16:
            raise ValueError(f"a scale of {scale_x:g} is too large for a 16-bit softmax")
        return SoftmaxParameters(kind, source, target, multiplier, shift, tables=tflite_tables())
    multiplier, shift = quantize_multiplier(min(beta * scale_x * 2.0**26, 2.0**31 - 1))
    left = 31 - shift
    if left < 0:
        raise ValueError(f"a scale of {scale_x:g} is too small for an 8-bit softmax")
    # Beyond this many differences the shifted difference would leave 32 bits; their exponential is 0 in any case.
    diff_min = max(-floor(31 * 2.0**26 / 2.0**left), -(2 ** (31 - left)))
    return SoftmaxParameters(kind, source, target, multiplier, shift, left=left, diff_min=diff_min)


def softmax(
    x: Array,
    parameters: SoftmaxParameters,
    *,
    axis: int = -1,
    lo: int | None = None,
    hi: int | None = None,
    threads: int = 1,
) -> Array:
    """Softmax over an axis.

    >>> p = softmax_parameters("single_rounding", 0.1, 1 / 256, -128, np.int8, np.int8)
    >>> softmax(np.int8([[0, 10, -10]]), p).tolist()
    [[-65, 42, -105]]
    """
    p = parameters
    if x.dtype.name != p.x_dtype:
        raise ValueError(f"x must be {p.x_dtype}, not {x.dtype.name}")
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"there is no axis {axis} in a tensor of {x.ndim} dimensions")
    moved = contiguous(np.moveaxis(x, axis, -1))
    width = moved.shape[-1]
    check_width(p.kind, p.x_dtype, width)
    rows = moved.size // width if width else 0
    y = empty(moved.shape, p.dtype)
    limits = np.iinfo(p.dtype)
    low, high = int(limits.min) if lo is None else lo, int(limits.max) if hi is None else hi
    code_x, code_y = code(x.dtype, "x"), code(y.dtype, "the output")
    if p.kind != Kind.DOUBLE_ROUNDING:
        coarse, fine = (np.array(table, np.uint32) for table in p.tables)
        rounding = kind_named(p.kind).row_rounding.code
        call(
            "npuc_softmax", "pillppiiiiiiipi",
            moved, code_x, rows, width, coarse, fine, p.multiplier, p.shift, rounding,
            p.zero_point, low, high, code_y, y, threads,
        )  # fmt: skip
    elif p.x_dtype == "int16":
        exps, inverses = (np.array(table, np.int16) for table in p.tables)
        call(
            "npuc_softmax_tflite16", "plliipppi",
            moved, rows, width, p.multiplier, p.shift, exps, inverses, y, threads,
        )  # fmt: skip
    else:
        call(
            "npuc_softmax_tflite8", "pilliiiipi",
            moved, code_x, rows, width, p.multiplier, p.left, p.diff_min, code_y, y, threads,
        )  # fmt: skip
    if p.kind == Kind.DOUBLE_ROUNDING and (low, high) != (limits.min, limits.max):
        do(_clamp, y, low, high)
    return np.moveaxis(y, -1, axis)


@cache
def tflite_tables() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """TFLite's tables of exp on [-10, 0] and 1 / (1 + x) on [0, 1] as Q0.15, corrected at their midpoints.

    >>> tflite_tables()[0][512], tflite_tables()[1][0]
    (32767, 32767)
    """
    return _corrected(exp, -10.0, 0.0), _corrected(lambda x: 1 / (1 + x), 0.0, 1.0)


def _corrected(f: Callable[[float], float], low: float, high: float) -> tuple[int, ...]:
    def whole(value: float) -> int:
        return int(round_away(value))

    step = (high - low) / 512
    entries = []
    for i in range(512):
        start, end = f(low + i * step) * 32768, f(low + (i + 1) * step) * 32768
        middle = f(low + i * step + step / 2) * 32768
        error = whole((end + whole(start)) / 2) - whole(middle)
        entries.append(whole(start) - whole(error / 2))
    entries.append(whole(f(high) * 32768))
    return tuple(min(max(entry, -32768), 32767) for entry in entries)


def _exponentials(step: float) -> tuple[int, ...]:
    return tuple(int(v) for v in round_away(2.0**30 * np.exp(-step * np.arange(256, dtype=np.float64))))


def _clamp(y: Array, lo: int, hi: int) -> None:
    np.clip(y, lo, hi, out=y)


def check_width(kind: str, x_dtype: str, width: int) -> None:
    """Whether a row fits TFLite's accumulator; `ValueError` where it does not.

    >>> check_width("double_rounding", "int8", 6625)
    Traceback (most recent call last):
    ValueError: TFLite's softmax takes at most 4,095 elements a row in 8 bits, not 6,625
    """
    if kind != Kind.DOUBLE_ROUNDING:
        return
    most, bits = (65535, 16) if x_dtype == "int16" else (4095, 8)
    if width > most:
        raise ValueError(
            f"TFLite's softmax takes at most {most:,} elements a row in {bits} bits, not {width:,}"
        )
