"""Fake quantization in torch: quantize and dequantize with gradients.

Networks learn with one such rounding behind every layer, so this takes as long as their convolutions if it is written as
a chain of torch operations, each with a tensor of its own and a backward pass. Here it is one autograd function, which
works in place.
"""

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


def rounded(x: Any) -> Any:
    """The nearest integers, with a straight-through gradient."""
    return _Round.apply(x)


class _FakeQuantize(torch.autograd.Function):  # type: ignore[misc]
    """Rounding passes gradients straight through, clipping stops them; the gradient of the step is that of LSQ."""

    @staticmethod
    def forward(ctx: Any, x: Any, step: Any, least: int, most: int, keep: Any) -> Any:
        y = torch.div(x, step).add_(0.5).floor_().clamp_(least, most).mul_(step)
        if keep is not None:
            y.lerp_(x, keep)
        ctx.ends = (least - 0.5) * float(step), (most + 0.5) * float(step)
        ctx.has_keep = keep is not None
        saved = [x, *([] if keep is None else [keep])]
        ctx.save_for_backward(*saved, *((y, step) if ctx.needs_input_grad[1] else ()))
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, *others = ctx.saved_tensors
        passed = torch.ops.aten.hardtanh_backward(gradient, x, *ctx.ends)
        if ctx.has_keep:
            passed.lerp_(gradient, others.pop(0))
        by_step = None
        if others:
            # Elements within the range change by (y - x) / step, clipped ones by y / step. Two sums, because the products of
            # all x and all y would cancel each other almost entirely.
            y, step = others
            by_step = (_dot(gradient, y - x) + _dot(gradient - passed, x)) / step
        return passed, by_step, None, None, None


def _dot(first: Any, second: Any) -> Any:
    return torch.dot(first.reshape(-1), second.reshape(-1))


def fake_quantized(x: Any, kind: QuantType, scale: Any = None, keep: Any = None) -> Any:
    """A tensor quantized to a type and dequantized; `scale` overrides the type's, and may be a tensor with a gradient (LSQ).

    Elements where the mask `keep` is 1 stay as they are (QDrop). Ties are rounded up, as in the output stages of most
    targets: with power-of-two scales, half of all sums of two tensors may be ties, and rounding them differently would be a
    bias.
    """
    step = kind.scale if scale is None else scale
    least, most = (limit - kind.zero_point for limit in kind.dtype.limits)
    if torch.is_grad_enabled():
        return _FakeQuantize.apply(x, step, least, most, keep)
    y = torch.div(x, step).add_(0.5).floor_().clamp_(least, most).mul_(step)
    return y if keep is None else y.lerp_(x, keep)


class DropMasks:
    """Random masks in which a share of the elements is 1, the others 0: windows into one random pool, at random places.

    Drawing a random number for every element of every tensor would take as long as the layers themselves. They are floats, to
    be blended with: on a processor, `torch.where` and comparisons take ten times as long as arithmetic.
    """

    def __init__(self, share: float, seed: int, device: str) -> None:
        self.share, self._device = share, device
        self._generator = torch.Generator(device).manual_seed(seed)
        self._places = torch.Generator().manual_seed(seed)
        self._pool = self._drawn(1 << 16)

    def _drawn(self, size: int) -> Any:
        drawn = torch.rand(size, generator=self._generator, device=self._device)
        return (drawn < self.share).float()

    def __call__(self, tensor: Any) -> Any:
        """A mask of the shape of a tensor."""
        count = tensor.numel()
        if 2 * count > self._pool.numel():
            self._pool = self._drawn(2 * count)
        place = int(torch.randint(self._pool.numel() - count + 1, (), generator=self._places))
        return self._pool[place : place + count].view(tensor.shape)
