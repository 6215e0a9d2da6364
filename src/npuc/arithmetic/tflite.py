"""TFLite's arithmetic where it is not the plain formula: products of scales, wide sums, and functions of one value.

ARITHMETIC says that under `double_rounding`, where TFLite defines an op, it is TFLite's reference kernel bit for bit. Its
functions of 8-bit values are tables made in float32 or by integer formulas; they are written down here once, for the
lowering that makes the tables and for the exporter that recognizes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from npuc.arithmetic.dtypes import DType
from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import Scaling, quantize_multiplier, round_away
from npuc.arrays import Array

_F = np.float32
_NEARBY = 64
"""How far from the real factor a multiplier may be."""
_CHUNK = 1024
"""Factors that are worked on at once."""


class QuantizedType(Protocol):
    """Integers that stand for real = scale * (q - zero_point): what this module needs of a quantized type."""

    @property
    def scale(self) -> float:
        """The real step between neighbouring integers."""

    @property
    def zero_point(self) -> int:
        """The integer that stands for zero."""

    @property
    def dtype(self) -> DType:
        """The storage type."""


def product(scale_a: float, scale_b: float) -> float:
    """The product of two scales in float32, as TFLite takes it where both are one number.

    >>> product(0.1, 0.1) == 0.1 * 0.1
    False
    """
    return float(_F(scale_a) * _F(scale_b))


def narrow_multiplier(multiplier: int, shift: int) -> tuple[int, int]:
    """The 15-bit multiplier that TFLite scales 64-bit sums with: one rounding, half up.

    >>> narrow_multiplier(1 << 30, 31)
    (16384, 15)
    """
    narrow = (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    return narrow, shift - 16


def narrowed(wide: Scaling) -> Scaling:
    """The scaling of 64-bit sums for the one of 32-bit sums; kind `single_rounding`."""
    assert wide.multiplier is not None and wide.shift is not None
    pairs = [narrow_multiplier(int(m), int(s)) for m, s in zip(wide.multiplier, wide.shift, strict=True)]
    if min(shift for _, shift in pairs) < 0:
        raise ValueError("the multiplier is too large for a sum of 64 bits")
    columns = np.array(pairs, np.int32).reshape(-1, 2).T
    return Scaling(Kind.SINGLE_ROUNDING, columns[0], columns[1])


def rounded_multiplier(real: float, steps: int = 256) -> tuple[int, int]:
    """The (multiplier, shift) of kind `single_rounding` that rounds sums as round_away(sum * real) in float64 does.

    So do LiteRT's reference kernels of fully connected layers. Of the 31-bit multipliers next to the real one, the first
    is taken with which no sum that gives one of the outputs -steps..steps is rounded to another side; where there is none
    (tiny factors, and ones like 0.7, whose products in float64 lie on both sides of their ties) or too many outputs (16 bits),
    the nearest, which then differs for sums within 2^-31 of a tie.

    >>> rounded_multiplier(0.125)
    (1073741825, 33)
    """
    return rounded_multipliers(np.array([real]), steps)[0]


def rounded_multipliers(reals: Array, steps: int = 256) -> list[tuple[int, int]]:
    """`rounded_multiplier` of many factors.

    The first sum c that gives the output n + 1 has to be rounded up, c - 1 down. With a multiplier m that is
    (2n + 1) * 2^shift / 2c < m < (2n + 1) * 2^shift / 2(c - 1): all outputs together leave an interval of multipliers, of
    which the one next to the real factor is taken. Which n is the tightest is found in float64, and then counted exactly.
    """
    pairs = [quantize_multiplier(float(real)) for real in reals]
    if not steps:
        # With a factor of few bits, ties are frequent: a little more of it rounds them away from zero.
        return [
            (m + (float(real) * 2.0**14).is_integer() if 0 < m < 1 << 31 else m, shift)
            for real, (m, shift) in zip(reals, pairs, strict=True)
        ]
    halves = np.arange(steps) + 0.5
    multipliers = []
    for begin in range(0, len(pairs), _CHUNK):
        some = pairs[begin : begin + _CHUNK]
        with np.errstate(all="ignore"):  # factors without a multiplier
            factors = np.asarray(reals[begin : begin + _CHUNK], np.float64)[:, None]
            firsts = np.ceil(halves / factors)
            # What float64 rounds to a tie counts as one.
            firsts -= (firsts - 1) * factors >= halves
            firsts += firsts * factors < halves
            scales = np.ldexp(1.0, np.array([shift for _, shift in some]))[:, None]
            reached = firsts < 2**31
            least = np.where(reached, halves * scales / firsts, -np.inf)
            most = np.where(reached & (firsts > 1), halves * scales / (firsts - 1), np.inf)
        for row, (nearest, shift) in enumerate(some):
            if not 0 < nearest < 1 << 31:
                multipliers.append((nearest, shift))
                continue
            tight_low = np.flatnonzero(least[row] > least[row].max() - 1e-3)
            tight_high = np.flatnonzero(most[row] < most[row].min() + 1e-3)
            low = max(
                (((2 * int(n) + 1) << shift) // (2 * int(firsts[row, n])) + 1 for n in tight_low), default=0
            )
            high = min(
                (-(-((2 * int(n) + 1) << shift) // (2 * int(firsts[row, n]) - 2)) - 1 for n in tight_high),
                default=(1 << 31) - 1,
            )
            best = min(max(nearest, low), high, (1 << 31) - 1)
            fits = low <= best and abs(best - nearest) <= _NEARBY
            multipliers.append((best if fits else nearest, shift))
    return multipliers


def rounded_scaling(real: Array, width: int) -> Scaling:
    """The output stage of fully connected layers of `width` bits, for one factor or one a channel."""
    columns = (
        np.array(rounded_multipliers(real, 256 if width == 8 else 0), np.int64)
        .reshape(-1, 2)
        .T.astype(np.int32)
    )
    return Scaling(Kind.SINGLE_ROUNDING, columns[0], columns[1])


def rescale(values: Array, multiplier: int, shift: int) -> Array:
    """Kind `double_rounding` of docs/arithmetic.md on an array of small integers."""
    exponent = 31 - shift
    shifted = values.astype(np.int64) << max(exponent, 0)
    high = shifted * multiplier
    nudge = np.where(high >= 0, 1 << 30, 1 - (1 << 30))
    total = high + nudge
    doubled = np.where(total >= 0, total >> 31, -((-total) >> 31))
    return _round_shift(doubled, max(-exponent, 0))


def _round_shift(values: Array, bits: int) -> Array:
    """x / 2^bits, ties away from zero."""
    mask = (1 << bits) - 1
    rest = values & mask
    threshold = (mask >> 1) + (values < 0)
    return np.asarray((values >> bits) + (rest > threshold))


def _codes(x: QuantizedType) -> Array:
    least, most = x.dtype.limits
    return np.arange(least, most + 1, dtype=np.int64) - x.zero_point


def _saturated(steps: Array, y: QuantizedType) -> Array:
    least, most = y.dtype.limits
    held: Array = np.clip(steps + y.zero_point, least, most)
    return held.astype(y.dtype.numpy)


# Tables made in float32


def _through_double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of float32 whose result is rounded once, as good libraries of functions do."""
    return lambda x: function(x.astype(np.float64)).astype(_F)


