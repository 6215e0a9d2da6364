"""Rounding to block floating point, as docs/arithmetic-float.md defines it: for evaluation, so plain NumPy."""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array, ceil_div

BLOCK = 16
"""Elements that share an exponent."""
PAIR = 2
"""Elements that share the bit that lowers it by one."""
MANTISSA = {"mx6": 4, "mx9": 7}
"""Bits of a magnitude; the sign is one more."""
_LEAST = -126


def block_round(x: Array, axis: int, kind: str) -> Array:
    """float32 rounded to the nearest that a block holds, ties to even; values that are not finite stay.

    >>> block_round(np.float32([10, 20, 30, 40]), 0, "mx6").tolist()
    [10.0, 20.0, 32.0, 40.0]
    """
    bits = MANTISSA[kind]
    moved = np.moveaxis(np.asarray(x, np.float32), axis, -1)
    length = moved.shape[-1]
    padded = np.zeros((*moved.shape[:-1], ceil_div(length, BLOCK) * BLOCK), np.float32)
    padded[..., :length] = np.where(np.isfinite(moved), moved, 0)
    pairs = padded.reshape(*moved.shape[:-1], -1, BLOCK // PAIR, PAIR)
    # frexp gives [0.5, 1) * 2^e; the exponent of 1.m is one less.
    top = _exponent(np.abs(pairs).max(axis=(-2, -1), keepdims=True))
    own = _exponent(np.abs(pairs).max(axis=-1, keepdims=True))
    step = np.exp2((np.where(own < top, top - 1, top) - (bits - 1)).astype(np.float64))
    most = 2.0**bits - 1
    held = np.clip(np.rint(pairs / step), -most, most) * step
    rounded = np.moveaxis(held.reshape(padded.shape)[..., :length], -1, axis).astype(np.float32)
    return np.ascontiguousarray(np.where(np.isfinite(x), rounded, x))


def _exponent(largest: Array) -> Array:
    exponent: Array = np.maximum(np.frexp(largest)[1] - 1, _LEAST)
    return np.where(largest > 0, exponent, _LEAST)
