"""Heads of detectors to boxes and scores in ONNX nodes; `npuc.runtime.postprocess` has the same in NumPy.

Every function gives the names of boxes (N x rows x 4: x1, y1, x2, y2 in pixels of the input) and scores (N x rows x classes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.frontend.postprocess.nodes import Nodes, ints, real
from npuc.frontend.postprocess.options import PostprocessOptions


@dataclass(frozen=True)
class Head:
    """A tensor of N x channels x rows x columns and what belongs to it."""

    name: str
    shape: tuple[int, ...]
    stride: float
    anchors: tuple[tuple[float, float], ...] = ()
    scale_xy: float = 1.0


def with_anchors(n: Nodes, head: Head, options: PostprocessOptions) -> tuple[str, str]:
    """Channels are, for every anchor: x, y, width, height, objectness, classes. YOLOX has one anchor without a size."""
    batch, channels, rows, columns = head.shape
    count = max(1, len(head.anchors))
    each = channels // count
    t = n("Reshape", head.name, ints(batch, count, each, rows, columns))
    t = n("Transpose", t, perm=[0, 1, 3, 4, 2])
    xy, wh, objectness, classes = n.several("Split", 4, t, ints(2, 2, 1, each - 5), axis=4)
    cells, stride = _cells(rows, columns), real(head.stride)
    sizes = np.array(head.anchors or [(0, 0)], np.float32).reshape(1, count, 1, 1, 2)
    if options.family == "yolox":
        center = n("Mul", n("Add", xy, cells), stride)
        size = n("Mul", n("Exp", wh), stride)
    elif options.family == "yolov5":
        center = n("Mul", n("Add", n("Sub", n("Mul", n("Sigmoid", xy), real(2)), real(0.5)), cells), stride)
        doubled = n("Mul", n("Sigmoid", wh), real(2))
        size = n("Mul", n("Mul", doubled, doubled), sizes)
    else:
        scale = head.scale_xy
        moved = n("Sub", n("Mul", n("Sigmoid", xy), real(scale)), real((scale - 1) / 2))
        center = n("Mul", n("Add", moved, cells), stride)
        if options.family == "yolov2":
            sizes = (sizes.astype(np.float64) * head.stride).astype(np.float32)
        size = n("Mul", n("Exp", wh), sizes)
    boxes = n("Reshape", corners(n, center, size), ints(batch, -1, 4))
    if not options.activated:
        objectness = n("Sigmoid", objectness)
        classes = n("Softmax", classes, axis=-1) if options.family == "yolov2" else n("Sigmoid", classes)
    scores = n("Reshape", n("Mul", objectness, classes), ints(batch, -1, each - 5))
    return boxes, scores


def with_sides(n: Nodes, head: Head, options: PostprocessOptions) -> tuple[str, str]:
    """Channels are the four sides of `bins` each, then the classes."""
    batch, channels, rows, columns = head.shape
    bins = options.bins
    flat = n("Transpose", n("Reshape", head.name, ints(batch, channels, rows * columns)), perm=[0, 2, 1])
    sides, classes = n.several("Split", 2, flat, ints(4 * bins, channels - 4 * bins), axis=2)
    if bins > 1:
        spread = n("Softmax", n("Reshape", sides, ints(batch, rows * columns, 4, bins)), axis=-1)
        sides = n(
            "Reshape", n("MatMul", spread, np.arange(bins, dtype=np.float32)[:, None]), ints(batch, -1, 4)
        )
    low, high = n.several("Split", 2, sides, ints(2, 2), axis=2)
    center = _cells(rows, columns).reshape(-1, 2) + np.float32(0.5)
    boxes = n("Concat", n("Sub", center, low), n("Add", center, high), axis=2)
    boxes = n("Mul", boxes, real(head.stride))
    return boxes, classes if options.activated else n("Sigmoid", classes)


def with_priors(
    n: Nodes,
    offsets: str,
    scores: str,
    classes: int,
    priors: Array,
    size: tuple[int, int],
    options: PostprocessOptions,
) -> tuple[str, str]:
    """SSD: offsets from prior boxes (N x priors x 4), and scores with a background."""
    if options.order == "yxhw":
        offsets = n("Gather", offsets, ints(1, 0, 3, 2), axis=2)
    xy, wh = n.several("Split", 2, offsets, ints(2, 2), axis=2)
    centers, sides = priors[:, :2], priors[:, 2:]
    first, second = options.variances
    center = n("Add", n("Mul", n("Mul", xy, real(first)), sides), centers)
    extent = n("Mul", n("Exp", n("Mul", wh, real(second))), sides)
    boxes = n("Mul", corners(n, center, extent), np.array([size[1], size[0]] * 2, np.float32))
    if not options.activated:
        scores = n("Sigmoid", scores) if options.order == "yxhw" else n("Softmax", scores, axis=-1)
    if options.background >= 0:
        kept = [index for index in range(classes) if index != options.background]
        scores = n("Gather", scores, ints(*kept), axis=2)
    return boxes, scores


def corners(n: Nodes, center: str, size: str) -> str:
    """Centers and sizes to x1, y1, x2, y2."""
    half = n("Div", size, real(2))
    return n("Concat", n("Sub", center, half), n("Add", center, half), axis=-1)


def _cells(rows: int, columns: int) -> Array:
    y, x = np.meshgrid(np.arange(rows, dtype=np.float32), np.arange(columns, dtype=np.float32), indexing="ij")
    return np.stack([x, y], axis=-1)
