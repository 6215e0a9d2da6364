"""Faster R-CNN: anchors and proposals of the first stage, boxes and scores of the second."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.runtime.postprocess.boxes import Detections, corners, nms
from npuc.runtime.postprocess.scores import sigmoid, softmax

_LARGEST = log(1000 / 16)
"""What exp is taken of at most, so that a delta cannot make a box of a thousand images."""


def rpn_anchors(
    grid: tuple[int, int],
    stride: float,
    sizes: Sequence[float] = (128, 256, 512),
    ratios: Sequence[float] = (0.5, 1.0, 2.0),
) -> Array:
    """Anchors of a feature map as rows of x1, y1, x2, y2 in pixels: by row, column, ratio (height by width) and size.

    They are those of torchvision: an anchor of size s and ratio r is s / sqrt(r) wide and s * sqrt(r) high, its sides rounded to
    whole pixels around the corner of its cell.

    >>> rpn_anchors((1, 1), 16, sizes=[32], ratios=[1.0]).tolist()
    [[-16.0, -16.0, 16.0, 16.0]]
    """
    heights = np.sqrt(np.asarray(ratios, np.float32))
    scales = np.asarray(sizes, np.float32)
    w, h = ((1 / heights)[:, None] * scales).reshape(-1), (heights[:, None] * scales).reshape(-1)
    base = np.round(np.stack([-w, -h, w, h], axis=1) / 2)
    y, x = np.meshgrid(np.arange(grid[0]) * stride, np.arange(grid[1]) * stride, indexing="ij")
    shifts = np.stack([x, y, x, y], axis=-1).reshape(-1, 1, 4)
    anchors: Array = (shifts + base).reshape(-1, 4).astype(np.float32)
    return anchors


def rpn_rows(scores: Array, deltas: Array) -> tuple[Array, Array]:
    """Outputs of a first stage as rows in the order of `rpn_anchors`.

    `scores` is N x anchors x rows x columns, `deltas` N x 4 anchors x rows x columns.
    """
    n, each, rows, columns = scores.shape
    if deltas.shape != (n, 4 * each, rows, columns):
        raise InputDataError(
            f"scores of shape {scores.shape} do not belong to deltas of shape {deltas.shape}"
        )
    flat = scores.transpose(0, 2, 3, 1).reshape(n, -1)
    return flat, deltas.reshape(n, each, 4, rows, columns).transpose(0, 3, 4, 1, 2).reshape(n, -1, 4)


def decode_rpn(
    scores: Array,
    deltas: Array,
    anchors: Array,
    *,
    size: tuple[int, int],
    before: int = 1000,
    limit: int = 1000,
    iou_threshold: float = 0.7,
    least: float = 1.0,
    activated: bool = False,
) -> Detections:
    """The proposals of one image: `scores` of n anchors, `deltas` n x 4, `anchors` n x 4.

    The `before` surest boxes are cut at the edges of the image (`size` is height and width); those with a side below `least`, and
    those that overlap a better one, are dropped; `limit` are left.
    """
    if deltas.shape != (len(scores), 4) or anchors.shape != deltas.shape:
        raise InputDataError(
            f"{len(scores)} scores, {deltas.shape} deltas and {anchors.shape} anchors do not belong together"
        )
    sure = scores if activated else sigmoid(scores)
    order = np.argsort(-sure, kind="stable")[:before]
    boxes = _cut(_moved(anchors[order], deltas[order]), size)
    large = (boxes[:, 2:] - boxes[:, :2] >= least).all(axis=1)
    boxes, sure = boxes[large], sure[order][large]
    kept = nms(boxes, sure, iou_threshold, limit=limit)
    return Detections(boxes[kept], sure[kept], np.zeros(len(kept), np.int64))


def decode_rcnn(
    scores: Array,
    deltas: Array,
    proposals: Array,
    *,
    size: tuple[int, int],
    deviations: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    background: int | None = 0,
    score_threshold: float = 0.05,
    iou_threshold: float = 0.5,
    limit: int = 100,
    activated: bool = False,
) -> Detections:
    """The detections of one image: `scores` n x classes, `deltas` n x 4 classes (or n x 4, shared by all), `proposals` n x 4.

    Every class of a proposal but the background is a box of its own; those of a class suppress each other.
    """
    if scores.ndim != 2 or proposals.shape != (len(scores), 4):
        raise InputDataError("scores are proposals x classes, and proposals are rows of four numbers")
    count, classes = scores.shape
    if deltas.shape not in ((count, 4), (count, 4 * classes)):
        raise InputDataError(
            f"deltas of shape {deltas.shape} do not belong to {count} proposals of {classes} classes"
        )
    moves = deltas.reshape(count, -1, 4) * np.asarray(deviations, np.float32)
    boxes = np.broadcast_to(_cut(_moved(proposals[:, None], moves), size), (count, classes, 4))
    sure = scores if activated else softmax(scores)
    kinds = [k for k in range(classes) if k != background]
    boxes, sure = boxes[:, kinds].reshape(-1, 4), sure[:, kinds].reshape(-1)
    names = np.tile(np.arange(len(kinds)), count)
    keep = np.flatnonzero(sure >= score_threshold)
    boxes, sure, names = boxes[keep], sure[keep], names[keep]
    kept = nms(boxes, sure, iou_threshold, names, limit)
    return Detections(boxes[kept], sure[kept], names[kept])


def _moved(boxes: Array, deltas: Array) -> Array:
    extent = boxes[..., 2:] - boxes[..., :2]
    center = boxes[..., :2] + extent / 2 + deltas[..., :2] * extent
    grown = extent * np.exp(np.minimum(deltas[..., 2:], np.float32(_LARGEST)))
    return corners(np.concatenate([center, grown], axis=-1))


def _cut(boxes: Array, size: tuple[int, int]) -> Array:
    cut: Array = np.clip(boxes, 0, np.array([size[1], size[0]] * 2, np.float32)).astype(np.float32)
    return cut
