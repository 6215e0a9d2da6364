"""Sparse activations: of every block of channels only the half of largest magnitude goes into a layer.

The blocks are 4, 8 or 16 consecutive channels of a pixel (axis 1 of images, the last axis of matrices), a shorter last block
keeps half of its channels, rounded up; of equal magnitudes the first stay. The gradient flows through what stays.

No machine of npuc chooses activations so: this is for training networks whose machine does.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from npuc.errors import UsageError

BLOCKS = (4, 8, 16)
SPARSITIES = (0.0, 0.5)


def check_activation_sparsity(sparsity: float, block: int) -> None:
    """A `UsageError` for what is not defined."""
    if sparsity not in SPARSITIES or block not in BLOCKS:
        raise UsageError(
            f"an activation sparsity of {sparsity:g} in blocks of {block} is not defined",
            fix="The sparsity is 0 or 0.5, in blocks of 4, 8 or 16 channels",
        )


def half_of_blocks(x: Any, block: int, axis: int = 1) -> Any:
    """The activations with zeros for the half of smaller magnitude in each block along an axis.

    >>> half_of_blocks(torch.tensor([[1.0, -4.0, 3.0, 2.0]]), 4).tolist()
    [[0.0, -4.0, 3.0, 0.0]]
    """
    moved = x.movedim(axis, -1)
    channels = moved.shape[-1]
    whole = -(-channels // block) * block
    with torch.no_grad():
        # Behind the last channel: less than any magnitude, so that it is never kept before a channel.
        magnitude = F.pad(moved.abs(), (0, whole - channels), value=-1.0).unflatten(-1, (-1, block))
        rank = magnitude.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        there = (magnitude >= 0).sum(-1, keepdim=True)
        keep = (rank < (there + 1) // 2).flatten(-2)[..., :channels]
    return torch.where(keep, moved, torch.zeros_like(moved)).movedim(-1, axis)
