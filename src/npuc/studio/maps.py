"""Tensors as a page draws them: numbers that JSON can have, histograms, and maps of one channel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npuc.arrays import Array

BINS = 64
_MOST_CELLS = 128
"""Rows and columns of a heat map; larger maps are sampled evenly."""


def plain(number: float) -> float | str:
    """A number as JSON can have it: an infinite one is a text.

    >>> plain(1.5), plain(math.inf)
    (1.5, 'inf')
    """
    return number if math.isfinite(number) else str(number)


def channel_count(array: Array) -> int:
    """How many maps a tensor has: the channels of its first sample; 1 below rank 4.

    >>> channel_count(np.zeros((1, 16, 8, 8))), channel_count(np.zeros((1, 10)))
    (16, 1)
    """
    return array.shape[1] if array.ndim >= 4 else 1


def channel_map(array: Array, channel: int) -> Array:
    """One channel of the first sample with two axes, sampled evenly where it is larger than a map.

    >>> channel_map(np.zeros((1, 3, 200, 8)), 0).shape
    (100, 8)
    """
    if array.ndim >= 4:
        array = array[0, min(max(channel, 0), array.shape[1] - 1)]
    if array.ndim == 0:
        array = array.reshape(1, 1)
    plane = array.reshape(-1, array.shape[-1]) if array.ndim != 1 else array.reshape(1, -1)
    steps = [max(1, -(-size // _MOST_CELLS)) for size in plane.shape]
    return plane[:: steps[0], :: steps[1]]


def ends(arrays: list[Array]) -> tuple[float, float]:
    """The least and the largest finite number of all."""
    lows, highs = [], []
    for array in arrays:
        real = np.asarray(array, np.float64)
        real = real[np.isfinite(real)]
        if real.size:
            lows.append(float(real.min()))
            highs.append(float(real.max()))
    return (min(lows), max(highs)) if lows else (0.0, 0.0)


def histogram(array: Array, low: float, high: float) -> list[int]:
    """How many finite numbers lie in each of the equal bins from low to high."""
    flat = np.asarray(array, np.float64).reshape(-1)
    if not np.isfinite(high - low):
        flat, low, high = flat / 4, low / 4, high / 4
    # Numbers that hardly differ leave no room for bins between them.
    if high - low < 4 * BINS * np.spacing(max(abs(low), abs(high))):
        high = low + max(1.0, abs(low))
    counts, _ = np.histogram(flat[np.isfinite(flat)], bins=BINS, range=(low, high))
    return [int(count) for count in counts]


def histogram_of(array: Array) -> tuple[float, float, list[int]]:
    """The least and the largest finite number, and how many lie in each of the equal bins between them."""
    low, high = ends([array])
    return low, high, histogram(array, low, high)


def constant_record(constant: Array) -> dict[str, Any]:
    """A constant as the page draws it: a histogram, and its first map; nothing of one that has no numbers."""
    if constant.dtype.kind not in "fiu" or not constant.size:
        return {}
    real = np.asarray(constant, np.float64)
    low, high, counts = histogram_of(real)
    return {
        "constant": True,
        "low": low,
        "high": high,
        "histogram": counts,
        "channels": channel_count(real),
        "map": plain_map(channel_map(real, 0)),
    }


def plain_map(plane: Array) -> list[list[float | str]]:
    """A map as rows of numbers with five digits, which is more than a colour shows."""
    return [[plain(float(f"{value:.5g}")) for value in row] for row in np.asarray(plane, np.float64)]
