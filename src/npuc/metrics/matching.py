"""Which found boxes match which true ones, by the rules of COCO and of VOC.

Both go through the found boxes of one class from the best score down. COCO gives each the free true box with the largest
overlap of at least the threshold, and prefers true boxes that count to those that do not; VOC takes the true box with the
largest overlap, free or not, and a second hit is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array


@dataclass(frozen=True)
class Matches:
    """The found boxes of one class in one image, the best first."""

    scores: Array
    right: Array
    """thresholds x boxes: it matches a true box that counts."""
    neutral: Array
    """thresholds x boxes: it is neither right nor wrong."""
    positives: int
    """True boxes that count."""


def overlaps(detected: Array, true: Array, crowd: Array) -> Array:
    """Intersection over union (found x true); over the found box alone where the true one is a crowd."""
    low = np.maximum(detected[:, None, :2], true[None, :, :2])
    high = np.minimum(detected[:, None, 2:4], true[None, :, 2:4])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    own = np.prod(detected[:, 2:4] - detected[:, :2], axis=-1)
    theirs = np.prod(true[:, 2:4] - true[:, :2], axis=-1)
    area = np.where(crowd[None, :], own[:, None], own[:, None] + theirs[None, :] - shared)
    result: Array = np.divide(shared, area, out=np.zeros_like(shared), where=area > 0)
    return result


def match_coco(
    scores: Array,
    found_areas: Array,
    shares: Array,
    ignored: Array,
    crowd: Array,
    thresholds: Array,
    area: tuple[float, float],
) -> Matches:
    """One class of one image; `scores` in descending order, `shares` are the overlaps (found x true).

    `ignored` true boxes do not count; a found box outside of the `area` that matches nothing is neutral.
    """
    order = np.argsort(ignored, kind="stable")
    shares, ignored, crowd = shares[:, order], ignored[order], crowd[order]
    steps, boxes, true = len(thresholds), len(scores), len(ignored)
    right = np.zeros((steps, boxes), bool)
    neutral = np.zeros((steps, boxes), bool)
    matched = np.zeros((steps, boxes), bool)
    taken = np.zeros((steps, true), bool)
    least = np.minimum(thresholds, 1 - 1e-10)
    counting = int((~ignored).sum())
    for box in range(boxes if true else 0):
        usable = (shares[box] >= least[:, None]) & (~taken | crowd)
        for part, kind in ((slice(0, counting), right), (slice(counting, true), neutral)):
            open_ = usable[:, part] & ~matched[:, box, None]
            if not open_.any():
                continue
            value = np.where(open_, shares[box, part], -1.0)
            # Of equal overlaps the last one wins, as in the reference implementation.
            best = value.shape[1] - 1 - value[:, ::-1].argmax(axis=1)
            hit = open_.any(axis=1)
            kind[hit, box] = True
            matched[hit, box] = True
            taken[np.flatnonzero(hit), best[hit] + part.start] = True
    outside = (found_areas < area[0]) | (found_areas > area[1])
    neutral |= ~matched & outside
    return Matches(scores, right, neutral, counting)


def match_voc(scores: Array, shares: Array, difficult: Array, threshold: float) -> Matches:
    """One class of one image; `scores` in descending order."""
    boxes = len(scores)
    right, neutral = np.zeros((1, boxes), bool), np.zeros((1, boxes), bool)
    taken = np.zeros(len(difficult), bool)
    for box in range(boxes if len(difficult) else 0):
        best = int(shares[box].argmax())
        if shares[box, best] < threshold:
            continue
        if difficult[best]:
            neutral[0, box] = True
        elif not taken[best]:
            taken[best] = right[0, box] = True
    return Matches(scores, right, neutral, int((~difficult).sum()))
