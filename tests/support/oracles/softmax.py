"""Slow models of softmax, from docs/arithmetic-softmax.md: TFLite's two and the clean one."""

from __future__ import annotations

from fractions import Fraction
from math import floor

from support.oracles.integers import rdbp, requantize, srdhm


def saturated(x: int, bits: int = 32) -> int:
    """Clamp to a signed width."""
    return min(max(x, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)


def times_power(x: int, exponent: int) -> int:
    """gemmlowp's SaturatingRoundingMultiplyByPOT."""
    return saturated(x << exponent) if exponent >= 0 else rdbp(x, -exponent)


def exp_negative(a: int) -> int:
    """exp of a non-positive number with 5 integer bits (Q5.26), as Q0.31."""
    quarter = 1 << 24
    rest = (a & (quarter - 1)) - quarter
    x = (rest << 5) + (1 << 28)
    x2 = srdhm(x, x)
    x3, x4 = srdhm(x2, x), srdhm(x2, x2)
    poly = times_power(srdhm(times_power(x4, -2) + x3, 715827883) + x2, -1)
    result = saturated(1895147668 + srdhm(1895147668, x + poly))
    remainder = rest - a
    powers = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for exponent, factor in zip(range(-2, 5), powers, strict=True):
        if remainder & (1 << (26 + exponent)):
            result = srdhm(result, factor)
    return 2**31 - 1 if a == 0 else result


def reciprocal(a: int) -> int:
    """1 / (1 + a) of a Q0.31 number in [0, 1), as Q0.31."""
    half = floor(Fraction(a + 2**31 - 1, 2) + Fraction(1, 2))
    x = 1515870810 + srdhm(half, -1010580540)
    for _ in range(3):
        error = (1 << 29) - srdhm(half, x)
        x += times_power(srdhm(x, error), 2)
    return times_power(x, 1)


def tflite8(x: list[int], multiplier: int, left: int, diff_min: int, lo: int, hi: int) -> list[int]:
    """A row of TFLite's 8-bit softmax; the output has 8 or 16 bits."""
    bits = 8 if hi - lo == 255 else 16
    top = max(x)
    exps: list[int | None] = []
    total = 0
    for q in x:
        diff = q - top
        if diff < diff_min:
            exps.append(None)
            continue
        exps.append(exp_negative(srdhm(diff << left, multiplier)))
        total += rdbp(exps[-1] or 0, 12)
    headroom = 32 - total.bit_length()
    over = 12 - headroom
    scale = reciprocal((total << headroom) - 2**31)
    row = []
    for e in exps:
        y = lo if e is None else rdbp(srdhm(scale, e), over + 31 - bits) + lo
        row.append(min(max(y, lo), hi))
    return row


def lookup16(q: int, table: list[int]) -> int:
    """A 513-entry table."""
    entry, rest = (q >> 7) + 256, q & 127
    return table[entry] + ((table[entry + 1] - table[entry]) * rest + 64 >> 7)


def tflite16(
    x: list[int], multiplier: int, shift: int, exp_table: list[int], reciprocal_table: list[int]
) -> list[int]:
    """A row of TFLite's 16-bit softmax."""
    top = max(x)
    exps = []
    for q in x:
        diff = requantize(q - top, "double_rounding", multiplier, shift, 0, -(2**31), 2**31 - 1)
        exps.append(lookup16(saturated(diff + 32767, 16), exp_table))
    total = sum(exps)
    headroom = 32 - total.bit_length()
    shifted = ((total << (headroom - 1)) + (1 << 13)) >> 14
    inverse = lookup16(saturated(shifted - (2**15 + 2**16), 16), reciprocal_table)
    right = 31 - headroom
    return [min(max((e * inverse + (1 << (right - 1))) >> right, 0), 32767) for e in exps]


def clean(
    x: list[int],
    coarse: list[int],
    fine: list[int],
    multiplier: int,
    shift: int,
    even: bool,
    limits: tuple[int, int, int],
) -> list[int]:
    """A row of the algorithm of the other kinds; limits are zero point, lo and hi."""
    zero_point, lo, hi = limits
    top = max(x)
    exps = [
        floor(Fraction(coarse[(top - q) // 256] * fine[(top - q) % 256], 2**30) + Fraction(1, 2)) for q in x
    ]
    total = sum(exps)
    b = total.bit_length()
    divisor = floor(Fraction(total * 2**32, 2**b) + Fraction(1, 2))
    inverse = (2**62 + divisor // 2) // divisor
    factor = floor(Fraction(inverse * multiplier, 2**31) + Fraction(1, 2))
    row = []
    for e in exps:
        exact = Fraction(e * factor, 2 ** (b + shift - 1))
        steps = round(exact) if even else floor(exact + Fraction(1, 2))
        row.append(min(max(steps + zero_point, lo), hi))
    return row
