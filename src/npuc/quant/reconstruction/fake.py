"""Fake quantization in torch: quantize and dequantize with gradients."""

from __future__ import annotations

from typing import Any

import torch

from npuc.ir.dtypes import QuantType


class _Round(torch.autograd.Function):  # type: ignore[misc]
    """Rounding with a straight-through gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class _HalfUp(_Round):
    """Rounding with ties towards positive infinity, with a straight-through gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.floor(x + 0.5)


def rounded(x: Any) -> Any:
    """The nearest integers, with a straight-through gradient."""
    return _Round.apply(x)


def fake_quantized(x: Any, kind: QuantType, scale: Any = None) -> Any:
    """A tensor quantized to a type and dequantized; `scale` overrides the type's, and may be a tensor with a gradient (LSQ).

    Ties are rounded up, as in the output stages of most targets: with power-of-two scales, half of all sums of two tensors
    may be ties, and rounding them differently would be a bias.
    """
    step = kind.scale if scale is None else scale
    least, most = kind.dtype.limits
    steps = _HalfUp.apply(x / step) + kind.zero_point
    return (steps.clamp(least, most) - kind.zero_point) * step
