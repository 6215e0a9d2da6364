"""The SSD family: prior boxes, and offsets from them to boxes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import sqrt
from typing import Literal

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.runtime.postprocess.boxes import corners
from npuc.runtime.postprocess.scores import sigmoid, softmax

Activation = Literal["softmax", "sigmoid", "none"]


def ssd_priors(
    grids: Sequence[tuple[int, int]],
    sizes: Sequence[float],
    ratios: Sequence[Sequence[float]],
) -> Array:
    """Prior boxes of the original SSD: center x, center y, width, height as parts of the image.

    `grids` has rows and columns of every feature map, `sizes` the box sizes of the maps and one more for the last, `ratios`
    the aspect ratios of each map beside 1. A cell has a square of its size, a square of the geometric mean with the next
    size, and for every ratio a wide and a tall box.
    """
    if len(sizes) != len(grids) + 1 or len(ratios) != len(grids):
        raise InputDataError(
            f"{len(grids)} maps need {len(grids) + 1} sizes and {len(grids)} lists of ratios"
        )
    rows: list[tuple[float, float, float, float]] = []
    for (height, width), size, following, own in zip(grids, sizes[:-1], sizes[1:], ratios, strict=True):
        mean = sqrt(size * following)
        shapes = [(size, size), (mean, mean)]
        for ratio in own:
            root = sqrt(ratio)
            shapes += [(size * root, size / root), (size / root, size * root)]
        for y, x in product(range(height), range(width)):
            rows += [((x + 0.5) / width, (y + 0.5) / height, w, h) for w, h in shapes]
    return np.array(rows, np.float32)


def decode_ssd(
    offsets: Array,
    scores: Array,
    priors: Array,
    *,
    size: tuple[int, int],
    variances: tuple[float, float] = (0.1, 0.2),
    order: Literal["xywh", "yxhw"] = "xywh",
    activation: Activation = "softmax",
    background: int | None = 0,
) -> list[tuple[Array, Array]]:
    """Boxes in pixels of an input of `size` (height, width) and scores of the classes but the background, by image.

    `offsets` is N x priors x 4, `scores` N x priors x classes, `priors` as `ssd_priors` gives them. TensorFlow's detectors
    have their offsets in the order y, x, h, w, and a sigmoid.
    """
    if offsets.ndim != 3 or offsets.shape[2] != 4 or scores.ndim != 3:
        raise InputDataError("offsets are N x priors x 4 and scores N x priors x classes")
    if offsets.shape[:2] != scores.shape[:2] or offsets.shape[1:] != priors.shape:
        raise InputDataError(
            f"{offsets.shape[1]} offsets, {scores.shape[1]} scores and {len(priors)} priors do not belong together"
        )
    t = offsets if order == "xywh" else offsets[..., [1, 0, 3, 2]]
    center = priors[:, :2] + t[..., :2] * variances[0] * priors[:, 2:]
    boxes = corners(np.concatenate([center, priors[:, 2:] * np.exp(t[..., 2:] * variances[1])], axis=-1))
    boxes = (boxes * np.array([size[1], size[0]] * 2, np.float32)).astype(np.float32)
    probabilities = (
        softmax(scores) if activation == "softmax" else sigmoid(scores) if activation == "sigmoid" else scores
    )
    if background is not None:
        probabilities = np.delete(probabilities, background, axis=2)
    return list(zip(boxes, probabilities, strict=True))
