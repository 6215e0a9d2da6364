"""Slow models of the elementwise kernels, from docs/arithmetic-eltwise.md."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from support.oracles.integers import half_even, half_up, requantize, wrap32


def add_one(p: Any, a: int, b: int, sign: int, zero_point: int, lo: int, hi: int) -> int:
    """One element of an addition; a and b without their zero points."""
    wide = -(2**40), 2**40
    if p.kind == "double_rounding":
        of_a = requantize(wrap32(a << p.left), "double_rounding", p.multiplier_a, p.shift_a, 0, *wide)
        of_b = requantize(wrap32(b << p.left), "double_rounding", p.multiplier_b, p.shift_b, 0, *wide)
        y = requantize(of_a + sign * of_b, "double_rounding", p.multiplier, p.shift, 0, *wide)
    elif p.kind == "pow2":
        y = half_up((a << p.shift_a) + sign * (b << p.shift_b), p.shift)
    elif p.kind == "float_scale":
        y = int(np.rint(np.float32(a) * np.float32(p.scale_a) + np.float32(sign * b) * np.float32(p.scale_b)))
    else:
        rounding = half_up if p.kind == "single_rounding" else half_even
        y = rounding(a * p.multiplier_a + sign * b * p.multiplier_b, p.shift)
    return min(max(y + zero_point, lo), hi)


def add(
    p: Any, a: Array, b: Array, zero_a: int, zero_b: int, zero_point: int, lo: int, hi: int, subtract: bool
) -> Array:
    """Addition or subtraction of broadcast arrays."""
    wide_a, wide_b = np.broadcast_arrays(a.astype(np.int64) - zero_a, b.astype(np.int64) - zero_b)
    out = np.empty(wide_a.shape, np.int64)
    for index in np.ndindex(*wide_a.shape):
        pair = int(wide_a[index]), int(wide_b[index])
        out[index] = add_one(p, *pair, -1 if subtract else 1, zero_point, lo, hi)
    return out


def quantize(x: Array, scale: float, zero_point: int, lo: int, hi: int, even: bool) -> Array:
    """float32 to integers, an element at a time."""
    out = np.empty(x.shape, np.int64)
    for index in np.ndindex(*x.shape):
        with np.errstate(all="ignore"):
            ratio = float(np.float32(x[index]) / np.float32(scale))
        if np.isnan(ratio):
            steps = 0
        elif np.isinf(ratio):
            steps = int(np.copysign(2**40, ratio))
        elif even:
            steps = round(ratio)
        else:
            steps = int(np.copysign(np.floor(abs(ratio) + 0.5), ratio))
        out[index] = min(max(steps + zero_point, lo), hi)
    return out
