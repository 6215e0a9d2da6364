"""From ranges and weights to scales, zero points and integers: the constants of ARITHMETIC section 2.

Everything here is computed offline in float64 and rounded once.
"""

from __future__ import annotations

from math import ceil, isfinite, log2

import numpy as np

from npuc.arithmetic.dtypes import DType
from npuc.arithmetic.kinds import Scales
from npuc.arithmetic.requantization import round_away, round_constants
from npuc.arrays import Array
from npuc.ir.dtypes import QuantType, dtype_of
from npuc.quant.scheme import Scheme
from npuc.quant.weight_ranges import weight_thresholds

_SMALLEST = 2.0**-40
"""The scale of a tensor that is always zero; any positive value would do."""
_FINER = (1.0, 0.5, 0.25)


def activation_type(low: float, high: float, scheme: Scheme) -> QuantType:
    """The quantized type that covers [low, high] (widened to hold zero) under a scheme.

    >>> t = activation_type(0.0, 2.55, Scheme(activation="ui8"))
    >>> round(t.scale, 6), t.zero_point
    (0.01, 0)
    """
    if not (isfinite(low) and isfinite(high)):
        raise ValueError(f"a range from {low} to {high} is not finite")
    low, high = min(low, 0.0), max(high, 0.0)
    storage = scheme.activation
    from_zero = scheme.unsigned_from_zero and scheme.activation_scales is not Scales.AFFINE
    if from_zero and storage == "ui8" and low < 0:
        storage = "i8"
    least, most = _ends(dtype_of(storage), scheme.narrow_activations)
    if scheme.activation_scales == "affine":
        scale = _single(max((high - low) / (most - least), _SMALLEST), scheme)
        zero = int(np.clip(round_away(np.array(least - low / scale)), least, most))
        return QuantType.of(scheme.activation, scale, zero)
    reach = max(-low, high)
    # Integers on the longer side of zero, with zero.
    half = most + 1 if from_zero else (most - least) // 2 + 1
    zero = 0 if least < 0 or from_zero else half
    if scheme.activation_scales is Scales.POWER_OF_TWO:
        return QuantType.of(storage, 2.0 ** ceil(log2(max(reach / half, _SMALLEST)) - 1e-9), zero)
    steps = half if scheme.full_range else half - 1
    return QuantType.of(storage, _single(max(reach / steps, _SMALLEST), scheme), zero)


def _single(scale: float, scheme: Scheme) -> float:
    """A float32 value, so that every tool that reads the scale computes with the same number; or the scale as it is."""
    return scale if scheme.exact_scales else float(np.float32(scale))


def range_of(kind: QuantType, scheme: Scheme) -> tuple[float, float]:
    """The range that a quantized type covers under a scheme: the one that `activation_type` gives this type for.

    >>> scheme = Scheme(activation="i4")
    >>> activation_type(*range_of(QuantType.of("i4", 0.5, -8), scheme), scheme) == QuantType.of("i4", 0.5, -8)
    True
    """
    least, most = _ends(kind.dtype, scheme.narrow_activations)
    if scheme.activation_scales is Scales.AFFINE:
        return (least - kind.zero_point) * kind.scale, (most - kind.zero_point) * kind.scale
    from_zero = scheme.unsigned_from_zero and least == 0
    half = most + 1 if from_zero else (most - least) // 2 + 1
    steps = half if scheme.full_range or scheme.activation_scales is Scales.POWER_OF_TWO else half - 1
    reach = steps * kind.scale
    return (0.0 if from_zero else -reach), reach


