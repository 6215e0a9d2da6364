"""How sure a figure is: intervals for one model, and for the difference of two on the same samples.

Shares of samples (accuracy) have the Wilson interval, Newcombe's interval for the difference of two paired shares, and
McNemar's exact test. Everything else is resampled: `resamples` gives, for each draw with replacement, how often every sample
was drawn; the figures of these draws have percentiles. All models see the same draws, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, sqrt
from statistics import NormalDist

import numpy as np

from npuc.arrays import Array

Interval = tuple[float, float]

_AT_ONCE = 1 << 21
"""Counts that are held at a time."""


def wilson(hits: float, count: int, confidence: float = 0.95) -> Interval:
    """The Wilson score interval of a share.

    >>> [round(end, 4) for end in wilson(9, 10)]
    [0.5958, 0.9821]
    """
    if count == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = hits / count
    middle = share + z * z / (2 * count)
    spread = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    # At the ends the formula gives exactly 0 and 1, and rounding should not.
    low = 0.0 if hits == 0 else max(0.0, (middle - spread) / scale)
    high = 1.0 if hits == count else min(1.0, (middle + spread) / scale)
    return low, high


def paired_difference(a: Array, b: Array, confidence: float = 0.95) -> Interval:
    """Newcombe's interval (method 10) for share(a) - share(b), where `a` and `b` say which samples are right."""
    count = len(a)
    if count == 0:
        return -1.0, 1.0
    both, first = float((a * b).sum()), float((a * (1 - b)).sum())
    second = float(((1 - a) * b).sum())
    neither = count - both - first - second
    p, q = (both + first) / count, (both + second) / count
    (low_p, high_p), (low_q, high_q) = (wilson(x * count, count, confidence) for x in (p, q))
    product = (both + first) * (second + neither) * (both + second) * (first + neither)
    phi = 0.0
    if product > 0:
        cross = both * neither - first * second
        # The correction keeps the interval honest where few samples differ.
        cross = max(cross - count / 2, 0.0) if cross > 0 else cross
        phi = cross / sqrt(product)
    down, up = p - low_p, high_q - q
    below = sqrt(max(0.0, down * down - 2 * phi * down * up + up * up))
    down, up = high_p - p, q - low_q
    above = sqrt(max(0.0, down * down - 2 * phi * down * up + up * up))
    return max(-1.0, p - q - below), min(1.0, p - q + above)


def mcnemar(a: Array, b: Array) -> float:
    """The two-sided exact p-value that two models are equally often right, from the samples where they differ.

    >>> mcnemar(np.array([1, 1, 1, 1, 1, 0]), np.array([0, 0, 0, 0, 0, 0]))
    0.0625
    """
    first, second = int((a * (1 - b)).sum()), int(((1 - a) * b).sum())
    count, less = first + second, min(first, second)
    if count == 0:
        return 1.0
    return min(1.0, 2 * sum(comb(count, k) for k in range(less + 1)) / (1 << count))


def resamples(count: int, draws: int, seed: int) -> Iterator[Array]:
    """How often each of `count` samples is drawn, in blocks of rows, one row a draw."""
    generator = np.random.default_rng(seed)
    block = max(1, _AT_ONCE // max(1, count))
    while draws > 0:
        rows = min(block, draws)
        picked = generator.integers(0, count, (rows, count))
        counts = np.zeros((rows, count), np.float64)
        for row in range(rows):
            counts[row] = np.bincount(picked[row], minlength=count)
        yield counts
        draws -= rows


def percentiles(values: Array, confidence: float = 0.95) -> Interval:
    """The middle part of what draws gave; draws without a figure (NaN) do not count.

    >>> percentiles(np.arange(101.0), 0.9)
    (5.0, 95.0)
    """
    known = values[~np.isnan(values)]
    if not known.size:
        return float("nan"), float("nan")
    ends = (50 - 50 * confidence, 50 + 50 * confidence)
    if np.isinf(known).any():
        low, high = np.percentile(known, ends, method="nearest")
    else:
        low, high = np.percentile(known, ends)
    return float(low), float(high)