_exp = _through_double(np.exp)
_tanh = _through_double(np.tanh)


def _sigmoid(x: Array) -> Array:
    return np.asarray(_F(1) / (_F(1) + _exp(-x)))


_REAL: dict[str, Callable[[Array], Array]] = {
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "exp": _exp,
}
"""Functions whose table LiteRT fills in float32."""


def _from_real(function: Callable[[Array], Array], x: QuantizedType, y: QuantizedType) -> Array:
    real = _F(x.scale) * _codes(x).astype(_F)
    with np.errstate(over="ignore"):
        steps = np.minimum(function(real) * (_F(1) / _F(y.scale)), 1e9)
    return _saturated(round_away(steps).astype(np.int64), y)


# Tables of integer formulas


def _scaled(x: QuantizedType, y: QuantizedType, factor: float = 1.0) -> tuple[int, int]:
    scale = _F(x.scale) if factor == 1.0 else _F(x.scale) * _F(factor)
    return quantize_multiplier(float(scale / _F(y.scale)))


def _leaky_relu(x: QuantizedType, y: QuantizedType, alpha: float) -> Array | None:
    if alpha <= 0:
        return None
    q = _codes(x)
    return _saturated(np.where(q >= 0, rescale(q, *_scaled(x, y)), rescale(q, *_scaled(x, y, alpha))), y)


