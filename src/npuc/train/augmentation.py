"""Random flips and crops of images, on the device where they are; the random numbers are those of the CPU on every device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array


def padded(images: Array, crop: int, border: Sequence[float] = ()) -> Array:
    """Images (N, C, H, W) in a border of `crop` pixels, of one value for each channel or 0."""
    count, channels, height, width = images.shape
    values = np.asarray(border if len(border) == channels else [0.0] * channels, images.dtype)
    whole = np.empty((count, channels, height + 2 * crop, width + 2 * crop), images.dtype)
    whole[:] = values[:, None, None]
    whole[:, :, crop : crop + height, crop : crop + width] = images
    return whole


def augmented(images: Any, crop: int, generator: Any) -> Any:
    """A batch of padded images, each cropped at a random place and flipped with probability 1/2."""
    count, channels, height, width = images.shape
    height, width = height - 2 * crop, width - 2 * crop
    offsets = torch.randint(0, 2 * crop + 1, (2, count), generator=generator).to(images.device)
    flips = (torch.rand(count, generator=generator) < 0.5).to(images.device)
    rows = offsets[0][:, None] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(count, width)
    columns = offsets[1][:, None] + torch.where(flips[:, None], width - 1 - columns, columns)
    batch = torch.arange(count, device=images.device)
    channel = torch.arange(channels, device=images.device)
    return images[
        batch[:, None, None, None],
        channel[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]
