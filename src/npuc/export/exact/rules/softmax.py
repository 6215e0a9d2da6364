"""Softmax: docs/arithmetic-softmax.md."""

from __future__ import annotations

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.export.exact.algebra import Algebra, T, int64
from npuc.export.exact.registry import Exact, computes, type_of
from npuc.export.exact.rounding import doubled, doubling_high, half_up
from npuc.export.exact.rules.tables import interpolated
from npuc.ir import npu, shape_of
from npuc.ir.definition import normal_axis

_POWERS = int64([1 << bits for bits in range(63)])
_EXP_FACTORS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""e^-x for x = 2^-2 ... 2^4, in Q0.31: gemmlowp's constants."""


def bits_of(a: Algebra, x: T, most: int = 62) -> T:
    """The bits of integers above 0: how many powers of two are not larger."""
    count: T = int64(0)
    for exponent in range(most):
        larger = a.cast(a.apply("less", x, int64(1 << exponent)), "i64")
        count = a.add(a.sub(int64(1), larger), count)
    return count


@computes(npu.Softmax)
def softmax(op: npu.Softmax, exact: Exact) -> list[T]:
    """Three algorithms, by kind and width."""
    a, x, kind = exact.algebra, exact.integers(op.x), type_of(op.y)
    axis = normal_axis(op.axis, len(shape_of(op.x)))
    below = a.sub(x.tensor, a.reduce("max", x.tensor, [axis]))
    if op.kind is not Kind.DOUBLE_ROUNDING:
        y = _clean(op, exact, a.sub(int64(0), below), axis)
    elif x.high - x.low == 255:
        y = _tflite8(op, a, below, axis, kind.dtype.carrier.limits)
    else:
        y = _tflite16(op, exact, below, axis)
    return [exact.stored(a.clip(y, int64(op.lo), int64(op.hi)), kind)]


def _clean(op: npu.Softmax, exact: Exact, below: T, axis: int) -> T:
    """All kinds but TFLite's; `below` is max - q."""
    a = exact.algebra
    multiplier, shift, _, _ = op.parameters
    coarse, fine = (exact.array(table).astype(np.int64) for table in (op.coarse, op.fine))
    upper = a.floor_div(below, int64(256))
    product = a.mul(a.take(coarse, upper), a.take(fine, a.sub(below, a.mul(upper, int64(256)))))
    e = half_up(a, product, 30)
    total = a.reduce("sum", e, [axis])
    bits = bits_of(a, total)
    # To 32 bits: to the left where there are fewer, else to the right with a rounding.
    more = a.apply("maximum", a.sub(bits, int64(32)), int64(0))
    rounding = a.floor_div(a.take(_POWERS, more), int64(2))
    shorter = a.floor_div(a.add(total, rounding), a.take(_POWERS, more))
    divisor = a.mul(shorter, a.take(_POWERS, a.apply("maximum", a.sub(int64(32), bits), int64(0))))
    inverse = a.floor_div(a.add(a.floor_div(divisor, int64(2)), int64(1 << 62)), divisor)
    factor = half_up(a, a.mul(inverse, int64(multiplier)), 31)
    places = a.add(bits, int64(shift - 1))
    held = a.apply("minimum", places, int64(62))
    whole = a.take(_POWERS, held)
    halved = a.floor_div(whole, int64(2))
    raised = a.add(a.mul(e, factor), halved)
    steps = a.floor_div(raised, whole)
    if op.kind is Kind.SINGLE_EVEN:
        exactly = a.cast(a.apply("equal", raised, a.mul(steps, whole)), "i64")
        odd = a.sub(steps, a.mul(a.floor_div(steps, int64(2)), int64(2)))
        steps = a.sub(steps, a.mul(odd, exactly))
    steps = a.mul(steps, a.cast(a.apply("less", places, int64(63)), "i64"))
    return a.add(steps, int64(type_of(op.y).zero_point))