def quantize_weight(
    weight: Array,
    axis: int,
    scheme: Scheme,
    bias: Array | None = None,
    input_scale: float = 1.0,
    least_scale: float = 0.0,
    chosen: Array | None = None,
) -> tuple[Array, Array]:
    """Symmetric integer weights and their scales, per tensor or per entry of `axis`, none below `least_scale`.

    The scales are those that the scheme's range method gives (the largest weights, unless it says otherwise), unless others are
    `chosen`.

    A channel whose weights are tiny relative to its bias gets a larger scale, at which the bias fits half of its width; the
    precision that its weights lose would not be visible in the sum.
    """
    real = np.asarray(weight, np.float64)
    lowest, most = scheme.weight_limits
    count = real.shape[axis] if scheme.per_channel else 1
    rows = (np.moveaxis(real, axis, 0) if scheme.per_channel else real).reshape(
        count, real.size // max(count, 1)
    )
    reach = weight_thresholds(rows, scheme.weight_method, most)
    if chosen is not None:
        scale = np.maximum(chosen, _SMALLEST).astype(np.float32).astype(np.float64)
    elif scheme.weight_scales is Scales.POWER_OF_TWO:
        scale = 2.0 ** np.ceil(np.log2(np.maximum(reach / (most + 1), _SMALLEST)) - 1e-9)
        scale = _finer(real, scale, axis, (lowest, most))
    else:
        steps = most + 1 if scheme.full_range else most
        scale = np.maximum(reach / steps, _SMALLEST).astype(np.float32).astype(np.float64)
    if bias is not None:
        # This holds for wider accumulators, too: the multiplier of a wider sum would need a shift that no kernel supports.
        room = 2.0 ** (min(scheme.accumulator_bits, scheme.bias_bits, 32) - 2)
        need = np.abs(np.asarray(bias, np.float64)) / (input_scale * room)
        need = (
            need
            if scheme.per_channel and need.shape == scale.shape
            else np.full_like(scale, need.max(initial=0.0))
        )
        if scheme.weight_scales is Scales.POWER_OF_TWO:
            need = 2.0 ** np.ceil(np.log2(np.maximum(need, _SMALLEST)))
        scale = np.maximum(scale, need.astype(np.float32).astype(np.float64))
    if least_scale > 0:
        scale = np.maximum(scale, _rounded_up(least_scale, scheme.weight_scales is Scales.POWER_OF_TWO))
    spread = (
        scale.reshape([-1 if i == axis else 1 for i in range(real.ndim)]) if scheme.per_channel else scale[0]
    )
    integers = np.clip(round_constants(real / spread, scheme.constant_rounding), lowest, most)
    return integers.astype(dtype_of(scheme.weight).numpy), scale


def quantize_affine_weight(
    weight: Array,
    scheme: Scheme,
    bias: Array | None = None,
    input_scale: float = 1.0,
    least_scale: float = 0.0,
) -> tuple[Array, Array, int]:
    """Unsigned integer weights, their per-tensor scale (not below `least_scale`), and their zero point.

    >>> [x.tolist() for x in quantize_affine_weight(np.array([-1.0, 0.0, 1.55]), Scheme(weight="ui8"))[:2]]
    [[0, 100, 255], [0.009999999776482582]]
    """
    real = np.asarray(weight, np.float64)
    least, most = dtype_of(scheme.weight).limits
    reach = float(weight_thresholds(real.reshape(1, -1), scheme.weight_method, most)[0])
    low = max(min(float(real.min(initial=0.0)), 0.0), -reach)
    high = min(max(float(real.max(initial=0.0)), 0.0), reach)
    need = 0.0
    if bias is not None:
        room = 2.0 ** (min(scheme.accumulator_bits, scheme.bias_bits, 32) - 2)
        need = float(np.abs(np.asarray(bias, np.float64)).max(initial=0.0)) / (input_scale * room)
    scale = _rounded_up(max((high - low) / (most - least), need, least_scale, _SMALLEST), power=False)
    zero = int(np.clip(round_away(np.array(least - low / scale)), least, most))
    integers = np.clip(round_constants(real / scale, scheme.constant_rounding) + zero, least, most)
    return integers.astype(dtype_of(scheme.weight).numpy), np.array([scale]), zero


def _finer(real: Array, scale: Array, axis: int, ends: tuple[int, int]) -> Array:
    """Power-of-two scales, halved or quartered where clipping the largest weights costs less than the coarser steps.

    Rounding up to a power of two can make a scale almost twice as large as the largest weight needs.
    """
    axes = tuple(i for i in range(real.ndim) if i != axis) if scale.size > 1 else None
    shape = [-1 if i == axis else 1 for i in range(real.ndim)] if scale.size > 1 else [1] * real.ndim
    errors = []
    for finer in _FINER:
        step = (scale * finer).reshape(shape)
        lost = real - np.clip(np.rint(real / step), *ends) * step
        errors.append(np.atleast_1d(np.square(lost).sum(axis=axes)))
    best: Array = scale * np.array(_FINER)[np.argmin(errors, axis=0)]
    return best


