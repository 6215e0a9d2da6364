"""From real scales to the integers that the kernels take: pure functions, float64, no rounding but the stated one.

Every multiplier and shift of a quantized program comes from here, so that the lowering, the tests and a reader of
docs/arithmetic.md share one place. What cannot be represented is refused with a `ValueError` that says so; nothing is
quietly clamped, except that a multiplier too small for the target's largest shift is 0, as the contract has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np

from npuc.arithmetic.kinds import KINDS, MAX_SHIFT, MIN_SHIFT, Kind, Rounding, kind_named
from npuc.arrays import Array

__all__ = [
    "KINDS", "MAX_SHIFT", "MIN_SHIFT", "RECIPROCAL_BITS", "AddScaling", "Scaling", "ShiftTooLarge", "ShiftTooSmall",
    "StageLimits", "add_parameters", "conv_parameters", "mean_parameters", "mul_parameters", "operand_sum_parameters",
    "pool_parameters", "power_of_two", "product_factors", "quantize_multiplier", "requant_parameters", "round_away",
    "round_constants", "scaling",
]  # fmt: skip


RECIPROCAL_BITS = {8: 7, 16: 15}
"""Bits of the multiplier that divides by a count under `pow2`, by the width of the activations."""


class ShiftTooSmall(ValueError):
    """A result is so much finer than its sum that the least shift of the output stage does not reach it."""

    def __init__(self, text: str, bits: int) -> None:
        super().__init__(text)
        self.bits = bits
        """By how many bits the position of the result has to move for the shift to be there."""


class ShiftTooLarge(ValueError):
    """A result is so much coarser than its sum that the greatest shift of the output stage does not reach it."""

    def __init__(self, text: str, bits: int) -> None:
        super().__init__(text)
        self.bits = bits
        """By how many bits an operand has to be coarser for the shift to be there."""


class StageLimits(TypedDict, total=False):
    """What binds the parameters of an output stage: the bits of a multiplier, the shifts that there are, and whether a factor
    that is too small for the greatest of them has a shorter multiplier rather than 0."""

    bits: int
    max_shift: int
    min_shift: int
    short: bool


@dataclass(frozen=True)
class Scaling:
    """The integers (or, for `float_scale`, the numbers) behind one or many real multipliers: what `Requant` is made of."""

    kind: Kind
    multiplier: Array | None = None
    shift: Array | None = None
    scale: Array | None = None


@dataclass(frozen=True)
class AddScaling:
    """The parameters of an addition or subtraction.

    `double_rounding`: each input is shifted left by `left`, multiplied by its own (multiplier, shift), and the sum goes through
    (multiplier, shift). The single kinds have `multiplier_a`, `multiplier_b` and the one `shift`; `pow2` has
    `shift_a`, `shift_b` (left shifts) and `shift`; `float_scale` has `scale_a` and `scale_b`.
    """

    kind: Kind
    left: int = 0
    multiplier_a: int = 0
    shift_a: int = 0
    multiplier_b: int = 0
    shift_b: int = 0
    multiplier: int = 0
    shift: int = 0
    scale_a: float = 0.0
    scale_b: float = 0.0


def is_power_of_two(scale: float) -> bool:
    """Whether a positive number is 2 to a whole power.

    >>> is_power_of_two(0.125), is_power_of_two(0.3)
    (True, False)
    """
    return math.frexp(scale)[0] == 0.5


def round_away(values: Any) -> Any:
    """Round to the nearest integer, ties away from zero; the result stays float64.

    >>> round_away([0.5, -0.5, 1.4, -2.5]).tolist()
    [1.0, -1.0, 1.0, -3.0]
    """
    x = np.asarray(values, np.float64)
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1.0, x), 0.0)


def round_constants(values: Any, rounding: str) -> Any:
    """Round to integers as a scheme rounds its constants: any member of `Rounding`.

    >>> [round_constants([0.5, -0.5, 1.5], how).tolist() for how in ("half_even", "half_up", "half_down", "floor")]
    [[0.0, -0.0, 2.0], [1.0, 0.0, 2.0], [0.0, -1.0, 1.0], [0.0, -1.0, 1.0]]
    """
    x = np.asarray(values, np.float64)
    whole = np.floor(x)
    rest = x - whole
    match Rounding(rounding):
        case Rounding.HALF_AWAY:
            return round_away(x)
        case Rounding.HALF_EVEN:
            return np.rint(x)
        case Rounding.HALF_UP:
            return whole + (rest >= 0.5)
        case Rounding.HALF_DOWN:
            return whole + (rest > 0.5)
        case Rounding.HALF_ZERO:
            return whole + ((rest > 0.5) | ((rest == 0.5) & (x < 0)))
        case Rounding.CEIL:
            return np.ceil(x)
        case Rounding.TRUNCATE:
            return np.trunc(x)
        case Rounding.FLOOR:
            return whole


def quantize_multiplier(
    real: float,
    bits: int = 31,
    max_shift: int = MAX_SHIFT,
    min_shift: int = MIN_SHIFT,
    short: bool = False,
) -> tuple[int, int]:
    """The (multiplier, shift) with `real ≈ multiplier * 2**-shift` and a multiplier of `bits` bits.

    A shift to the left is carried out on the multiplier, where int32 has room for it. Beyond the greatest shift the multiplier is
    0, or (`short`) has the bits that are left, ties to even.

    >>> quantize_multiplier(0.75)
    (1610612736, 31)
    >>> quantize_multiplier(0.75, bits=7)
    (96, 7)
    >>> quantize_multiplier(300, bits=7)
    (300, 0)
    >>> quantize_multiplier(0.01, bits=7, max_shift=8), quantize_multiplier(0.01, bits=7, max_shift=8, short=True)
    ((0, 7), (3, 8))
    """
    _check_scale("multiplier", real)
    if not 1 <= bits <= 31:
        raise ValueError(f"a multiplier of {bits} bits does not exist: the kernels have 1 to 31")
    fraction, exponent = math.frexp(real)
    exact = math.ldexp(fraction, bits)
    multiplier = int(exact)
    multiplier += exact - multiplier >= 0.5
    if multiplier == 1 << bits:
        multiplier //= 2
        exponent += 1
    shift = bits - exponent
    if shift < 0:
        if shift >= min_shift and bits - shift <= 31:
            return multiplier << -shift, 0
        raise ShiftTooSmall(
            f"the multiplier {real:g} is 2^{bits} or more and cannot be written with {bits} bits and a right shift",
            -shift,
        )
    if shift <= max_shift:
        return multiplier, shift
    left = round(math.ldexp(multiplier, max_shift - shift)) if short else 0
    return (left, max_shift) if left else (0, bits)


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
    kind: str,
    real: float | Sequence[float] | Array,
    **stage: Unpack[StageLimits],
) -> Scaling:
    """The parameters of the output stage for real multipliers, one or one a channel.

    >>> scaling("single_rounding", 0.75, bits=15).multiplier.tolist()
    [24576]
    """
    kind = kind_named(kind)
    values = [float(value) for value in np.atleast_1d(np.asarray(real, np.float64))]
    if kind.has_scale:
        with np.errstate(over="ignore", under="ignore"):
            scale = np.asarray(values, np.float64).astype(np.float32)
        for value, single in zip(values, scale, strict=True):
            _check_scale("multiplier", value)
            if not np.isfinite(single) or single < np.finfo(np.float32).tiny:
                raise ValueError(f"the multiplier {value:g} is outside the normal range of float32")
        return Scaling(kind, scale=scale)
    if not kind.has_multiplier:
        shifts = [power_of_two(value, "multiplier") for value in values]
        _check_shifts(shifts, stage)
        return Scaling(kind, shift=np.asarray(shifts, np.int32))
    if kind.multiplier_bits is not None:
        stage = {**stage, "bits": kind.multiplier_bits}
    pairs = [quantize_multiplier(value, **stage) for value in values]
    return Scaling(
        kind,
        multiplier=np.asarray([pair[0] for pair in pairs], np.int32),
        shift=np.asarray([pair[1] for pair in pairs], np.int32),
    )


def product_factors(kind: str, scale_x: float, scale_w: Any, scale_y: float) -> Any:
    """M = s_x * s_w / s_y of a layer that multiplies, one number or one a channel.

    Under `float_scale` the product and the quotient are rounded to float32, as ONNX Runtime's kernels compute them: the same
    scales give the same factor there and here.

    >>> float(product_factors("float_scale", 0.1, 0.3, 0.7)), product_factors("single_rounding", 0.1, 0.3, 0.7)
    (0.0428571455180645, 0.04285714285714286)
    """
    weights = np.asarray(scale_w, np.float64)
    factors = scale_x * weights / scale_y
    if not kind_named(kind).has_scale:
        return factors
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(scale_x) * weights.astype(np.float32) / np.float32(scale_y)
    # Scales that float32 does not hold are left to the check of the factor itself.
    return np.where(np.isfinite(single) & (single > 0), single, factors).astype(np.float64)


def conv_parameters(
    kind: str,
    scale_x: float,
    scale_w: float | Sequence[float] | Array,
    scale_y: float,
    **stage: Unpack[StageLimits],
) -> Scaling:
    """Convolution, matmul and their kin: M = s_x * s_w[c] / s_y.

    >>> conv_parameters("pow2", 0.5, [0.25, 0.125], 1.0).shift.tolist()
    [3, 4]
    """
    _check_scales(x=scale_x, y=scale_y)
    weights = np.atleast_1d(np.asarray(scale_w, np.float64))
    return scaling(kind, product_factors(kind, scale_x, weights, scale_y), **stage)


def mul_parameters(
    kind: str,
    scale_a: float,
    scale_b: float,
    scale_y: float,
    **stage: Unpack[StageLimits],
) -> Scaling:
    """Multiplication: M = s_a * s_b / s_y, under `double_rounding` computed in float32, as TFLite does.

    >>> mul_parameters("pow2", 0.5, 0.25, 0.25).shift.tolist()
    [1]
    """
    _check_scales(a=scale_a, b=scale_b, y=scale_y)
    real = scale_a * scale_b / scale_y
    if kind_named(kind) is Kind.DOUBLE_ROUNDING:
        single = np.float32(scale_a) * np.float32(scale_b) / np.float32(scale_y)
        real = float(single) if np.isfinite(single) and single > 0 else real
    return scaling(kind, real, **stage)


def requant_parameters(
    kind: str,
    scale_x: float,
    scale_y: float,
    **stage: Unpack[StageLimits],
) -> Scaling:
    """A change of scale: M = s_x / s_y.

    >>> requant_parameters("float_scale", 0.5, 0.25).scale.tolist()
    [2.0]
    """
    _check_scales(x=scale_x, y=scale_y)
    return scaling(kind, scale_x / scale_y, **stage)


def pool_parameters(
    kind: str,
    scale_x: float,
    scale_y: float,
    counts: int | Sequence[int],
    *,
    width: int = 8,
    **stage: Unpack[StageLimits],
) -> Scaling:
    """Average pool and mean of activations of `width` (8 or 16) bits: M = s_x / (s_y * count), one entry a count.

    `double_rounding` divides by the count itself and needs equal scales; its multiplier of 1 is not used. `pow2` cannot divide
    by a count with a shift: it multiplies by a reciprocal of 7 or 15 bits (docs/arithmetic-pooling.md), or of as many
    as the largest shift leaves, which makes it `single_rounding`.

    >>> pool_parameters("single_rounding", 0.5, 0.5, [1, 2], bits=15).shift.tolist()
    [14, 15]
    """
    _check_scales(x=scale_x, y=scale_y)
    values = np.atleast_1d(np.asarray(counts, np.int64))
    if values.size == 0 or values.min() < 1:
        raise ValueError("an average needs windows of one element or more")
    kind = kind_named(kind)
    if kind is Kind.DOUBLE_ROUNDING:
        if scale_x != scale_y:
            raise ValueError(
                f"this average needs equal scales, not {scale_x:g} and {scale_y:g}: put a requant before"
            )
        return scaling(kind, 1.0)
    real = scale_x / (scale_y * values)
    if kind is Kind.POW2:
        power_of_two(scale_x / scale_y, "ratio of the scales")
        # The exponent of the smallest reciprocal decides how many bits fit under the largest shift.
        room = stage.get("max_shift", MAX_SHIFT) + math.frexp(float(real.min()))[1]
        if room < 1:
            # What the result does not see of its operand may go.
            unseen = max(power_of_two(scale_x / scale_y), 1 - room)
            raise ShiftTooLarge(
                f"its reciprocal needs a shift beyond {stage.get('max_shift', MAX_SHIFT)}",
                min(RECIPROCAL_BITS[width] - room, unseen),
            )
        kind, bits = Kind.SINGLE_ROUNDING, min(stage.get("bits", 31), RECIPROCAL_BITS[width], room)
        stage = {**stage, "bits": max(bits, 1)}
    return scaling(kind, real, **stage)


def mean_parameters(
    kind: str,
    scale_x: float,
    scale_y: float,
    count: int,
    *,
    width: int = 8,
    **stage: Unpack[StageLimits],
) -> Scaling:
    """The mean of `count` elements as a sum: M = s_x / (s_y * count).

    Under `double_rounding` the multiplier of s_x / s_y is divided by the count as TFLite divides it, rounding down.

    >>> mean_parameters("double_rounding", 1.0, 1.0, 3).multiplier.tolist(), 2**31 / 3
    ([715827882], 715827882.6666666)
    """
    _check_scales(x=scale_x, y=scale_y)
    if count < 1:
        raise ValueError("an average needs one element or more")
    kind = kind_named(kind)
    if kind is not Kind.DOUBLE_ROUNDING:
        return pool_parameters(kind, scale_x, scale_y, count, width=width, **stage)
    multiplier, shift = quantize_multiplier(scale_x / scale_y)
    up = min(count.bit_length() - 1, 32, 62 - shift)
    return Scaling(kind, np.array([(multiplier << up) // count], np.int32), np.array([shift + up], np.int32))


def add_parameters(
    kind: str,
    scale_a: float,
    scale_b: float,
    scale_y: float,
    *,
    width: int = 8,
    **stage: Unpack[StageLimits],
) -> AddScaling:
    """Addition and subtraction of activations of `width` (8 or 16) bits.

    >>> p = add_parameters("pow2", 0.5, 0.125, 0.5)
    >>> p.shift_a, p.shift_b, p.shift
    (2, 0, 2)
    """
    _check_scales(a=scale_a, b=scale_b, y=scale_y)
    kind = kind_named(kind)
    if width not in (8, 16):
        raise ValueError(f"activations have 8 or 16 bits, not {width}")
    if kind is Kind.DOUBLE_ROUNDING:
        left = 20 if width == 8 else 15
        twice = 2 * max(scale_a, scale_b)
        multiplier_a, shift_a = quantize_multiplier(scale_a / twice)
        multiplier_b, shift_b = quantize_multiplier(scale_b / twice)
        multiplier, shift = quantize_multiplier(twice / ((1 << left) * scale_y))
        return AddScaling(kind, left, multiplier_a, shift_a, multiplier_b, shift_b, multiplier, shift)
    if kind.has_scale:
        scale = scaling(kind, [scale_a / scale_y, scale_b / scale_y]).scale
        assert scale is not None
        return AddScaling(kind, scale_a=float(scale[0]), scale_b=float(scale[1]))
    if not kind.has_multiplier:
        of_a, of_b, of_y = (power_of_two(value) for value in (scale_a, scale_b, scale_y))
        finest = max(of_a, of_b)
        if finest - min(of_a, of_b) > 31:
            raise ValueError(
                f"the scales {scale_a:g} and {scale_b:g} are too far apart to be aligned by a left shift"
            )
        _check_shifts([finest - of_y], stage)
        return AddScaling(kind, shift_a=finest - of_a, shift_b=finest - of_b, shift=finest - of_y)
    real_a, real_b = scale_a / scale_y, scale_b / scale_y
    stage = {**stage, "min_shift": 0}
    multiplier, shift = quantize_multiplier(max(real_a, real_b), **stage)
    if multiplier == 0:
        return AddScaling(kind, shift=shift)
    return AddScaling(
        kind,
        multiplier_a=int(round_away(math.ldexp(real_a, shift))),
        multiplier_b=int(round_away(math.ldexp(real_b, shift))),
        shift=shift,
    )


def operand_sum_parameters(scale_a: float, scale_b: float, scale_y: float) -> AddScaling:
    """Addition that rounds each operand to the scale of the result and adds those integers.

    That is `half_up(d_1 m_1, n_1) + half_up(d_2 m_2, n_2)`, as TPU-MLIR has it. A multiplier is at most 126, and with its shift
    (0 to 30) the nearest to the float32 ratio of the scales. The form is that of `double_rounding` without a shift to the left
    and with a sum that goes through as it is.

    >>> p = operand_sum_parameters(0.05, 0.1, 0.1)
    >>> (p.multiplier_a / 2**p.shift_a, p.multiplier_b / 2**p.shift_b, p.multiplier / 2**p.shift)
    (0.5, 1.0, 1.0)
    """
    _check_scales(a=scale_a, b=scale_b, y=scale_y)
    of_a, of_b = _factor_of_an_operand(scale_a / scale_y), _factor_of_an_operand(scale_b / scale_y)
    return AddScaling(Kind.DOUBLE_ROUNDING, 0, *of_a, *of_b, 1 << 30, 30)


def _factor_of_an_operand(real: float) -> tuple[int, int]:
    """The (multiplier, shift) of `double_rounding` that rounds `d * m / 2^n` once: `m` of 7 bits at most, `n` from 0 to 30."""
    ratio = np.float32(real)
    if round_away(float(ratio)) > 126:
        raise ValueError(f"an operand is {real:g} times as coarse as the result, and the most is 126")
    shifts = [n for n in range(31) if round_away(math.ldexp(float(ratio), n)) <= 126]
    multipliers = [int(round_away(math.ldexp(float(ratio), n))) for n in shifts]
    errors = [
        np.float32(abs(math.ldexp(m, -n) - float(ratio))) for m, n in zip(multipliers, shifts, strict=True)
    ]
    best = int(np.argmin(errors))
    # By a power of two above 1 the operand is shifted to the left first, which is exact.
    left = max(0, (multipliers[best] >> shifts[best]).bit_length())
    return multipliers[best] << (31 - shifts[best] - left), 31 - left


def _check_shifts(shifts: Sequence[int], stage: StageLimits) -> None:
    least, most = stage.get("min_shift", MIN_SHIFT), stage.get("max_shift", MAX_SHIFT)
    for shift in shifts:
        if not least <= shift <= most:
            text = f"a shift of {shift} is outside {least}..{most}"
            if min(shifts) < least:
                raise ShiftTooSmall(text, least - min(shifts))
            raise ShiftTooLarge(text, max(shifts) - most)


def _check_scales(**scales: float) -> None:
    for name, value in scales.items():
        _check_scale(f"scale of {name}", value)


def _check_scale(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"the {what} is {value!r}; it must be a positive number")
