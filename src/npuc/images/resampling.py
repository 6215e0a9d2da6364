"""Resize by fixed kernels, without a wider filter when an image shrinks: what OpenCV's `resize` computes.

Each output pixel is a weighted sum of a few input pixels per axis; `taps` gives their indices and weights. Pixel
centers are at half coordinates and the border is repeated. Results agree with OpenCV to one gray level (it rounds in
fixed point).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from npuc.arrays import Array


def _linear(x: Array) -> Array:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: Array, a: float = -0.75) -> Array:
    x = np.abs(x)
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 4, np.sinc(x) * np.sinc(x / 4), 0.0)


_KERNELS: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "bilinear": (1, _linear),
    "bicubic": (2, _cubic),
    "lanczos": (4, _lanczos),
}

KINDS = ("nearest", "bilinear", "bicubic", "area", "lanczos")
"""The interpolations."""


def taps(size: int, target: int, kind: str) -> tuple[Array, Array]:
    """For each of `target` outputs the indices of the inputs and their weights, both [target, number of taps]."""
    scale = size / target
    position = np.arange(target)
    if kind == "nearest":
        return np.minimum((position * scale).astype(np.int64), size - 1)[:, None], np.ones((target, 1))
    if kind == "area" and scale > 1:
        start = position * scale
        indices = np.floor(start).astype(np.int64)[:, None] + np.arange(math.ceil(scale) + 1)
        overlap = np.minimum(indices + 1, (start + scale)[:, None]) - np.maximum(indices, start[:, None])
        weights = np.maximum(overlap, 0.0)
        return np.clip(indices, 0, size - 1), weights / weights.sum(axis=1, keepdims=True)
    reach, kernel = _KERNELS["bilinear" if kind == "area" else kind]
    center = (position + 0.5) * scale - 0.5
    indices = np.floor(center).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    weights = kernel(center[:, None] - indices)
    return np.clip(indices, 0, size - 1), weights / weights.sum(axis=1, keepdims=True)


def resize(pixels: Array, height: int, width: int, kind: str) -> Array:
    """Height × width × channels resized; integers stay integers, rounded and clipped.

    >>> resize(np.array([[[0], [10]]], np.uint8), 1, 4, "bilinear")[0, :, 0].tolist()
    [0, 3, 8, 10]
    """
    result = pixels.astype(np.float32)
    for axis, target in ((0, height), (1, width)):
        indices, weights = taps(result.shape[axis], target, kind)
        shape = [1] * result.ndim
        shape[axis] = target
        total = np.zeros_like(np.take(result, indices[:, 0], axis=axis))
        for tap in range(indices.shape[1]):
            total += np.take(result, indices[:, tap], axis=axis) * weights[:, tap].astype(np.float32).reshape(
                shape
            )
        result = total
    if pixels.dtype.kind in "iu":
        limits = np.iinfo(pixels.dtype)
        result = np.clip(np.floor(result + 0.5), limits.min, limits.max)
    converted: Array = result.astype(pixels.dtype)
    return converted
