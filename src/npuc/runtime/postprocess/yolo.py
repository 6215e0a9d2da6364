"""The YOLO family: heads to boxes and scores.

Every function takes what the convolutions of a network's heads give, N x channels x rows x columns as float32, and gives for
every image the boxes (n x 4: x1, y1, x2, y2 in pixels of the input) and the scores (n x classes). Rows are ordered by
head, anchor, row and column. `detect` makes detections of them.

    YOLO v2                 `decode_v2`: cells with anchors, softmax over the classes
    YOLO v3, v4             `decode_v3`: anchors in pixels; v4 with `scale_xy`
    YOLO v5, v7             `decode_v5`
    YOLOX                   `decode_x`: no anchors
    YOLO v6, v8 to v11      `decode_v8`: no anchors, distances to the sides, as such or as distributions
    exports with boxes      `decode_rows`: the rows that v5, v7 to v9, v11 give when the arithmetic is part of the network
    exports without NMS     `decode_final`: the rows of v10, and of exports with the suppression inside
    any of them by name     `decode_yolo`: with the anchors that the published network has
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

import numpy as np

from npuc.arrays import Array
from npuc.detectors import DETECTORS
from npuc.errors import InputDataError
from npuc.runtime.postprocess.boxes import Detections, corners
from npuc.runtime.postprocess.scores import sigmoid, softmax
from npuc.words import counted

Decoded = list[tuple[Array, Array]]
"""For every image boxes and scores."""
Anchors = Sequence[Sequence[float]]
"""Width and height of each."""


def decode_v2(head: Array, anchors: Anchors, stride: float = 32) -> Decoded:
    """YOLO v2: one head, anchors in cells; the score of a class is objectness times its probability."""
    scaled = [(w * stride, h * stride) for w, h in anchors]
    return _with_anchors([head], [scaled], [stride], [_exp_box(1.0)], softmax)


def decode_v3(
    heads: Sequence[Array],
    anchors: Sequence[Anchors],
    strides: Sequence[float],
    scale_xy: float | Sequence[float] = 1.0,
) -> Decoded:
    """YOLO v3, and v4 with its `scale_xy` (1.05 to 1.2, of all heads or of each); anchors of each head in pixels."""
    scales = [scale_xy] * len(heads) if isinstance(scale_xy, int | float) else scale_xy
    return _with_anchors(heads, anchors, strides, [_exp_box(scale) for scale in scales], sigmoid)


def decode_yolo(name: str, heads: Sequence[Array], *, activated: bool = False) -> Decoded:
    """The heads of a published network by its name, such as `yolov3_tiny`, with its anchors and strides.

    Heads may be in any order: the finest has the smallest stride. `activated` is for families that may have the sigmoid of
    scores inside (`yolox`, `yolov8` and its like).
    """
    if name not in DETECTORS:
        near = get_close_matches(name, DETECTORS, n=1)
        raise InputDataError(
            f"no published network is called '{name}'",
            fix=f"Did you mean '{near[0]}'?" if near else f"There are {', '.join(DETECTORS)}",
        )
    detector = DETECTORS[name]
    if len(heads) != len(detector.strides):
        raise InputDataError(f"{name} has {counted(len(detector.strides), 'head')}, not {len(heads)}")
    ordered = sorted(heads, key=lambda head: -head.shape[-1] * head.shape[-2])
    if activated and detector.anchors:
        raise InputDataError(f"the heads of {name} have no scores with their sigmoid inside")
    match detector.family:
        case "yolov2":
            return decode_v2(ordered[0], detector.anchors[0], detector.strides[0])
        case "yolov3":
            return decode_v3(ordered, detector.anchors, detector.strides, detector.scale_xy or 1.0)
        case "yolov5":
            return decode_v5(ordered, detector.anchors, detector.strides)
        case "yolox":
            return decode_x(ordered, detector.strides, activated)
        case _:
            return decode_v8(ordered, detector.strides, bins=detector.bins, activated=activated)


def decode_final(output: Array, *, score_threshold: float = 0.25) -> list[Detections]:
    """Rows of x1, y1, x2, y2, score and class that need no suppression, N x rows x 6, as detections, the best first."""
    if output.ndim != 3 or output.shape[2] != 6:
        raise InputDataError(f"final rows are N x rows x 6, not {list(output.shape)}")
    images = []
    for rows in output:
        order = np.argsort(-rows[:, 4], kind="stable")
        rows = rows[order[rows[order, 4] >= score_threshold]]
        images.append(Detections(rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int64)))
    return images


def decode_v5(heads: Sequence[Array], anchors: Sequence[Anchors], strides: Sequence[float]) -> Decoded:
    """YOLO v5 and v7; anchors of each head in pixels."""

    def box(t: Array, cell: Array, anchor: Array, stride: float) -> Array:
        center = (sigmoid(t[..., :2]) * 2 - 0.5 + cell) * stride
        return np.concatenate([center, (sigmoid(t[..., 2:]) * 2) ** 2 * anchor], axis=-1)

    return _with_anchors(heads, anchors, strides, [box] * len(heads), sigmoid)


def decode_x(heads: Sequence[Array], strides: Sequence[float], activated: bool = False) -> Decoded:
    """YOLOX; `activated` if the network has applied the sigmoid to objectness and classes already."""

    def box(t: Array, cell: Array, anchor: Array, stride: float) -> Array:
        return np.concatenate([(t[..., :2] + cell) * stride, np.exp(t[..., 2:]) * stride], axis=-1)

    def scores(x: Array) -> Array:
        return x if activated else sigmoid(x)

    none = [[(0.0, 0.0)]] * len(heads)
    return _with_anchors(heads, none, strides, [box] * len(heads), scores, scores)


def decode_v8(
    heads: Sequence[Array], strides: Sequence[float], *, bins: int = 16, activated: bool = False
) -> Decoded:
    """YOLO v8 to v11, and v6: channels are the four sides (left, top, right, bottom) of `bins` each, then the classes.

    A side is the mean of a distribution over its bins in strides; with one bin (v6 small) the distance itself.
    """
    parts: list[tuple[Array, Array]] = []
    for head, stride in zip(heads, strides, strict=True):
        _check(head, 4 * bins + 1, None)
        n, _, rows, columns = head.shape
        flat = head.reshape(n, -1, rows * columns).transpose(0, 2, 1)
        sides = flat[..., : 4 * bins].reshape(n, -1, 4, bins)
        distance = softmax(sides) @ np.arange(bins, dtype=head.dtype) if bins > 1 else sides[..., 0]
        center = _cells(rows, columns).reshape(-1, 2) + 0.5
        boxes = np.concatenate([center - distance[..., :2], center + distance[..., 2:]], axis=-1) * stride
        classes = flat[..., 4 * bins :]
        parts.append((boxes.astype(np.float32), classes if activated else sigmoid(classes)))
    return _joined(parts)


def decode_rows(output: Array, *, objectness: bool) -> Decoded:
    """Rows of center x, center y, width, height (in pixels), objectness if there is one, and scores of the classes.

    v5 and v7 give N x rows x (5 + classes) with objectness; v8 gives N x (4 + classes) x rows without, transposed here.
    """
    if output.ndim != 3:
        raise InputDataError(f"rows of boxes have rank 3, not {output.ndim}")
    if not objectness:
        output = output.transpose(0, 2, 1)
    boxes, rest = corners(output[..., :4]), output[..., 4:]
    scores = rest[..., :1] * rest[..., 1:] if objectness else rest
    return [(boxes[n], scores[n]) for n in range(len(output))]


Box = Callable[[Array, Array, Array, float], Array]


def _exp_box(scale_xy: float) -> Box:
    def box(t: Array, cell: Array, anchor: Array, stride: float) -> Array:
        center = (sigmoid(t[..., :2]) * scale_xy - (scale_xy - 1) / 2 + cell) * stride
        return np.concatenate([center, np.exp(t[..., 2:]) * anchor], axis=-1)

    return box


def _with_anchors(
    heads: Sequence[Array],
    anchors: Sequence[Anchors],
    strides: Sequence[float],
    box_of: Sequence[Box],
    classes: Callable[[Array], Array],
    objectness: Callable[[Array], Array] = sigmoid,
) -> Decoded:
    """Heads whose channels are, for every anchor: x, y, width, height, objectness, classes."""
    parts: list[tuple[Array, Array]] = []
    for head, own, stride, box in zip(heads, anchors, strides, box_of, strict=True):
        _check(head, 6, len(own))
        n, channels, rows, columns = head.shape
        t = head.reshape(n, len(own), channels // len(own), rows, columns).transpose(0, 1, 3, 4, 2)
        sizes = np.asarray(own, np.float32).reshape(1, -1, 1, 1, 2)
        boxes = corners(box(t[..., :4], _cells(rows, columns), sizes, stride))
        scores = objectness(t[..., 4:5]) * classes(t[..., 5:])
        parts.append((boxes.reshape(n, -1, 4).astype(np.float32), scores.reshape(n, -1, scores.shape[-1])))
    return _joined(parts)


def _cells(rows: int, columns: int) -> Array:
    """Column and row of every cell: rows x columns x 2."""
    y, x = np.meshgrid(np.arange(rows, dtype=np.float32), np.arange(columns, dtype=np.float32), indexing="ij")
    return np.stack([x, y], axis=-1)


def _check(head: Array, least: int, anchors: int | None) -> None:
    if head.ndim != 4:
        raise InputDataError(f"a head has rank 4 (N x channels x rows x columns), not {head.ndim}")
    channels = head.shape[1]
    per_anchor = channels // (anchors or 1)
    if (anchors and channels % anchors) or per_anchor < least:
        what = f"{anchors} anchors" if anchors else "the sides of a box"
        raise InputDataError(f"a head of {channels} channels does not fit {what} and at least one class")


def _joined(parts: Sequence[tuple[Array, Array]]) -> Decoded:
    if not parts:
        raise InputDataError("there is no head")
    boxes = np.concatenate([boxes for boxes, _ in parts], axis=1)
    scores = np.concatenate([scores for _, scores in parts], axis=1)
    return list(zip(boxes, scores, strict=True))
