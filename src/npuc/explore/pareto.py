"""Fronts of points of which every coordinate is to be small: a point is dominated if another is nowhere larger and once smaller.

Example: of (1, 4), (2, 2), (3, 3) the third is dominated by the second; the first two are the front.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array


def dominated(points: Array, by: Array) -> Array:
    """Which of the points are dominated by some other points.

    >>> dominated(np.array([[3.0, 3.0], [2.0, 2.0]]), np.array([[2.0, 2.0]])).tolist()
    [True, False]
    """
    mask = np.zeros(len(points), bool)
    for other in by:
        mask |= np.all(other <= points, axis=1) & np.any(other < points, axis=1)
    return mask


def front(points: Array) -> Array:
    """Which points no other dominates; equal points are on it together.

    >>> front(np.array([[1.0, 4.0], [2.0, 2.0], [3.0, 3.0], [2.0, 2.0]])).tolist()
    [True, True, False, True]
    """
    mask = np.zeros(len(points), bool)
    if not len(points):
        return mask
    # In this order nothing is dominated by what comes later, so what is not dominated so far is on the front.
    kept = np.empty_like(points)
    count = 0
    for index in np.lexsort(points.T[::-1]):
        point = points[index]
        known = kept[:count]
        no_larger = np.all(known <= point, axis=1)
        if not np.any(no_larger & np.any(known < point, axis=1)):
            kept[count] = point
            count += 1
            mask[index] = True
    return mask


def pick(points: Array, candidates: Array, known: Array, count: int) -> list[int]:
    """So many of the candidates (indices of points), the front of what is left first, and far from each other and from `known`.

    Distances are between logarithms, so that a factor of two counts the same everywhere. Ties go to the smaller index.
    """
    chosen: list[int] = []
    left = np.array(sorted(candidates), np.int64)
    scaled = _scaled(points)
    others = [scaled[index] for index in known]
    while left.size and len(chosen) < count:
        # What is dominated by known points is later in line than the front of the rest.
        pool = np.concatenate([left, np.asarray(known, np.int64)]) if not chosen else left
        on_front = front(points[pool])[: left.size]
        rank = left[on_front] if on_front.any() else left[front(points[left])]
        for index in _spread(scaled, rank, others, count - len(chosen)):
            chosen.append(index)
            others.append(scaled[index])
        left = left[~np.isin(left, chosen)]
    return chosen


def _scaled(points: Array) -> Array:
    logs = np.log2(np.maximum(points, 1e-300))
    low, high = logs.min(axis=0), logs.max(axis=0)
    scaled: Array = (logs - low) / np.where(high > low, high - low, 1.0)
    return scaled


def _spread(scaled: Array, candidates: Array, others: list[Array], count: int) -> list[int]:
    """The best in each coordinate, then always the one that is farthest from all there are."""
    places = scaled[candidates]
    chosen = list(dict.fromkeys(int(at) for at in places.argmin(axis=0)))[:count]
    distance = np.full(len(candidates), np.inf)
    for other in [*others, *places[chosen]]:
        distance = np.minimum(distance, np.linalg.norm(places - other, axis=1))
    distance[chosen] = -1.0
    while len(chosen) < min(count, len(candidates)):
        at = int(distance.argmax())
        chosen.append(at)
        distance = np.minimum(distance, np.linalg.norm(places - places[at], axis=1))
        distance[chosen] = -1.0
    return [int(candidates[at]) for at in chosen]
