"""Helpers of optimizer plugins (`AIPUBuilder.Optimizer.utils`), on NumPy arrays and torch tensors.

Scales are factors on reals: q = round(x * scale) - zero point.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npuc.compat.compass.optimizer_plugins import Dtype


def bits2range(bits: int, is_signed: bool) -> tuple[int, int]:
    """The least and the greatest integer.

    >>> bits2range(8, True), bits2range(8, False)
    ((-128, 127), (0, 255))
    """
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)


def is_signed(dtype: Dtype) -> bool:
    """Whether a type has negative values."""
    return dtype.value.startswith(("int", "float", "bfloat"))


def dtype2nptype(dtype: Dtype) -> Any:
    """The type of NumPy."""
    return np.dtype("float32" if dtype is Dtype.BFP16 else dtype.value)


def nhwc2nchw(x: Any) -> Any:
    """Channels from the end to the second place."""
    return x.transpose(0, 3, 1, 2) if isinstance(x, np.ndarray) else x.permute(0, 3, 1, 2)


def nchw2nhwc(x: Any) -> Any:
    """Channels from the second place to the end."""
    return x.transpose(0, 2, 3, 1) if isinstance(x, np.ndarray) else x.permute(0, 2, 3, 1)


def linear_quantize_clip(
    x: Any, scale: Any, zero_point: Any, clamp_min: float, clamp_max: float, *_: Any
) -> Any:
    """round(x * scale) - zero point, within limits."""
    return (x * scale).round().__sub__(zero_point).clip(clamp_min, clamp_max)


def linear_requantize(
    x: Any, scale: Any, shift: Any, zero_point: Any, clamp_min: float, clamp_max: float, *_: Any
) -> Any:
    """round(x * scale / 2^shift) - zero point, within limits."""
    return linear_quantize_clip(x, scale * 0.5**shift, zero_point, clamp_min, clamp_max)


def lookup_lut_powerof2(
    x: Any, lut: Any, in_bits: int, in_is_signed: bool, out_bits: int, out_is_signed: bool, *_: Any
) -> Any:
    """Entries of a table of 2^n, interpolated between where there are fewer than integers."""
    index = x - bits2range(in_bits, in_is_signed)[0]
    step = max(0, in_bits - int(math.log2(len(lut))))
    low = np.asarray(index).astype(np.int64) >> step
    high = np.minimum(low + 1, len(lut) - 1)
    table = np.asarray(lut).astype(np.int64)
    rest = np.asarray(index).astype(np.int64) - (low << step)
    values = table[low] + ((table[high] - table[low]) * rest >> step)
    return np.clip(values, *bits2range(out_bits, out_is_signed))


class QuantMode:
    """Methods of quantization by their names."""

    @staticmethod
    def is_per_channel(mode: str) -> bool:
        """Whether it has a scale for each channel."""
        return mode.lower().startswith("per_channel")

    @staticmethod
    def is_asymmetric(mode: str) -> bool:
        """Whether it has a zero point."""
        return "asymmetric" in mode.lower()

    @staticmethod
    def is_full_range(mode: str) -> bool:
        """Whether it uses all integers."""
        return "restricted" not in mode.lower()

    @staticmethod
    def to_symmetric(mode: str) -> str:
        """The same without a zero point."""
        return mode.replace("_asymmetric", "_symmetric_full_range") if QuantMode.is_asymmetric(mode) else mode


def get_linear_quant_params_from_tensor(
    tensor: Any, quant_mode: str, bits: int, signed: bool
) -> tuple[float, int, int, int, Dtype]:
    """The scale, the zero point, the least and the greatest integer, and the type, for a tensor with `min` and `max`."""
    low, high = min(float(tensor.min), 0.0), max(float(tensor.max), 0.0)
    least, most = bits2range(bits, signed)
    kind = Dtype[f"{'' if signed else 'U'}INT{8 if bits <= 8 else 16 if bits <= 16 else 32}"]
    if QuantMode.is_asymmetric(quant_mode):
        scale = (most - least) / max(high - low, 1e-12)
        return scale, round(low * scale) - least, least, most, kind
    if not QuantMode.is_full_range(quant_mode) and signed:
        least = -most
    return most / max(abs(low), high, 1e-12), 0, least, most, kind


def get_scale_approximation_params(
    fp32_scale_value: float, mult_bits: int = 8, *_: Any, **__: Any
) -> tuple[int, Dtype, int, Dtype]:
    """A factor as an integer of `mult_bits` bits and a shift to the right, with their types."""
    exponent = math.frexp(float(fp32_scale_value))[1]
    shift = mult_bits - exponent
    scale = min(round(float(fp32_scale_value) * 2.0**shift), (1 << mult_bits) - 1)
    return scale, Dtype.UINT8 if mult_bits <= 8 else Dtype.UINT16, shift, Dtype.INT8


__all__ = [
    "QuantMode",
    "bits2range",
    "dtype2nptype",
    "get_linear_quant_params_from_tensor",
    "get_scale_approximation_params",
    "is_signed",
    "linear_quantize_clip",
    "linear_requantize",
    "lookup_lut_powerof2",
    "nchw2nhwc",
    "nhwc2nchw",
]
