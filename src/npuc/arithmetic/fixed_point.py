"""The 16-bit sigmoid and tanh of TFLite's integer LSTM, as tables of all 65536 inputs.

They are the fixed-point algorithms of gemmlowp: an exponential by a Taylor series around -1/8 and a product of known
powers of e, then a reciprocal by Newton's method. A number with k integer bits has 15 - k bits behind the point. Every
step rounds or wraps as 16-bit registers do, so that the tables hold the algorithm's bits and not the best ones.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from npuc.arrays import Array

_ONE = 32767
"""1 without integer bits, as near as 16 bits come."""
_ONE_2 = 1 << 13
"""1 with two integer bits."""
_POWERS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""n and exp(-2^n) in 31 bits."""  # fmt: skip


def _wrapped(x: Array) -> Array:
    return ((x + 32768) & 0xFFFF) - 32768


def _saturated(x: Array) -> Array:
    return np.clip(x, -32768, 32767)


def _halved(x: Array, shift: int) -> Array:
    """x / 2^shift, ties away from zero."""
    return (x + (1 << (shift - 1)) - (x < 0)) >> shift


def _constant(value: int) -> int:
    """A constant of 31 bits in 15."""
    return int(_halved(np.asarray(value), 16))


def _product(a: Array | int, b: Array | int) -> Array:
    """The high half of the doubled product, rounded up at ties; -1 * -1 is the largest number."""
    exact: Array = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    rounded: Array = np.minimum((exact + (1 << 14)) >> 15, 32767)
    return rounded


def _exp_near(a: Array) -> Array:
    """exp of -1/4 to 0: e^(-1/8) * (1 + x + x^2 / 2 + x^3 / 6 + x^4 / 24), x = a + 1/8."""
    term = _constant(1895147668)
    x = _wrapped(a + (1 << 12))
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    third = _product(_wrapped(_halved(fourth, 2) + cube), _constant(715827883))
    return _saturated(term + _product(term, _wrapped(x + _halved(_wrapped(third + square), 1))))


def _exp(a: Array, integer_bits: int) -> Array:
    """exp of numbers up to 0, without integer bits."""
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2) if fraction >= 2 else 0
    near = (a & (quarter - 1)) - quarter
    y = _exp_near(_saturated(near << integer_bits))
    rest = _wrapped(near - a)
    for exponent, factor in _POWERS:
        if integer_bits > exponent:
            taken = (rest & (1 << (fraction + exponent))) != 0
            y = np.where(taken, _product(y, _constant(factor)), y)
    if integer_bits > 5:
        y = np.where(a < -(1 << (fraction + 5)), 0, y)
    return np.where(a == 0, _ONE, y)


def _reciprocal(a: Array) -> Array:
    """2 / (1 + a) for a of 0 to 1, with two integer bits."""
    half = (a + _ONE + 1) >> 1
    x = _wrapped(_constant(1515870810) + _product(half, _constant(-1010580540)))
    for _ in range(3):
        error = _wrapped(_ONE_2 - _product(half, x))
        x = _wrapped(x + _saturated(_product(x, error) << 2))
    return x


@cache
def sigmoid_table() -> Array:
    """Entry i: sigmoid of i - 32768 with three integer bits, without integer bits.

    >>> sigmoid_table()[32768].item()
    16384
    """
    a = np.arange(-32768, 32768)
    positive = _saturated(_reciprocal(_exp(-np.abs(a), 3)) << 1)
    y = np.where(a > 0, positive, _wrapped(_ONE - positive))
    return np.where(a == 0, 1 << 14, y).astype(np.int16)


@cache
def tanh_table(integer_bits: int) -> Array:
    """Entry i: tanh of i - 32768 with some integer bits (0 to 6), without integer bits.

    >>> tanh_table(3)[32768].item()
    0
    """
    a = np.arange(-32768, 32768)
    # 1 - 2t / (1 + t) with t = exp(-2 |a|); twice a number has one integer bit more.
    positive = _saturated(_wrapped(_reciprocal(_exp(-np.abs(a), integer_bits + 1)) - _ONE_2) << 2)
    return np.where(a == 0, 0, np.where(a < 0, _wrapped(-positive), positive)).astype(np.int16)
