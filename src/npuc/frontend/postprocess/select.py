"""From boxes and scores to detections in ONNX nodes: every box has its best class, those of a class suppress each other.

The number of detections depends on data, and outputs of a compiled model do not: they have `limit` places, the best detection
first; behind the last, scores and boxes are 0 and classes -1, and `count` tells how many there are.
"""

from __future__ import annotations

import numpy as np

from npuc.frontend.postprocess.nodes import Nodes, ints, real
from npuc.frontend.postprocess.options import PostprocessOptions

_NEVER = -1e30
"""A score that no box has."""


def detections(
    n: Nodes, boxes: str, scores: str, batch: int, classes: int, options: PostprocessOptions
) -> list[tuple[str, str]]:
    """The outputs: titles and names of nodes."""
    best = n("ReduceMax", scores, ints(2), keepdims=0)
    chosen = n("ArgMax", scores, axis=2, keepdims=0)
    sure = n("GreaterOrEqual", best, real(options.score))
    own = n("Equal", n("Unsqueeze", chosen, ints(1)), np.arange(classes, dtype=np.int64).reshape(1, -1, 1))
    counts = n("And", own, n("Unsqueeze", sure, ints(1)))
    masked = n("Where", counts, n("Unsqueeze", best, ints(1)), real(_NEVER))
    # A box whose sides are turned around is empty in the library; the operator would turn them back.
    low, high = n.several("Split", 2, boxes, ints(2, 2), axis=2)
    proper = n("Concat", low, n("Max", low, high), axis=2)
    selected = n(
        "NonMaxSuppression",
        proper,
        masked,
        ints(options.limit),
        real(options.iou).reshape(1),
        real(_NEVER / 2).reshape(1),
    )
    images = [
        _of_image(n, selected, boxes, best, chosen, image, batch, options.limit) for image in range(batch)
    ]
    titles = ("boxes", "scores", "classes", "count")
    parts = list(zip(*images, strict=True))
    return [
        (title, n("Concat", *ones, axis=0)) if batch > 1 else (title, ones[0])
        for title, ones in zip(titles, parts, strict=True)
    ]


def _of_image(
    n: Nodes, selected: str, boxes: str, best: str, chosen: str, image: int, batch: int, limit: int
) -> tuple[str, str, str, str]:
    if batch > 1:
        of_it = n("Equal", n("Gather", selected, np.array(0, np.int64), axis=1), np.array(image, np.int64))
        selected = n("Compress", selected, of_it, axis=0)
    own_boxes, own_best, own_classes = (
        n("Gather", node, np.array(image, np.int64), axis=0) for node in (boxes, best, chosen)
    )
    index = n("Gather", selected, np.array(2, np.int64), axis=1)
    # In the order of boxes, so that of equal scores the lower index comes first, as in the library.
    index = n.several("TopK", 2, index, n("Shape", index), axis=0, largest=0, sorted=1)[0]
    score = n("Concat", n("Gather", own_best, index), np.full(limit, _NEVER, np.float32), axis=0)
    index = n("Concat", index, np.zeros(limit, np.int64), axis=0)
    score, place = n.several("TopK", 2, score, ints(limit), axis=0, largest=1, sorted=1)
    # Types: the length is not seen behind one that is open.
    score, place = n("Reshape", score, ints(limit)), n("Reshape", place, ints(limit))
    index = n("Gather", index, place)
    there = n("Greater", score, real(_NEVER / 2))
    box = n("Where", n("Unsqueeze", there, ints(1)), n("Gather", own_boxes, index), real(0))
    kind = n("Where", there, n("Gather", own_classes, index), np.array(-1, np.int64))
    count = n("ReduceSum", n("Cast", there, to=7), ints(0), keepdims=1)
    score = n("Where", there, score, real(0))
    return n("Unsqueeze", box, ints(0)), n("Unsqueeze", score, ints(0)), n("Unsqueeze", kind, ints(0)), count
