"""Random flips and crops of images, on the device where they are; the random numbers are those of the CPU on every device.

Channels come second, or last: an image whose last axis has 1 to 4 entries and whose second has more is of the second kind, as
Keras has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array

_MOST_CHANNELS = 4


def channels_last(shape: Sequence[int]) -> bool:
    """Whether images of this shape (N, ., ., .) have their channels last.

    >>> channels_last((1, 32, 32, 3)), channels_last((1, 3, 32, 32)), channels_last((1, 1, 32, 4))
    (True, False, False)
    """
    return shape[3] <= _MOST_CHANNELS < shape[1]


def moved(tensor: Any, device: Any) -> Any:
    """A tensor of the CPU on a device; the CPU does not wait for what the device still does."""
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def padded(images: Array, crop: int, border: Sequence[float] = ()) -> Array:
    """Images in a border of `crop` pixels, of one value for each channel or 0."""
    last = channels_last(images.shape)
    channels = images.shape[3 if last else 1]
    values = np.asarray(border if len(border) == channels else [0.0] * channels, images.dtype)
    around = (crop, crop)
    widths = ((0, 0), around, around, (0, 0)) if last else ((0, 0), (0, 0), around, around)
    whole = np.empty(
        [size + sum(pair) for size, pair in zip(images.shape, widths, strict=True)], images.dtype
    )
    whole[:] = values if last else values[:, None, None]
    whole[tuple(slice(before, before + n) for n, (before, _) in zip(images.shape, widths, strict=True))] = (
        images
    )
    return whole


def augmented(images: Any, crop: int, generator: Any) -> Any:
    """A batch of padded images, each cropped at a random place and flipped with probability 1/2."""
    last = channels_last(images.shape)
    count = len(images)
    height, width = (size - 2 * crop for size in (images.shape[1:3] if last else images.shape[2:]))
    offsets = moved(torch.randint(0, 2 * crop + 1, (2, count), generator=generator), images.device)
    flips = moved(torch.rand(count, generator=generator) < 0.5, images.device)
    rows = offsets[0][:, None] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(count, width)
    columns = offsets[1][:, None] + torch.where(flips[:, None], width - 1 - columns, columns)
    batch = torch.arange(count, device=images.device)
    if last:
        return images[batch[:, None, None], rows[:, :, None], columns[:, None, :]]
    channel = torch.arange(images.shape[1], device=images.device)
    return images[
        batch[:, None, None, None],
        channel[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def mixed(
    batch: Sequence[Any], labels: Any, classes: int, shape: float, generator: Any
) -> tuple[list[Any], Any]:
    """Each sample mixed with another one of its batch (mixup); classes become the shares that they have in the mixture.

    Shares come from a beta distribution with both parameters equal to `shape`.
    """
    count, device = len(batch[0]), batch[0].device
    gammas = torch._standard_gamma(torch.full((2, count), shape), generator=generator)
    share = moved(gammas[0] / gammas.sum(0).clamp(min=1e-30), device)
    other = moved(torch.randperm(count, generator=generator), device)

    def mix(x: Any) -> Any:
        weight = share.reshape(-1, *(1,) * (x.dim() - 1)).to(x.dtype)
        return weight * x + (1 - weight) * x[other]

    goal = None if labels is None else mix(torch.nn.functional.one_hot(labels, classes).to(batch[0].dtype))
    return [mix(x) for x in batch], goal
