"""Fake quantization in torch: reals as the integers of a type would give them back, with gradients."""

from __future__ import annotations

from typing import Any

import torch

from npuc.ir.dtypes import QuantType


class _Round(torch.autograd.Function):  # type: ignore[misc]
    """Rounding whose gradient is that of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class _HalfUp(_Round):
    """The same, with ties towards positive infinity."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.floor(x + 0.5)


def rounded(x: Any) -> Any:
    """The nearest integers; the gradient passes straight through."""
    return _Round.apply(x)


def fake_quantized(x: Any, kind: QuantType, scale: Any = None) -> Any:
    """Reals as a type holds them; another `scale` than the type's may be a tensor, which then has a gradient (LSQ).

    Ties go up, as in the output stages of most machines: where scales are powers of two, half of all sums of two
    tensors may be ties, and what is done with them is a bias.
    """
    step = kind.scale if scale is None else scale
    least, most = kind.dtype.limits
    steps = _HalfUp.apply(x / step) + kind.zero_point
    return (steps.clamp(least, most) - kind.zero_point) * step
