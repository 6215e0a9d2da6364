"""Divisions by powers of two, and requantization, of docs/arithmetic.md: the same formulas over an `Algebra`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind, Rounding
from npuc.arrays import Array
from npuc.export.exact.algebra import Algebra, T, int64

_WIDE = 24
"""A sum times a multiplier that int64 does not hold is multiplied in two parts, the lower one of so many bits."""


class NoExactForm(Exception):
    """An op has no form over int64; the message says why."""


@dataclass(frozen=True)
class Stage:
    """An output stage: its kind, its numbers (scalars, or arrays that broadcast to the sums), zero point and limits."""

    kind: Kind
    multiplier: Array
    shift: Array
    scale: Array
    zero_point: int
    lo: int
    hi: int


def power(shift: Any) -> Array:
    """2 to the shifts."""
    return np.left_shift(int64(1), int64(shift))


def half(shift: Any) -> Array:
    """Half of 2 to the shifts; 0 where nothing is shifted out."""
    shifts = int64(shift)
    return np.where(shifts > 0, np.left_shift(int64(1), np.maximum(shifts - 1, 0)), 0)


def half_up(a: Algebra, x: T, shift: Any) -> T:
    """x / 2^shift, ties towards +infinity."""
    if not np.any(int64(shift)):
        return x
    return a.floor_div(a.add(x, half(shift)), power(shift))


def half_even(a: Algebra, x: T, shift: Any) -> T:
    """x / 2^shift, ties to even: half up, less one where that was a tie and gave an odd number."""
    if not np.any(int64(shift)):
        return x
    raised = a.add(x, half(shift))
    quotient = a.floor_div(raised, power(shift))
    return a.sub(
        quotient, _odd_tie(a, quotient, a.apply("equal", raised, a.mul(quotient, power(shift))), shift)
    )


def _odd_tie(a: Algebra, quotient: T, exact: T, shift: Any) -> T:
    odd = a.sub(quotient, a.mul(a.floor_div(quotient, 2), 2))
    shifted = (int64(shift) > 0).astype(np.int64)
    return a.mul(a.mul(odd, a.cast(exact, "i64")), shifted)


def half_away(a: Algebra, x: T, shift: int) -> T:
    """gemmlowp's rounding division: ties away from zero."""
    if shift < 1:
        return x
    if shift > 31:
        return a.mul(x, 0)
    negative = a.cast(a.apply("less", x, int64(0)), "i64")
    return a.floor_div(a.sub(a.add(x, half(shift)), negative), power(shift))


def doubling_high(a: Algebra, x: T, y: T) -> T:
    """srdhm of 32-bit numbers whose product is not negative where both are the least: (xy + 2^30) >> 31."""
    return half_up(a, a.mul(x, y), 31)


def wrapped(a: Algebra, x: T) -> T:
    """Modulo 2^32, as a signed number."""
    raised = a.add(x, int64(1 << 31))
    return a.sub(a.sub(raised, a.mul(a.floor_div(raised, int64(1 << 32)), int64(1 << 32))), int64(1 << 31))


def requantized(a: Algebra, acc: T, stage: Stage, reach: int) -> T:
    """y = sat(z + rq(acc), lo, hi) in int64; `reach` bounds |acc|."""
    return limited(a, _scaled(a, acc, stage, reach), stage)


def limited(a: Algebra, x: T, stage: Stage) -> T:
    """sat(z + x, lo, hi)"""
    return a.clip(a.add(x, int64(stage.zero_point)), int64(stage.lo), int64(stage.hi))


def _scaled(a: Algebra, acc: T, stage: Stage, reach: int) -> T:
    m, shift = int64(stage.multiplier), int64(stage.shift)
    match stage.kind:
        case Kind.FLOAT_SCALE:
            product = a.mul(a.cast(acc, "f32"), stage.scale.astype(np.float32))
            return whole(a, a.apply("round_even", product))
        case Kind.POW2:
            left, right = np.maximum(-shift, 0), np.maximum(shift, 0)
            return half_up(a, a.mul(acc, power(left)) if left.any() else acc, right)
        case Kind.DOUBLE_ROUNDING:
            return doubled(a, acc, m, shift)
        case _:
            even = stage.kind.rounding is Rounding.HALF_EVEN
            if reach * int(m.max(initial=0)) + (1 << max(int(shift.max(initial=0)) - 1, 0)) < 1 << 63:
                return (half_even if even else half_up)(a, a.mul(acc, m), shift)
            return _in_two_parts(a, acc, m, shift, even)


def whole(a: Algebra, x: T) -> T:
    """A float32 that is a whole number, or beyond every output, as int64."""
    bound = np.float32(1 << 30)
    return a.cast(a.clip(x, np.asarray(-bound), np.asarray(bound)), "i64")


def doubled(a: Algebra, acc: T, m: Array, shift: Array) -> T:
    """rdbp(srdhm(acc << max(e, 0), m), max(-e, 0)), e = 31 - shift, an entry a channel."""
    left, right = np.maximum(31 - shift, 0), np.maximum(shift - 31, 0)
    if left.any():
        acc = wrapped(a, a.mul(acc, power(left)))
    high = doubling_high(a, acc, m)
    if not right.any():
        return high
    negative = a.mul(a.cast(a.apply("less", high, int64(0)), "i64"), (right > 0).astype(np.int64))
    shifted = a.floor_div(a.sub(a.add(high, half(right)), negative), power(right))
    return a.mul(shifted, (right <= 31).astype(np.int64)) if (right > 31).any() else shifted


def _in_two_parts(a: Algebra, acc: T, m: Array, shift: Array, even: bool) -> T:
    """acc * m / 2^shift where the product has more than 63 bits: the lower 24 bits of acc apart.

    floor((X 2^24 + t) / 2^s) = floor((X + floor(t / 2^24)) / 2^(s - 24)).
    """
    if (shift[m != 0] < _WIDE).any():
        raise NoExactForm(
            "its sums times its multipliers have more than 63 bits, and its shifts fewer than 24"
        )
    shift = np.maximum(shift, _WIDE)
    upper = a.floor_div(acc, power(_WIDE))
    lower = a.add(a.mul(a.sub(acc, a.mul(upper, power(_WIDE))), m), half(shift))
    carried = a.floor_div(lower, power(_WIDE))
    total = a.add(a.mul(upper, m), carried)
    quotient = a.floor_div(total, power(shift - _WIDE))
    if not even:
        return quotient
    exact = a.mul(
        a.cast(a.apply("equal", total, a.mul(quotient, power(shift - _WIDE))), "i64"),
        a.cast(a.apply("equal", lower, a.mul(carried, power(_WIDE))), "i64"),
    )
    odd = a.sub(quotient, a.mul(a.floor_div(quotient, 2), 2))
    return a.sub(quotient, a.mul(odd, exact))
