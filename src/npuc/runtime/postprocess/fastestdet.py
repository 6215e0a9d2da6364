"""FastestDet: one head, one box a cell, scores that mix objectness and class."""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.runtime.postprocess.boxes import corners
from npuc.runtime.postprocess.scores import sigmoid


def decode_fastestdet(head: Array, size: tuple[int, int]) -> list[tuple[Array, Array]]:
    """Boxes in pixels of an input of `size` (height, width) and scores of the classes, by image.

    `head` is N x (5 + classes) x rows x columns: objectness and the probabilities of the classes as the network has activated
    them, and offsets. A score is objectness ** 0.6 x probability ** 0.4.
    """
    if head.ndim != 4 or head.shape[1] < 6:
        raise InputDataError(
            f"a head of FastestDet is N x (5 + classes) x rows x columns, not {list(head.shape)}"
        )
    n, channels, rows, columns = head.shape
    t = head.reshape(n, channels, rows * columns).transpose(0, 2, 1)
    y, x = np.divmod(np.arange(rows * columns, dtype=np.float32), np.float32(columns))
    center = np.stack(
        [(np.tanh(t[..., 1]) + x) / columns * size[1], (np.tanh(t[..., 2]) + y) / rows * size[0]], axis=-1
    )
    extent = sigmoid(t[..., 3:5]) * np.array([size[1], size[0]], np.float32)
    boxes = corners(np.concatenate([center, extent], axis=-1)).astype(np.float32)
    objectness, classes = np.maximum(t[..., :1], 0), np.maximum(t[..., 5:], 0)
    scores = objectness**0.6 * classes**0.4
    return list(zip(boxes, scores.astype(np.float32), strict=True))
