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


_APART = 4099
"""The distance between the masks of neighbouring samples in the pool: odd, so that no two rows of an image meet."""


class DropMasks:
    """Random masks in which a share of the elements is 1, the others 0: windows into one random pool, at random places.

    Drawing a random number for every element of every tensor would take as long as the layers themselves. They are floats, to
    be blended with: on a processor, `torch.where` and comparisons take ten times as long as arithmetic.

    A sample of a batch has the same masks on every device, and however many samples go through a block at once: the pool and the
    places are drawn on the processor, one place for each tensor of a batch, and samples have windows at a fixed distance from it.
    """

    def __init__(self, share: float, seed: int, device: str) -> None:
        self.share, self._device = share, device
        self._generator = torch.Generator().manual_seed(seed)
        self._places: list[int] = []
        self._samples, self._first, self._count, self._call = 1, 0, 1, 0
        self._pool = self._drawn(1 << 16)

    def _drawn(self, size: int) -> Any:
        drawn = torch.rand(size, generator=self._generator)
        return (drawn < self.share).double().to(self._device)

    def begin_batch(self, samples: int) -> None:
        """The next masks are those of a new batch of so many samples."""
        self._samples, self._places = samples, []
        self.begin_part(0, samples)

    def begin_part(self, first: int, count: int) -> None:
        """The next masks are those of so many samples of the batch, from one on; all parts have the same order of tensors."""
        self._first, self._count, self._call = first, count, 0

    def __call__(self, tensor: Any) -> Any:
        """A mask of the shape of a tensor, whose first axis is that of the samples."""
        count = self._count if tensor.numel() % self._count == 0 else 1
        size = tensor.numel() // count
        reach = size + (self._samples - 1) * _APART
        if 2 * reach > self._pool.numel():
            # Windows that were given stay where they are.
            self._pool = torch.cat([self._pool, self._drawn(2 * reach - self._pool.numel())])
        if self._call == len(self._places):
            last = self._pool.numel() - reach
            self._places.append(int(torch.randint(last + 1, (), generator=self._generator)))
        place = self._places[self._call]
        self._call += 1
        windows = self._pool.as_strided((count, size), (_APART, 1), place + self._first * _APART)
        return windows.reshape(tensor.shape)
