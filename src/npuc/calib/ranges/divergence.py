"""`kl`: the range whose quantized distribution is closest to the original one (Kullback-Leibler divergence).

P is the histogram cut at a candidate range, with the counts outside added to the bins at its ends. Q is the same histogram
averaged over the bins of each quantized level. The candidate with the least KL(P || Q) is chosen. The bin at zero is
flattened first: zeros are exact in every range, and after a relu they would dominate the sum.

Symmetric ranges, and affine ranges of values of one sign, cut the histogram of magnitudes; other affine ranges cut both
ends of the signed histogram at the same distance from zero.
"""

from __future__ import annotations

import math

import numpy as np

from npuc.arrays import Array
from npuc.calib.ranges.base import Range, affine_range, method, option_error, symmetric_range
from npuc.calib.statistics import TensorStatistics

DEFAULT_SMOOTH = 1e-4
"""The mass of an empty bin of Q where P is not empty, which keeps the divergence finite."""


@method("kl")
def divergence_range(
    statistics: TensorStatistics,
    bits: int,
    symmetric: bool,
    *,
    bins: int = 2048,
    step: int = 16,
    smooth: float = DEFAULT_SMOOTH,
    window: int = 1,
    sigma: float = 0.0,
) -> Range:
    """The range of least divergence among cuts `step` bins apart, of a histogram averaged over `window` neighbouring bins.

    `smooth` is the mass of a bin that is empty after quantization and was not before. `sigma` is the standard deviation, in
    bins, of a Gaussian that the histogram is smoothed with.
    """
    levels = 1 << (bits - 1) if symmetric else 1 << bits
    if not 2 <= bins <= 1 << 16 or step < 1:
        raise option_error(
            "kl", "bins" if step >= 1 else "step", bins if step >= 1 else step, "is out of range"
        )
    if not 0.0 < smooth < 0.5:
        raise option_error("kl", "smooth", smooth, "is not above 0 and below 0.5")
    if window < 1 or window % 2 == 0:
        raise option_error("kl", "window", window, "is not an odd number of bins")
    if not 0.0 <= sigma <= bins / 16:
        raise option_error("kl", "sigma", sigma, f"is not from 0 to {bins // 16}, a sixteenth of the bins")
    magnitude = statistics.magnitude
    if levels >= bins:
        # Fewer bins than levels: every cut loses something and gains nothing.
        return _result(statistics, symmetric, magnitude)
    if symmetric or statistics.min >= 0.0 or statistics.max <= 0.0:
        counts = rebin(statistics.magnitudes(), statistics.edges()[-1], magnitude, bins)
        counts[0] = counts[1]
        counts = blurred(averaged(counts, window), sigma)
        cuts = np.unique(np.append(np.arange(levels, bins, step), bins))
        costs = divergences(counts, np.zeros_like(cuts), cuts, levels, smooth)
        return _result(statistics, symmetric, cuts[int(np.argmin(costs))] * magnitude / bins)
    half, middle, top = bins // 2, statistics.histogram.size // 2, statistics.edges()[-1]
    right = rebin(statistics.histogram[middle:], top, magnitude, half)
    left = rebin(statistics.histogram[:middle][::-1], top, magnitude, half)
    right[0], left[0] = right[1], left[1]
    counts = blurred(averaged(np.concatenate([left[::-1], right]), window), sigma)
    low = half - math.ceil(-statistics.min / magnitude * half)
    high = half + math.ceil(statistics.max / magnitude * half)
    first = max(1, min(levels // 2, half))
    cuts = np.unique(np.append(np.arange(first, half, max(1, step // 2)), half))
    costs = divergences(counts, np.maximum(low, half - cuts), np.minimum(high, half + cuts), levels, smooth)
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
    rebinned: Array = np.diff(
        np.interp(np.linspace(0.0, magnitude, bins + 1), edges[: last + 1], cumulative[: last + 1])
    )
    return rebinned


def divergence(window: Array, below: float, above: float, levels: int) -> float:
    """KL(P || Q) of a window of a histogram, with what lies below and above it, on `levels` levels.

    >>> divergence(np.array([1.0, 1.0, 2.0, 2.0]), 0.0, 0.0, 2)
    0.0
    """
    counts = np.concatenate([[below], window, [above]])
    return float(divergences(counts, np.array([1]), np.array([1 + window.size]), levels)[0])


def averaged(counts: Array, window: int) -> Array:
    """A histogram whose every bin is the mean of the `window` bins around it; at the ends, of those that there are.

    >>> averaged(np.array([0.0, 3.0, 0.0, 0.0]), 3).tolist()
    [1.5, 1.0, 1.0, 0.0]
    """
    if window == 1:
        return counts
    sums = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])
    first = np.maximum(np.arange(counts.size) - window // 2, 0)
    last = np.minimum(np.arange(counts.size) + window // 2 + 1, counts.size)
    means: Array = (sums[last] - sums[first]) / (last - first)
    return means


def blurred(counts: Array, sigma: float) -> Array:
    """A histogram smoothed by a Gaussian of a standard deviation in bins, cut off at four; no count is lost at the ends.

    >>> blurred(np.array([0.0, 0.0, 4.0, 0.0, 0.0]), 0.5).round(2).tolist()
    [0.0, 0.43, 3.15, 0.43, 0.0]
    """
    if sigma == 0.0:
        return counts
    reach = min(max(1, math.ceil(4 * sigma)), counts.size - 1)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    padded = np.pad(counts.astype(np.float64), reach, mode="symmetric")
    smoothed: Array = np.convolve(padded, weights / weights.sum(), mode="valid")
    return smoothed


def divergences(
    counts: Array, starts: Array, ends: Array, levels: int, smooth: float = DEFAULT_SMOOTH
) -> Array:
    """KL(P || Q) of many windows [start, end) of one histogram.

    Q is constant on the occupied bins of a level, so that sums over bins are differences of prefix sums, and only one
    logarithm a level is left: sum p log p - sum over levels of p(level) log q(level).
    """
    occupied = counts > 0
    mass, number, entropy = (
        np.concatenate([[0.0], np.cumsum(values)]) for values in (counts, occupied, _times_log(counts))
    )
    total, inside = mass[-1], mass[ends] - mass[starts]
    below, above = mass[starts], total - mass[ends]
    # The first bin of each level, and the end of the last: [windows, levels + 1].
    sizes = (ends - starts)[:, None]
    borders = starts[:, None] + (np.arange(levels + 1) * sizes + levels - 1) // levels
    sums = np.diff(mass[borders], axis=1)
    shares = np.diff(number[borders], axis=1)

    # The mass outside is added to the bins at the ends, which changes their p log p and the mass of their levels.
    first, last = counts[starts], counts[ends - 1]
    plain = entropy[ends] - entropy[starts]
    together = ends - starts == 1
    plain += np.where(together, 0.0, _times_log(first + below) - _times_log(first))
    edge = last + above + np.where(together, below, 0.0)
    plain += _times_log(edge) - _times_log(last)
    # An end bin that was empty holds only the mass from outside: q is zero there and p is not, so it needs smoothing.
    low_hole = np.where((first <= 0) & ~together, below, 0.0)
    high_hole = np.where(last <= 0, above + np.where(together, below, 0.0), 0.0)
    holes = (low_hole > 0).astype(np.float64) + (high_hole > 0)

    masses = sums.copy()
    rows = np.arange(len(starts))
    filled = sums > 0
    # The first bin is in level 0, the last bin in the last level that has bins.
    top = ((ends - starts - 1) * levels) // np.maximum(ends - starts, 1)
    masses[:, 0] += np.where(together, 0.0, below - low_hole)
    masses[rows, top] += above + np.where(together, below, 0.0) - high_hole
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithms = np.where(filled, np.log(sums / np.maximum(shares, 1) / inside[:, None]), 0.0)
        logarithms = np.where(filled, logarithms + np.log1p(-np.minimum(holes * smooth, 0.5))[:, None], 0.0)
        crossed = np.sum(masses * logarithms, axis=1) + (low_hole + high_hole) * np.log(smooth)
        divergence: Array = np.where(inside > 0, (plain - crossed) / total - np.log(total), np.inf)
    # Rounding may leave a divergence of zero a little below it.
    return np.maximum(divergence, 0.0)


def _times_log(values: Array) -> Array:
    """x log x, which is 0 at 0."""
    product: Array = values * np.log(np.where(values > 0, values, 1.0))
    return product


def _result(statistics: TensorStatistics, symmetric: bool, threshold: float) -> Range:
    if symmetric:
        return symmetric_range(statistics, threshold)
    return affine_range(statistics, -threshold, threshold)
