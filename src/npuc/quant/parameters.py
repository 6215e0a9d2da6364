"""From ranges and weights to scales, zero points and integers: the constants of ARITHMETIC section 2.

Everything here is computed offline in float64 and rounded once.
"""

from __future__ import annotations

from math import ceil, isfinite, log2
from typing import Any

import numpy as np

from npuc.ir.dtypes import QuantType, dtype_of
from npuc.quant.arithmetic import round_away
from npuc.quant.scheme import Scheme

Array = np.ndarray[Any, Any]
_SMALLEST = 2.0**-40
"""The scale of a tensor that is always zero: anything positive serves."""


def activation_type(low: float, high: float, scheme: Scheme) -> QuantType:
    """The quantized type that covers [low, high] (widened to hold zero) under a scheme.

    >>> t = activation_type(0.0, 2.55, Scheme(activation="ui8"))
    >>> round(t.scale, 6), t.zero_point
    (0.01, 0)
    """
    if not (isfinite(low) and isfinite(high)):
        raise ValueError(f"a range from {low} to {high} is not finite")
    low, high = min(low, 0.0), max(high, 0.0)
    least, most = dtype_of(scheme.activation).limits
    if scheme.activation_scales == "affine":
        # A scale that float32 holds exactly: every tool that reads it computes with the same number.
        scale = float(np.float32(max((high - low) / (most - least), _SMALLEST)))
        zero = int(np.clip(round_away(np.array(least - low / scale)), least, most))
        return QuantType.of(scheme.activation, scale, zero)
    reach = max(-low, high)
    half = (most - least + 1) // 2
    zero = 0 if least < 0 else half
    if scheme.activation_scales == "pow2":
        return QuantType.of(scheme.activation, 2.0 ** ceil(log2(max(reach / half, _SMALLEST)) - 1e-9), zero)
    return QuantType.of(scheme.activation, float(np.float32(max(reach / (half - 1), _SMALLEST))), zero)


def quantize_weight(
    weight: Array, axis: int, scheme: Scheme, bias: Array | None = None, input_scale: float = 1.0
) -> tuple[Array, Array]:
    """Symmetric integers, and their scales: one, or one an entry of `axis`.

    A channel whose weights are almost nothing beside its bias gets a scale at which the bias fits half of 32 bits:
    the weights lose what the sum would not have shown.
    """
    real = np.asarray(weight, np.float64)
    least, most = dtype_of(scheme.weight).limits
    if scheme.per_channel:
        others = tuple(i for i in range(real.ndim) if i != axis)
        reach = np.abs(real).max(axis=others) if real.size else np.zeros(real.shape[axis])
    else:
        reach = np.array([np.abs(real).max() if real.size else 0.0])
    if scheme.weight_scales == "pow2":
        scale = 2.0 ** np.ceil(np.log2(np.maximum(reach / (most + 1), _SMALLEST)) - 1e-9)
    else:
        scale = np.maximum(reach / most, _SMALLEST).astype(np.float32).astype(np.float64)
    if bias is not None:
        # Also in a wider accumulator: the multiplier of a sum of more bits would need a shift that no kernel has.
        room = 2.0 ** (min(scheme.accumulator_bits, 32) - 2)
        need = np.abs(np.asarray(bias, np.float64)) / (input_scale * room)
        need = (
            need
            if scheme.per_channel and need.shape == scale.shape
            else np.full_like(scale, need.max(initial=0.0))
        )
        if scheme.weight_scales == "pow2":
            need = 2.0 ** np.ceil(np.log2(np.maximum(need, _SMALLEST)))
        scale = np.maximum(scale, need.astype(np.float32).astype(np.float64))
    spread = (
        scale.reshape([-1 if i == axis else 1 for i in range(real.ndim)]) if scheme.per_channel else scale[0]
    )
    lowest = -most if scheme.narrow_weights else least
    integers = np.clip(round_away(real / spread), lowest, most)
    return integers.astype(dtype_of(scheme.weight).numpy), scale


def quantize_bias(bias: Array, input_scale: float, weight_scale: Array, bits: int) -> Array:
    """round_away(b / (s_x * s_w)), saturated to the width."""
    real = np.asarray(bias, np.float64) / (input_scale * weight_scale)
    limit = 2.0 ** (min(bits, 63) - 1)
    wide: Array = np.clip(round_away(real), -limit, limit - 1)
    return wide.astype(np.int32 if bits <= 32 else np.int64)


def quantize_array(real: Array, to: QuantType) -> Array:
    """A constant tensor as integers of a type."""
    least, most = to.dtype.limits
    steps = round_away(np.asarray(real, np.float64) / to.scale) + to.zero_point
    held: Array = np.clip(steps, least, most)
    return held.astype(to.dtype.numpy)


def relu_limits(to: QuantType, relu: bool, limit: float) -> tuple[int, int]:
    """The range of an output's integers, narrowed by a fused relu."""
    least, most = to.dtype.limits
    if relu:
        least = max(least, to.zero_point)
        if limit > 0:
            most = min(most, to.zero_point + int(round_away(np.array(limit / to.scale))))
    return least, max(least, most)
