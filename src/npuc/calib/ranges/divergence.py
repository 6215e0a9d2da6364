"""`kl`: the range whose quantized distribution says most about the original one (Kullback-Leibler divergence).

For each candidate the histogram is cut at the range, what was outside is added to its ends (P); the same bins, averaged
over the bins that fall on one quantized level, are Q. The candidate with the least KL(P || Q) wins. The bin at zero is
flattened first: zeros are exact in every range, and after a relu they would drown all else.

Symmetric ranges, and affine ones of values with one sign, cut the histogram of magnitudes; other affine ranges cut
both ends of the signed one alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.calib.ranges.base import Range, affine_range, method, option_error, symmetric_range
from npuc.calib.statistics import TensorStatistics

Array = np.ndarray[Any, Any]

_SMOOTH = 1e-4
"""What an empty bin of Q gets where P is not empty, so that the divergence stays finite."""


@method("kl")
def divergence_range(
    statistics: TensorStatistics, bits: int, symmetric: bool, *, bins: int = 2048, step: int = 16
) -> Range:
    """The range of least divergence among cuts `step` bins apart."""
    levels = 1 << (bits - 1) if symmetric else 1 << bits
    if not 2 <= bins <= 1 << 16 or step < 1:
        raise option_error(
            "kl", "bins" if step >= 1 else "step", bins if step >= 1 else step, "is out of range"
        )
    magnitude = statistics.magnitude
    if levels >= bins:
        # Fewer bins than levels: every cut loses something and gains nothing.
        return _result(statistics, symmetric, magnitude)
    if symmetric or statistics.min >= 0.0 or statistics.max <= 0.0:
        counts = rebin(statistics.magnitudes(), statistics.edges()[-1], magnitude, bins)
        counts[0] = counts[1]
        cuts = np.unique(np.append(np.arange(levels, bins, step), bins))
        costs = [divergence(counts[:cut], 0.0, float(counts[cut:].sum()), levels) for cut in cuts]
        return _result(statistics, symmetric, cuts[int(np.argmin(costs))] * magnitude / bins)
    half = bins // 2
    right = rebin(
        statistics.histogram[statistics.histogram.size // 2 :], statistics.edges()[-1], magnitude, half
    )
    left = rebin(
        statistics.histogram[: statistics.histogram.size // 2][::-1], statistics.edges()[-1], magnitude, half
    )
    right[0], left[0] = right[1], left[1]
    counts = np.concatenate([left[::-1], right])
    low = half - int(np.ceil(-statistics.min / magnitude * half))
    high = half + int(np.ceil(statistics.max / magnitude * half))
    first = max(1, min(levels // 2, half))
    cuts = np.unique(np.append(np.arange(first, half, max(1, step // 2)), half))
    costs = []
    for cut in cuts:
        start, end = max(low, half - cut), min(high, half + cut)
        costs.append(
            divergence(counts[start:end], float(counts[:start].sum()), float(counts[end:].sum()), levels)
        )
    return _result(statistics, symmetric, cuts[int(np.argmin(costs))] * magnitude / half)


def rebin(counts: Array, top: float, magnitude: float, bins: int) -> Array:
    """The counts of equal bins over [0, top) as counts of `bins` equal bins over [0, magnitude].

    >>> rebin(np.array([4, 4]), 2.0, 2.0, 4).tolist()
    [2.0, 2.0, 2.0, 2.0]
    """
    edges = np.minimum(np.linspace(0.0, top, counts.size + 1), magnitude)
    cumulative = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])
    last = int(np.searchsorted(edges, magnitude, side="left"))
    # A magnitude on a border is counted in the bin above it, of which nothing else is left.
    cumulative[last] = cumulative[-1]
    found: Array = np.diff(
        np.interp(np.linspace(0.0, magnitude, bins + 1), edges[: last + 1], cumulative[: last + 1])
    )
    return found


def divergence(window: Array, below: float, above: float, levels: int) -> float:
    """KL(P || Q) of a window of a histogram, with what lies below and above it, on `levels` levels.

    >>> divergence(np.array([1.0, 1.0, 2.0, 2.0]), 0.0, 0.0, 2)
    0.0
    """
    size = window.size
    total = float(window.sum())
    if size == 0 or total == 0.0:
        return float("inf")
    levels = min(levels, size)
    # The first bin of each level.
    starts = (np.arange(levels) * size + levels - 1) // levels
    lengths = np.diff(np.append(starts, size))
    occupied = window > 0
    sums = np.add.reduceat(window, starts)
    shares = np.maximum(np.add.reduceat(occupied, starts, dtype=np.float64), 1.0)
    q = np.repeat(sums / shares, lengths) * (occupied / total)
    p = window / (total + below + above)
    p[0] += below / (total + below + above)
    p[-1] += above / (total + below + above)
    # An end may be empty itself and hold only what was outside: q is zero there and p is not.
    holes = (p > 0) & ~occupied
    number = int(np.count_nonzero(holes))
    if number:
        q = np.where(holes, _SMOOTH, q * max(0.0, 1 - number * _SMOOTH))
    support = p > 0
    p, q = p[support], q[support]
    return float(np.sum(p * np.log(p / q)))


def _result(statistics: TensorStatistics, symmetric: bool, threshold: float) -> Range:
    if symmetric:
        return symmetric_range(statistics, threshold)
    return affine_range(statistics, -threshold, threshold)