def _tflite8(op: npu.Softmax, a: Algebra, below: T, axis: int, limits: tuple[int, int]) -> T:
    """TFLite's for 8 bits: an exponential is a function of 256 differences, so a table."""
    multiplier, _, left, diff_min = op.parameters
    differences = range(-255, 1)
    counted = int64([difference >= diff_min for difference in differences])
    exps = int64([_exp_entry(d, left, multiplier) if d >= diff_min else 0 for d in differences])
    index = a.add(below, int64(255))
    e, counts = a.take(exps, index), a.take(counted, index)
    total = a.reduce("sum", a.take(int64([_rdbp(int(entry), 12) for entry in exps]), index), [axis])
    bits = bits_of(a, total, 32)
    scale = _reciprocal(a, a.sub(a.mul(total, a.take(_POWERS, a.sub(int64(32), bits))), int64(1 << 31)))
    places = a.add(bits, int64(12 - 32 + 31 - (8 if limits[1] - limits[0] == 255 else 16)))
    product = doubling_high(a, scale, e)
    held = a.clip(places, int64(0), int64(40))
    whole = a.take(_POWERS, held)
    y = a.floor_div(a.add(product, a.floor_div(whole, int64(2))), whole)
    y = a.mul(y, a.cast(a.apply("less", places, int64(32)), "i64"))
    return a.add(a.mul(y, counts), int64(limits[0]))


def _tflite16(op: npu.Softmax, exact: Exact, below: T, axis: int) -> T:
    """TFLite's for 16 bits."""
    a = exact.algebra
    multiplier, shift, _, _ = op.parameters
    exps, inverses = (exact.array(table).astype(np.int64) for table in (op.coarse, op.fine))

    def sat16(x: T) -> T:
        return a.clip(x, int64(-32768), int64(32767))

    scaled = doubled(a, below, int64([multiplier]), int64([shift]))
    e = interpolated(a, sat16(a.add(scaled, int64(32767))), exps)
    total = a.reduce("sum", e, [axis])
    bits = bits_of(a, total, 32)
    raised = a.mul(total, a.take(_POWERS, a.sub(int64(31), bits)))
    inverse = interpolated(a, sat16(a.sub(half_up(a, raised, 14), int64(98304))), inverses)
    whole = a.take(_POWERS, a.sub(bits, int64(1)))
    y = a.floor_div(a.add(a.mul(e, inverse), a.floor_div(whole, int64(2))), whole)
    return a.clip(y, int64(0), int64(32767))


def _reciprocal(a: Algebra, x: T) -> T:
    """1 / (1 + x) of a Q0.31 number in [0, 1), as Q0.31: three Newton steps on Q2.29."""
    halved = half_up(a, a.add(x, int64(2**31 - 1)), 1)
    guess = a.add(doubling_high(a, halved, int64(-1010580540)), int64(1515870810))
    for _ in range(3):
        error = a.sub(int64(1 << 29), doubling_high(a, halved, guess))
        guess = a.add(guess, _saturated(a, a.mul(doubling_high(a, guess, error), int64(4))))
    return _saturated(a, a.mul(guess, int64(2)))


def _saturated(a: Algebra, x: T) -> T:
    return a.clip(x, int64(-(1 << 31)), int64((1 << 31) - 1))


def _srdhm(x: int, y: int) -> int:
    return (x * y + (1 << 30)) >> 31


def _rdbp(x: int, shift: int) -> int:
    return (x + (1 << (shift - 1)) - (x < 0)) >> shift


def _exp_entry(difference: int, left: int, multiplier: int) -> int:
    """exp of a difference of integers as Q0.31: gemmlowp's polynomial on Q5.26."""
    value = _srdhm(difference << left, multiplier)
    if value == 0:
        return 2**31 - 1
    quarter = 1 << 24
    rest = (value & (quarter - 1)) - quarter
    x = (rest << 5) + (1 << 28)
    x2 = _srdhm(x, x)
    x3, x4 = _srdhm(x2, x), _srdhm(x2, x2)
    polynomial = _rdbp(_srdhm(_rdbp(x4, 2) + x3, 715827883) + x2, 1)
    result = 1895147668 + _srdhm(1895147668, x + polynomial)
    result = min(max(result, -(1 << 31)), (1 << 31) - 1)
    for exponent, factor in zip(range(-2, 5), _EXP_FACTORS, strict=True):
        if (rest - value) & (1 << (26 + exponent)):
            result = _srdhm(result, factor)
    return result
