"""Segmentation: scores of pixels to labels, labels to the image they belong to, colours, and a measure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.aliases import renamed_keywords
from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.images.preprocess import Preprocess


def label_map(scores: Array, axis: int = 1, threshold: float = 0.0) -> Array:
    """The best class of every pixel, without the axis of classes; with one class, 1 where its score is above `threshold`.

    >>> label_map(np.float32([[[[1, 5]], [[3, 2]]]])).tolist()
    [[[1, 0]]]
    """
    scores = np.asarray(scores)
    if scores.ndim < 3:
        raise InputDataError(f"scores of pixels have rank 3 or more, not {scores.ndim}")
    if scores.shape[axis] == 1:
        above: Array = scores.take(0, axis) > threshold
        return above.astype(np.uint8)
    labels: Array = scores.argmax(axis=axis)
    return labels.astype(np.uint8 if scores.shape[axis] <= 256 else np.int32)


def labels_to_image(
    labels: Array, preprocess: Preprocess, shape: Sequence[int], height: int, width: int, outside: int = 0
) -> Array:
    """Labels (rows x columns) at the size of the image that the input of `shape` was made of.

    Undoes resize, padding and crop as `boxes_to_image` does for boxes; every pixel takes the label that is nearest to its center.
    What a crop has cut off is `outside`. Labels may be coarser than the input.
    """
    if labels.ndim != 2:
        raise InputDataError(f"labels of one image have rank 2, not {labels.ndim}")
    resize, crop = preprocess.steps(shape)
    visible, at = crop or resize, preprocess.placement(shape, height, width)
    y = _nearest(height, at.height, at.top, visible[0], labels.shape[0])
    x = _nearest(width, at.width, at.left, visible[1], labels.shape[1])
    restored = np.full((height, width), outside, labels.dtype)
    inside = np.ix_(y >= 0, x >= 0)
    restored[inside] = labels[np.ix_(y[y >= 0], x[x >= 0])]
    return restored


def _nearest(length: int, resized: int, offset: int, visible: int, cells: int) -> Array:
    """For every pixel of the image the cell of the labels, -1 where there is none."""
    at = (np.arange(length) + 0.5) * resized / length + offset
    cell = np.floor(at * cells / visible).astype(np.int64)
    return np.where((at >= 0) & (at < visible), np.clip(cell, 0, cells - 1), -1)


def palette(classes: int) -> Array:
    """A colour for every class, the first black: the bits of the number spread over red, green and blue.

    >>> palette(3).tolist()
    [[0, 0, 0], [128, 0, 0], [0, 128, 0]]
    """
    number = np.arange(classes)
    colours = np.zeros((classes, 3), np.uint8)
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= ((number >> channel & 1) << (7 - bit)).astype(np.uint8)
        number >>= 3
    return colours


@renamed_keywords(picture="image")
def overlay(image: Array, labels: Array, strength: float = 0.5, background: int | None = 0) -> Array:
    """An image (rows x columns x 3, uint8) with labels of its size in colours; pixels of the background stay."""
    if image.shape != (*labels.shape, 3) or image.dtype != np.uint8:
        raise InputDataError(
            f"an image of {image.shape} {image.dtype.name} and labels of {labels.shape} do not belong together"
        )
    colours = palette(int(labels.max(initial=0)) + 1)[labels]
    mixed = np.rint(image * (1 - strength) + colours * strength).astype(np.uint8)
    return mixed if background is None else np.where((labels == background)[..., None], image, mixed)


def mean_iou(labels: Array, truth: Array, classes: int, ignored: int | None = 255) -> tuple[float, Array]:
    """Intersection over union of every class (NaN where it is in neither), and their mean; `ignored` pixels do not count."""
    if labels.shape != truth.shape:
        raise InputDataError(f"labels of {labels.shape} and truth of {truth.shape} do not belong together")
    kept = np.ones(truth.shape, bool) if ignored is None else truth != ignored
    a, b = labels[kept].astype(np.int64), truth[kept].astype(np.int64)
    if a.size and (min(a.min(), b.min()) < 0 or max(a.max(), b.max()) >= classes):
        raise InputDataError(f"a label is not below {classes}")
    table = np.bincount(a * classes + b, minlength=classes * classes).reshape(classes, classes)
    shared = np.diag(table).astype(np.float64)
    union = table.sum(0) + table.sum(1) - shared
    ratios = np.divide(shared, union, out=np.full(classes, np.nan), where=union > 0)
    return (float(np.nanmean(ratios)) if (union > 0).any() else float("nan")), ratios
