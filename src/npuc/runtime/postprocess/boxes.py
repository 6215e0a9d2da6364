"""Boxes as rows of x1, y1, x2, y2: overlap, suppression, and back to the image they were found in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.images.preprocess import Preprocess


@dataclass(frozen=True)
class Detections:
    """What was found in an image, the best first."""

    boxes: Array
    """n x 4: x1, y1, x2, y2 in pixels of the network's input."""
    scores: Array
    classes: Array

    def __len__(self) -> int:
        return len(self.scores)


def corners(boxes: Array) -> Array:
    """Rows of center x, center y, width, height to rows of x1, y1, x2, y2.

    >>> corners(np.float32([[5, 5, 4, 2]])).tolist()
    [[3.0, 4.0, 7.0, 6.0]]
    """
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def iou(a: Array, b: Array) -> Array:
    """Intersection over union of every box of `a` with every one of `b`; 0 where both are empty.

    >>> iou(np.float32([[0, 0, 2, 2]]), np.float32([[1, 0, 3, 2]])).round(3).tolist()
    [[0.3330000042915344]]
    """
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=-1) for boxes in (a, b)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    ratios: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return ratios


def nms(
    boxes: Array,
    scores: Array,
    threshold: float = 0.45,
    classes: Array | None = None,
    limit: int | None = None,
) -> Array:
    """Indices of the boxes that are kept, the best first: those that overlap a better one by more than `threshold` go.

    With `classes`, only boxes of one class suppress each other. Of equal scores the lower index is better.
    """
    order = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while order.size and (limit is None or len(kept) < limit):
        best, rest = int(order[0]), order[1:]
        kept.append(best)
        gone = iou(boxes[best : best + 1], boxes[rest])[0] > threshold
        if classes is not None:
            gone &= classes[rest] == classes[best]
        order = rest[~gone]
    return np.array(kept, np.int64)


def detect(
    boxes: Array,
    scores: Array,
    *,
    score_threshold: float = 0.25,
    iou_threshold: float = 0.45,
    limit: int = 300,
    per_class: bool = True,
) -> Detections:
    """The detections of one image, from n boxes and their n x classes scores; each box has its best class."""
    classes = scores.argmax(axis=1) if len(scores) else np.zeros(0, np.int64)
    best = scores[np.arange(len(scores)), classes]
    keep = np.flatnonzero(best >= score_threshold)
    boxes, best, classes = boxes[keep], best[keep], classes[keep]
    chosen = nms(boxes, best, iou_threshold, classes if per_class else None, limit)
    return Detections(boxes[chosen], best[chosen], classes[chosen])


def boxes_to_image(
    boxes: Array, preprocess: Preprocess, shape: Sequence[int], height: int, width: int
) -> Array:
    """Boxes in pixels of an input of `shape` as boxes in pixels of the image that it was made of, cut at its edges.

    Undoes the resize, the padding and the crop of `preprocess`.
    """
    at = preprocess.placement(shape, height, width)
    offset, scale = np.array([at.left, at.top] * 2), np.array([at.width / width, at.height / height] * 2)
    unscaled: Array = (np.asarray(boxes, np.float64) - offset) / scale
    cut: Array = np.clip(unscaled, 0, np.array([width, height] * 2)).astype(np.float32)
    return cut