def _rounded_up(scale: float, power: bool) -> float:
    """The scale rounded up to a power of two, or to a float32 value."""
    if power:
        return float(2.0 ** ceil(log2(scale) - 1e-9))
    single = np.float32(scale)
    return float(single if single >= scale else np.nextafter(single, np.float32(np.inf)))


def quantize_bias(bias: Array, input_scale: float, weight_scale: Array, scheme: Scheme) -> Array:
    """b / (s_x * s_w), rounded, and saturated to the width of the scheme's biases."""
    return stored_bias(np.asarray(bias, np.float64) / (input_scale * weight_scale), scheme)


def stored_bias(real: Array, scheme: Scheme) -> Array:
    """Biases, given in steps of the accumulator, as the integers of a scheme.

    If the scheme limits the significant bits, all biases are multiples of the smallest power of two at which the largest fits.

    >>> stored_bias(np.array([1000.0, 3.0, 5.0]), Scheme(bias_significant_bits=8)).tolist()
    [1000, 0, 8]
    """
    bits = scheme.wide_bias_bits if scheme.wide else scheme.bias_bits
    limit = 2.0 ** (min(bits, 63) - 1)
    unit, kept = 1.0, limit
    if scheme.bias_significant_bits:
        kept = 2.0 ** (scheme.bias_significant_bits - 1)
        while np.abs(round_constants(real / unit, scheme.constant_rounding)).max(initial=0.0) >= kept:
            unit *= 2
    steps = round_constants(real / unit, scheme.constant_rounding)
    most = min(kept, np.ceil(limit / unit)) - 1
    wide: Array = np.clip(steps, -min(kept, limit / unit), most) * unit
    return wide.astype(np.int64 if scheme.wide else np.int32)


def bias_fits(bias: Array, scheme: Scheme) -> bool:
    """Whether given integer biases can be represented under a scheme."""
    reach = np.abs(bias.astype(np.float64)).max(initial=0.0)
    bits = scheme.wide_bias_bits if scheme.wide else scheme.bias_bits
    lowest = int(np.bitwise_or.reduce(bias.reshape(-1).astype(np.int64), initial=0))
    unit = lowest & -lowest or 1
    kept = scheme.bias_significant_bits or bits
    return bool(reach <= 2.0 ** (bits - 1) and reach / unit <= 2.0 ** (kept - 1))


def largest_sum(weight: Array, bias: Array | None, x: QuantType, axis: int) -> int:
    """The largest magnitude that an accumulator can reach: sum |q_w| * max |q_x - z_x| + |bias| of the worst channel."""
    least, most = x.dtype.limits
    reach = max(most - x.zero_point, x.zero_point - least)
    others = tuple(i for i in range(weight.ndim) if i != axis)
    worst = np.abs(weight.astype(np.int64)).sum(axis=others).astype(object) * reach
    if bias is not None and bias.size:
        # A grouped transposed convolution has a bias for each channel of each group.
        sizes = np.abs(bias.astype(object))
        worst = worst + (sizes if sizes.shape == worst.shape else sizes.max())
    return int(max(worst, default=0))


def quantize_array(real: Array, to: QuantType, rounding: str = "half_away", *, narrow: bool = False) -> Array:
    """A constant tensor as integers of a type."""
    least, most = _ends(to.dtype, narrow)
    # Infinite values saturate like others.
    finite = np.nan_to_num(np.asarray(real, np.float64) / to.scale, nan=np.nan)
    held: Array = np.clip(round_constants(finite, rounding) + to.zero_point, least, most)
    return held.astype(to.dtype.numpy)


def output_limits(
    to: QuantType, relu: bool = False, limit: float = 0.0, *, narrow: bool = False
) -> tuple[int, int]:
    """The range of an output's integers: that of its type, narrowed by a fused relu."""
    least, most = _ends(to.dtype, narrow)
    if relu:
        least = max(least, to.zero_point)
        if limit > 0:
            most = min(most, to.zero_point + int(round_away(np.array(limit / to.scale))))
    return least, max(least, most)


def _ends(dtype: DType, narrow: bool) -> tuple[int, int]:
    """The ends of a type's range, without the most negative value if it is narrow."""
    least, most = dtype.limits
    return (least + 1 if narrow and least < 0 else least), most
