"""From real scales to the integers that the kernels take: pure functions, float64, no rounding but the stated one.

Every multiplier and shift of a quantized program comes from here, so that the lowering, the tests and a reader of
docs/arithmetic.md share one place. What cannot be represented is refused with a `ValueError` that says so; nothing is
quietly clamped, except that a multiplier too small for the target's largest shift is 0, as the contract has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

KINDS = ("double", "single", "single_even", "pow2", "float")
"""The requantization kinds of docs/arithmetic.md."""

MAX_SHIFT = 62
"""The largest shift of the native kernels; a target may have a smaller one."""


@dataclass(frozen=True)
class Scaling:
    """The integers (or, for `float`, the numbers) behind one or many real multipliers: what `Requant` is made of."""

    kind: str
    multiplier: Array | None = None
    shift: Array | None = None
    scale: Array | None = None


@dataclass(frozen=True)
class AddScaling:
    """The parameters of an addition or subtraction.

    `double`: each input is shifted left by `left`, multiplied by its own (multiplier, shift), and the sum goes through
    (multiplier, shift). The single kinds have `multiplier_a`, `multiplier_b` and the one `shift`; `pow2` has
    `shift_a`, `shift_b` (left shifts) and `shift`; `float` has `scale_a` and `scale_b`.
    """

    kind: str
    left: int = 0
    multiplier_a: int = 0
    shift_a: int = 0
    multiplier_b: int = 0
    shift_b: int = 0
    multiplier: int = 0
    shift: int = 0
    scale_a: float = 0.0
    scale_b: float = 0.0


def round_away(values: Any) -> Any:
    """Round to the nearest integer, ties away from zero; the result stays float64.

    >>> round_away([0.5, -0.5, 1.4, -2.5]).tolist()
    [1.0, -1.0, 1.0, -3.0]
    """
    x = np.asarray(values, np.float64)
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1.0, x), 0.0)


def quantize_multiplier(real: float, bits: int = 31, max_shift: int = MAX_SHIFT) -> tuple[int, int]:
    """The (multiplier, shift) with `real ≈ multiplier * 2**-shift` and a multiplier of `bits` bits.

    >>> quantize_multiplier(0.75)
    (1610612736, 31)
    >>> quantize_multiplier(0.75, bits=7)
    (96, 7)
    """
    _check_scale("multiplier", real)
    if not 1 <= bits <= 31:
        raise ValueError(f"a multiplier of {bits} bits does not exist: the kernels have 1 to 31")
    fraction, exponent = math.frexp(real)
    multiplier = int(round_away(math.ldexp(fraction, bits)))
    if multiplier == 1 << bits:
        multiplier //= 2
        exponent += 1
    shift = bits - exponent
    if shift < 0:
        raise ValueError(
            f"the multiplier {real:g} is 2^{bits} or more and cannot be written with {bits} bits and a right shift"
        )
    return (0, bits) if shift > max_shift else (multiplier, shift)


def power_of_two(real: float, what: str = "scale") -> int:
    """The f with `real == 2**-f`, exactly.

    >>> power_of_two(0.125)
    3
    """
    _check_scale(what, real)
    fraction, exponent = math.frexp(real)
    if fraction != 0.5:
        raise ValueError(
            f"the {what} {real!r} is not a power of two, and this kind of requantization only shifts"
        )
    return 1 - exponent


def scaling(
    kind: str, real: float | Sequence[float] | Array, bits: int = 31, max_shift: int = MAX_SHIFT
) -> Scaling:
    """The parameters of the output stage for real multipliers, one or one a channel.

    >>> scaling("single", 0.75, bits=15)
    Scaling(kind='single', multiplier=array([24576], dtype=int32), shift=array([15], dtype=int32), scale=None)
    """
    values = [float(value) for value in np.atleast_1d(np.asarray(real, np.float64))]
    if kind == "float":
        with np.errstate(over="ignore", under="ignore"):
            scale = np.asarray(values, np.float64).astype(np.float32)
        for value, single in zip(values, scale, strict=True):
            _check_scale("multiplier", value)
            if not np.isfinite(single) or single < np.finfo(np.float32).tiny:
                raise ValueError(f"the multiplier {value:g} is outside the normal range of float32")
        return Scaling(kind, scale=scale)
    if kind == "pow2":
        shifts = [power_of_two(value, "multiplier") for value in values]
        if max(shifts) > max_shift or min(shifts) < -31:
            raise ValueError(f"a shift of {max(shifts, key=abs)} is outside -31..{max_shift}")
        return Scaling(kind, shift=np.asarray(shifts, np.int32))
    _check_kind(kind)
    pairs = [quantize_multiplier(value, 31 if kind == "double" else bits, max_shift) for value in values]
    return Scaling(
        kind,
        multiplier=np.asarray([pair[0] for pair in pairs], np.int32),
        shift=np.asarray([pair[1] for pair in pairs], np.int32),
    )


def conv_parameters(
    kind: str,
    scale_x: float,
    scale_w: float | Sequence[float] | Array,
    scale_y: float,
    bits: int = 31,
    max_shift: int = MAX_SHIFT,
) -> Scaling:
    """Convolution, matmul and their kin: M = s_x * s_w[c] / s_y.

    >>> conv_parameters("pow2", 0.5, [0.25, 0.125], 1.0).shift.tolist()
    [3, 4]
    """
    _check_scales(x=scale_x, y=scale_y)
    weights = np.atleast_1d(np.asarray(scale_w, np.float64))
    return scaling(kind, scale_x * weights / scale_y, bits, max_shift)


def mul_parameters(
    kind: str, scale_a: float, scale_b: float, scale_y: float, bits: int = 31, max_shift: int = MAX_SHIFT
) -> Scaling:
    """Multiplication: M = s_a * s_b / s_y, under `double` computed in float32, as TFLite does.

    >>> mul_parameters("pow2", 0.5, 0.25, 0.25).shift.tolist()
    [1]
    """
    _check_scales(a=scale_a, b=scale_b, y=scale_y)
    real = scale_a * scale_b / scale_y
    if kind == "double":
        single = np.float32(scale_a) * np.float32(scale_b) / np.float32(scale_y)
        real = float(single) if np.isfinite(single) and single > 0 else real
    return scaling(kind, real, bits, max_shift)


def requant_parameters(
    kind: str, scale_x: float, scale_y: float, bits: int = 31, max_shift: int = MAX_SHIFT
) -> Scaling:
    """A change of scale: M = s_x / s_y.

    >>> requant_parameters("float", 0.5, 0.25).scale.tolist()
    [2.0]
    """
    _check_scales(x=scale_x, y=scale_y)
    return scaling(kind, scale_x / scale_y, bits, max_shift)


def pool_parameters(
    kind: str,
    scale_x: float,
    scale_y: float,
    counts: int | Sequence[int],
    bits: int = 31,
    max_shift: int = MAX_SHIFT,
) -> Scaling:
    """Average pool and mean: M = s_x / (s_y * count), one entry a count.

    `double` divides by the count itself and needs equal scales; its multiplier of 1 is not used. `pow2` cannot divide
    by a count with a shift: it multiplies by a 7-bit reciprocal (docs/arithmetic-pooling.md), which makes it `single`.

    >>> pool_parameters("single", 0.5, 0.5, [1, 2], bits=15).shift.tolist()
    [14, 15]
    """
    _check_scales(x=scale_x, y=scale_y)
    values = np.atleast_1d(np.asarray(counts, np.int64))
    if values.size == 0 or values.min() < 1:
        raise ValueError("an average needs windows of one element or more")
    if kind == "double":
        if scale_x != scale_y:
            raise ValueError(
                f"this average needs equal scales, not {scale_x:g} and {scale_y:g}: put a requant before"
            )
        return scaling(kind, 1.0)
    if kind == "pow2":
        power_of_two(scale_x / scale_y, "ratio of the scales")
        return scaling("single", scale_x / (scale_y * values), min(bits, 7), max_shift)
    return scaling(kind, scale_x / (scale_y * values), bits, max_shift)


def mean_parameters(
    kind: str, scale_x: float, scale_y: float, count: int, bits: int = 31, max_shift: int = MAX_SHIFT
) -> Scaling:
    """The mean of `count` elements as a sum: M = s_x / (s_y * count).

    Under `double` the multiplier of s_x / s_y is divided by the count as TFLite divides it, rounding down.

    >>> mean_parameters("double", 1.0, 1.0, 3).multiplier.tolist(), 2**31 / 3
    ([715827882], 715827882.6666666)
    """
    _check_scales(x=scale_x, y=scale_y)
    if count < 1:
        raise ValueError("an average needs one element or more")
    if kind != "double":
        return pool_parameters(kind, scale_x, scale_y, count, bits, max_shift)
    multiplier, shift = quantize_multiplier(scale_x / scale_y)
    up = min(count.bit_length() - 1, 32, 62 - shift)
    return Scaling(kind, np.array([(multiplier << up) // count], np.int32), np.array([shift + up], np.int32))


def add_parameters(
    kind: str,
    scale_a: float,
    scale_b: float,
    scale_y: float,
    bits: int = 31,
    *,
    width: int = 8,
    max_shift: int = MAX_SHIFT,
) -> AddScaling:
    """Addition and subtraction of activations of `width` (8 or 16) bits.

    >>> p = add_parameters("pow2", 0.5, 0.125, 0.5)
    >>> p.shift_a, p.shift_b, p.shift
    (2, 0, 2)
    """
    _check_scales(a=scale_a, b=scale_b, y=scale_y)
    _check_kind(kind)
    if width not in (8, 16):
        raise ValueError(f"activations have 8 or 16 bits, not {width}")
    if kind == "double":
        left = 20 if width == 8 else 15
        twice = 2 * max(scale_a, scale_b)
        multiplier_a, shift_a = quantize_multiplier(scale_a / twice)
        multiplier_b, shift_b = quantize_multiplier(scale_b / twice)
        multiplier, shift = quantize_multiplier(twice / ((1 << left) * scale_y))
        return AddScaling(kind, left, multiplier_a, shift_a, multiplier_b, shift_b, multiplier, shift)
    if kind == "float":
        scale = scaling(kind, [scale_a / scale_y, scale_b / scale_y]).scale
        assert scale is not None
        return AddScaling(kind, scale_a=float(scale[0]), scale_b=float(scale[1]))
    if kind == "pow2":
        of_a, of_b, of_y = (power_of_two(value) for value in (scale_a, scale_b, scale_y))
        finest = max(of_a, of_b)
        if finest - min(of_a, of_b) > 31:
            raise ValueError(
                f"the scales {scale_a:g} and {scale_b:g} are too far apart to be aligned by a left shift"
            )
        if not -31 <= finest - of_y <= max_shift:
            raise ValueError(
                f"the sum would be shifted by {finest - of_y}, which is outside -31..{max_shift}"
            )
        return AddScaling(kind, shift_a=finest - of_a, shift_b=finest - of_b, shift=finest - of_y)
    real_a, real_b = scale_a / scale_y, scale_b / scale_y
    multiplier, shift = quantize_multiplier(max(real_a, real_b), bits, max_shift)
    if multiplier == 0:
        return AddScaling(kind, shift=shift)
    return AddScaling(
        kind,
        multiplier_a=int(round_away(math.ldexp(real_a, shift))),
        multiplier_b=int(round_away(math.ldexp(real_b, shift))),
        shift=shift,
    )


def activation_range(
    dtype: str,
    scale: float,
    zero_point: int,
    *,
    relu: bool = False,
    relu_limit: float = 0.0,
    narrow: bool = False,
) -> tuple[int, int]:
    """The [lo, hi] of the output stage: the dtype's range, narrowed by a fused relu.

    >>> activation_range("i8", 0.05, -10, relu=True, relu_limit=6.0)
    (-10, 110)
    """
    _check_scales(y=scale)
    ranges = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}
    if dtype not in ranges:
        raise ValueError(f"activations are i8, u8 or i16, not {dtype}")
    lo, hi = ranges[dtype]
    if narrow and lo < 0:
        lo += 1
    if relu:
        lo = min(max(lo, zero_point), hi)
        if relu_limit > 0:
            hi = max(lo, min(hi, zero_point + int(round_away(relu_limit / scale))))
    return lo, hi


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"there is no requantization kind {kind!r}; there are {', '.join(KINDS)}")


def _check_scales(**scales: float) -> None:
    for name, value in scales.items():
        _check_scale(f"scale of {name}", value)


def _check_scale(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"the {what} is {value!r}; it must be a positive number")
