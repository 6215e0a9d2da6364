"""Fake quantization with learned scales: LSQ, and TQT for powers of two.

A scale is learned as its logarithm p: s = 2^p, or 2^round(p) where scales are powers of two. Elements inside of the range pass
their gradient on (straight-through), those outside do not; the scale gets

    ds = sum over elements of g * (round(x / s) - x / s inside, the end of the range outside)

and p gets ds / (s * sqrt(N * Q)), N elements of Q positive steps: relative changes of a scale are then as large as those of the
weights (LSQ), with every optimizer. For x = 0.8, s = 1: round(x / s) = 1, and ds = g * 0.2.
"""

from __future__ import annotations

from math import log2, sqrt
from typing import Any

import torch

_FURTHEST = 5.0
"""How far a scale may go from where it began, as a logarithm: a factor of 32."""


class _Scale(torch.autograd.Function):  # type: ignore[misc]
    """2^p, or 2^round(p); its gradient is divided by the scale and multiplied by a factor."""

    generate_vmap_rule = True

    @staticmethod
    def forward(exponent: Any, factor: float, power: bool) -> Any:
        return torch.exp2(torch.round(exponent) if power else exponent)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (scale,) = ctx.saved_tensors
        return gradient / scale * ctx.factor, None, None


class _FakeQuantize(torch.autograd.Function):  # type: ignore[misc]
    """(clamp(round(x / s) + zero, lo, hi) - zero) * s with the gradients of LSQ; ties are rounded up."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, scale: Any, zero: int, lo: int, hi: int) -> Any:
        # In place: a step of training is bound by the memory that these operations pass over.
        return (x / scale).add_(0.5).floor_().clamp_(lo - zero, hi - zero).mul_(scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, scale, ctx.zero, ctx.lo, ctx.hi = inputs
        # The result is kept by the layer that reads it, too: it costs no memory.
        ctx.save_for_backward(x, scale, output)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, scale, result = ctx.saved_tensors
        ends = ctx.lo - ctx.zero - 0.5, ctx.hi - ctx.zero + 0.5
        passed = torch.ops.aten.hardtanh_backward(gradient, x / scale, *ends)
        if not ctx.needs_input_grad[1]:
            return passed, None, None, None, None
        # Inside, an element is moved by result - x; outside, where nothing passes, the whole result grows with the scale.
        moved = _products(gradient, result - x, scale) + _products(gradient - passed, x, scale)
        return passed, (moved / scale).reshape(scale.shape), None, None, None


def _products(gradient: Any, change: Any, scale: Any) -> Any:
    """The sum of the products of two tensors for each scale."""
    if scale.numel() == 1:
        return torch.dot(gradient.reshape(-1), change.reshape(-1))
    return (gradient * change).sum([i for i, size in enumerate(scale.shape) if size == 1], keepdim=True)


class _Rounded(torch.autograd.Function):  # type: ignore[misc]
    """The nearest integers, with a straight-through gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return torch.floor(x + 0.5)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def fake_quantize(x: Any, scale: Any, zero: int, lo: int, hi: int) -> Any:
    """A tensor quantized and dequantized; the scale is a scalar tensor, or has size 1 on all axes but that of channels."""
    return _FakeQuantize.apply(x, scale, zero, lo, hi)


def rounded(x: Any) -> Any:
    """The nearest integers, with a straight-through gradient."""
    return _Rounded.apply(x)


class LearnedScale(torch.nn.Module):  # type: ignore[misc]
    """The scale, or the scales of channels, of a tensor."""

    def __init__(self, scale: Any, elements: int, steps: int, *, power: bool, learns: bool = True) -> None:
        super().__init__()
        exponent = torch.log2(torch.as_tensor(scale, dtype=torch.float64)).float()
        self.exponent = torch.nn.Parameter(exponent, requires_grad=learns)
        self.register_buffer("begin", exponent.clone())
        self.power = power
        self.set_size(elements, steps)

    def set_size(self, elements: int, steps: int) -> None:
        """The elements that the scale is for, and the steps of their range: its gradient is divided by the root of both."""
        self.factor = 1 / sqrt(max(elements, 1) * max(steps, 1))

    def begin_at(self, scale: Any) -> None:
        """Begin anew at a scale."""
        exponent = torch.log2(torch.as_tensor(scale, dtype=torch.float64)).to(self.exponent)
        with torch.no_grad():
            self.exponent.copy_(exponent.reshape(self.exponent.shape))
            self.begin.copy_(self.exponent)

    def forward(self) -> Any:
        """The scale, with the gradient of LSQ."""
        # A step that throws a scale out of all bounds would never be taken back: outside of them it has no gradient.
        bounded = torch.clamp(self.exponent, self.begin - _FURTHEST, self.begin + _FURTHEST)
        return _Scale.apply(bounded, self.factor, self.power)

    def extra_repr(self) -> str:
        """Where it is now."""
        return f"log2 {float(self.exponent.mean()):.2f}, {'powers of two' if self.power else 'any'}"


def best_scale(x: Any, scale: float, zero: int, lo: int, hi: int, *, power: bool) -> float:
    """The scale of least squared error for a tensor, from twice to a 32nd of a given one."""
    exponents = range(1, -6, -1) if power else [step / 8 for step in range(4, -41, -1)]
    errors = []
    for exponent in exponents:
        step = torch.as_tensor(scale * 2.0**exponent, dtype=x.dtype, device=x.device)
        errors.append(float((fake_quantize(x, step, zero, lo, hi) - x).square().mean()))
    best = list(exponents)[errors.index(min(errors))]
    return float(2.0 ** (log2(scale) + best))