def _relu(x: QuantizedType, y: QuantizedType, limit: float) -> Array | None:
    unbounded = _saturated(rescale(_codes(x), *_scaled(x, y)), y)
    most = y.dtype.limits[1]
    if limit > 0:
        most = min(most, y.zero_point + int(round_away(_F(limit) / _F(y.scale))))
    return np.clip(unbounded, y.zero_point, most).astype(y.dtype.numpy)


def _half_doubling_high(a: Array, b: Any) -> Array:
    """gemmlowp's 16-bit saturating rounding doubling high product."""
    ab = a.astype(np.int64) * b
    total = ab + np.where(ab >= 0, 1 << 14, 1 - (1 << 14))
    high = np.where(total >= 0, total >> 15, -((-total) >> 15))
    return np.where((a == b) & (a == -32768), 32767, high)


def _short_multiplier(real: float) -> tuple[int, int]:
    multiplier, shift = quantize_multiplier(real)
    narrow = 0x7FFF if multiplier >= 0x7FFF0000 else (multiplier + (1 << 15)) >> 16
    return narrow, 31 - shift


def _hard_swish(x: QuantizedType, y: QuantizedType) -> Array | None:
    fine = _F(1 / 128) * _F(x.scale)
    multiplier, exponent = _short_multiplier(float(fine / _F(y.scale)))
    gate, gate_exponent = _short_multiplier(float(fine / _F(3 / 32768)))
    if not -15 <= exponent <= 0 or gate_exponent < -15:
        return None  # LiteRT shifts 16-bit numbers by 15 bits at most
    value = _codes(x) << 7
    scaled = _half_doubling_high(value, multiplier)
    reluish = value
    if gate_exponent > 0:
        reluish = np.clip(reluish << (gate_exponent - 1), -32768, 32767)
    reluish = _half_doubling_high(reluish, gate)
    if gate_exponent > 0:
        reluish = np.clip(reluish << 1, -32768, 32767)
    elif gate_exponent < 0:
        reluish = _round_shift(reluish, -gate_exponent)
    reluish = (reluish + (1 << 15)) >> 1
    # The product of 16-bit numbers is cut, not rounded.
    high = scaled * reluish
    product_ = np.where(high >= 0, high >> 15, -((-high) >> 15))
    return _saturated(_round_shift(product_, -exponent), y)


def _sqrt(x: QuantizedType, y: QuantizedType) -> Array:
    """In float32, and cut off to whole steps where other kernels round; a negative value counts as 0."""
    real = _F(x.scale) * np.maximum(_codes(x), 0).astype(_F)
    return _saturated(np.trunc(np.sqrt(real) / _F(y.scale)).astype(np.int64), y)


_INTEGER: dict[str, Callable[..., Array | None]] = {
    "leaky_relu": _leaky_relu,
    "relu": _relu,
    "hard_swish": _hard_swish,
    "sqrt": _sqrt,
}


def function_table(
    function: str, constants: tuple[float, ...], x: QuantizedType, y: QuantizedType
) -> Array | None:
    """The 256 entries that TFLite's own kernel computes for 8-bit values; None if it has no such kernel."""
    if x.dtype != y.dtype or x.dtype.itemsize != 1:
        return None
    if function in _REAL and not constants:
        return _from_real(_REAL[function], x, y)
    integer = _INTEGER.get(function)
    try:
        return None if integer is None else integer(x, y, *constants)
    except ValueError:  # a multiplier that cannot be written
        return None


def joining_table(x: QuantizedType, y: QuantizedType) -> Array:
    """TFLite's CONCATENATION of uint8 values: an operand of another scale than the result's."""
    scale = _F(x.scale) * (_F(1) / _F(y.scale))
    codes = np.arange(256).astype(_F)
    steps = codes * scale + _F(-x.zero_point) * scale
    return _saturated(round_away(steps).astype(np.int64), y)


def prelu_table(slopes: Array, slope_scale: float, x: QuantizedType, y: QuantizedType) -> Array:
    """TFLite's PRELU of 8-bit values: 256 entries for each integer slope."""
    q = _codes(x)
    above = rescale(q, *quantize_multiplier(float(_F(x.scale) / _F(y.scale))))
    below = quantize_multiplier(float(_F(x.scale) * _F(slope_scale) / _F(y.scale)))
    rows = [np.where(q >= 0, above, rescale(q * int(slope), *below)) for slope in slopes]
    return np.stack([_saturated(row, y) for row in rows])
