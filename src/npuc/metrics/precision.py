"""Average precision of one class, for many weightings of the images at once.

The found boxes of all images are put in the order of their scores; precision and recall after each of them make a curve.
With weights, every image counts as often as its weight says: a row of ones is the plain figure, rows of draws with
replacement are a bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.metrics.matching import Matches

RECALLS = np.linspace(0.0, 1.0, 101)
"""Where COCO reads the curve."""
_EPSILON = np.spacing(1)


@dataclass(frozen=True)
class Curve:
    """The found boxes of a class in all images, the best first."""

    images: Array
    """Which image each is of."""
    right: Array
    wrong: Array
    """thresholds x boxes."""
    positives: Array
    """True boxes that count, by image."""

    def counts(self, weights: Array, threshold: int) -> tuple[Array, Array, Array]:
        """Right and wrong ones up to each right one (rows x right boxes), and all that there are to be found (rows).

        Recall grows at right boxes only, and precision falls at the others: they are all that a curve is read at.
        """
        at = np.flatnonzero(self.right[threshold])
        own = weights[:, self.images]
        wrong = np.cumsum(own * self.wrong[threshold], axis=1)[:, at]
        return np.cumsum(own[:, at], axis=1), wrong, weights @ self.positives


def curve_of(parts: Sequence[tuple[int, Matches]], images: int, limit: int | None = None) -> Curve:
    """Join the matches of images; `limit` keeps the best of each image."""
    positives = np.zeros(images)
    for index, matches in parts:
        positives[index] = matches.positives
    steps = len(parts[0][1].right) if parts else 1
    cut = [(index, matches, slice(0, limit)) for index, matches in parts]
    scores = np.concatenate([matches.scores[part] for _, matches, part in cut] or [np.zeros(0)])
    where = np.concatenate(
        [np.full(len(matches.scores[part]), i) for i, matches, part in cut] or [np.zeros(0)]
    )
    right = np.concatenate(
        [matches.right[:, part] for _, matches, part in cut] or [np.zeros((steps, 0))], axis=1
    )
    neutral = np.concatenate(
        [matches.neutral[:, part] for _, matches, part in cut] or [np.zeros((steps, 0))], axis=1
    )
    order = np.argsort(-scores, kind="stable")
    right, neutral = right[:, order].astype(bool), neutral[:, order].astype(bool)
    return Curve(where[order].astype(np.int64), right, ~right & ~neutral, positives)


def coco_precision(curve: Curve, weights: Array, threshold: int) -> Array:
    """The mean precision at 101 recalls, one a row; NaN where there is nothing to be found."""
    right, wrong, total = curve.counts(weights, threshold)
    means = np.full(len(weights), np.nan)
    known = total > 0
    means[known] = 0.0
    if not right.shape[1]:
        return means
    precision = right / (right + wrong + _EPSILON)
    precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    for row in np.flatnonzero(known):
        at = np.searchsorted(right[row] / total[row], RECALLS, side="left")
        inside = at < right.shape[1]
        means[row] = precision[row, at[inside]].sum() / len(RECALLS)
    return means


def final_recall(curve: Curve, weights: Array, threshold: int) -> Array:
    """The share of true boxes that is found at all, one a row; NaN where there is nothing to be found."""
    total = weights @ curve.positives
    hits = weights[:, curve.images] @ curve.right[threshold].astype(np.float64)
    recalls: Array = np.divide(hits, total, out=np.full(len(weights), np.nan), where=total > 0)
    return recalls


def voc_precision(curve: Curve, weights: Array, eleven: bool) -> Array:
    """The area under the curve or, for the challenge of 2007, the mean at eleven recalls; one a row."""
    right, wrong, total = curve.counts(weights, 0)
    areas = np.full(len(weights), np.nan)
    for row in np.flatnonzero(total > 0):
        recall = right[row] / total[row]
        precision = right[row] / np.maximum(right[row] + wrong[row], _EPSILON)
        if eleven:
            best = [precision[recall >= at].max(initial=0.0) for at in np.arange(11) / 10]
            areas[row] = float(np.mean(best))
            continue
        recall = np.concatenate([[0.0], recall, [1.0]])
        precision = np.concatenate([[0.0], precision, [0.0]])
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        step = np.flatnonzero(recall[1:] != recall[:-1])
        areas[row] = float(((recall[step + 1] - recall[step]) * precision[step + 1]).sum())
    return areas
