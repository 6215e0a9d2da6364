"""The slow, obvious model of the integer arithmetic: NumPy int64 (and Python integers), written for clarity.

It is written from the contract (docs/arithmetic.md), not from the kernels, and shares no code with them.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from npuc.arrays import Array


def half_up(x: int, s: int) -> int:
    """x / 2^s, ties towards +infinity."""
    return x << -s if s <= 0 else floor(Fraction(x, 2**s) + Fraction(1, 2))


def half_even(x: int, s: int) -> int:
    """x / 2^s, ties to even."""
    return x << -s if s <= 0 else round(Fraction(x, 2**s))


def srdhm(a: int, b: int) -> int:
    """Doubling high multiplication as gemmlowp rounds it."""
    if a == b == -(2**31):
        return 2**31 - 1
    ab = a * b + (2**30 if a * b >= 0 else 1 - 2**30)
    return abs(ab) // 2**31 * (1 if ab >= 0 else -1)


def rdbp(x: int, s: int) -> int:
    """x / 2^s, ties away from zero."""
    mask = 2**s - 1
    return (x >> s) + int((x & mask) > (mask >> 1) + (x < 0))


def wrap32(x: int) -> int:
    """The low 32 bits as a signed number."""
    return (x + 2**31) % 2**32 - 2**31


def requantize(
    acc: int, kind: str, multiplier: int | float, shift: int, zero_point: int, lo: int, hi: int
) -> int:
    """sat(zero_point + rq(acc), lo, hi) for one accumulator."""
    if kind == "double_rounding":
        e = 31 - shift
        y = 0 if -e > 31 else rdbp(srdhm(wrap32(acc << max(e, 0)), int(multiplier)), max(-e, 0))
    elif kind == "single_rounding":
        y = half_up(acc * int(multiplier), shift)
    elif kind == "single_even":
        y = half_even(acc * int(multiplier), shift)
    elif kind == "pow2":
        y = half_up(acc, shift)
    elif kind == "float_scale":
        scaled = np.float32(acc) * np.float32(multiplier)
        y = int(np.rint(np.clip(scaled, np.float32(-(2**31)), np.float32(2**31 - 128))))
    else:
        raise ValueError(kind)
    return min(max(y + zero_point, lo), hi)


def requantize_array(
    acc: Array,
    kind: str,
    multiplier: Any,
    shift: Any,
    zero_point: int,
    lo: int,
    hi: int,
    channel_axis: int = 1,
) -> Array:
    """`requantize` over an array; multiplier and shift are scalars or one an entry of `channel_axis`."""
    multipliers, shifts = np.atleast_1d(multiplier), np.atleast_1d(shift)
    out = np.empty(acc.shape, np.int64)
    for index in np.ndindex(*acc.shape):
        c = index[channel_axis] if max(multipliers.size, shifts.size) > 1 else 0
        m = multipliers[c if multipliers.size > 1 else 0].item()
        s = shifts[c if shifts.size > 1 else 0].item()
        out[index] = requantize(int(acc[index]), kind, m, int(s), zero_point, lo, hi)
    return out
