"""`percentile` and `max-percentile`: clip a fixed share of the largest magnitudes.

`percentile` counts all values. `max-percentile` counts only the largest magnitudes of each batch, the share `top` of it, so
that a few unusual images do not determine the range; its ratio is smaller for the same effect. The share is counted while the
data is read (`ObserverOptions.tail_ratio`). Values are assumed to be spread evenly within a bin of the histogram.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.calib.ranges.base import Range, affine_range, method, option_error, symmetric_range
from npuc.calib.statistics import TensorStatistics


def quantile(counts: Array, edges: Array, share: float) -> float:
    """The value below which a share of the counted values lies.

    >>> quantile(np.array([1, 1]), np.array([0.0, 1.0, 2.0]), 0.75)
    1.5
    """
    cumulative = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])
    target = share * cumulative[-1]
    index = int(np.searchsorted(cumulative, target, side="left"))
    if index == 0:
        used = np.flatnonzero(counts)
        return float(edges[used[0]]) if used.size else float(edges[0])
    before, after = cumulative[index - 1], cumulative[index]
    inside = (target - before) / (after - before)
    return float(edges[index - 1] + inside * (edges[index] - edges[index - 1]))


@method("percentile")
def percentile(statistics: TensorStatistics, bits: int, symmetric: bool, *, ratio: float = 0.9999) -> Range:
    """The range that holds a share of all values; an affine one leaves out half of the rest on each side."""
    _check("percentile", ratio)
    edges = statistics.edges()
    if symmetric:
        magnitudes = statistics.magnitudes()
        return symmetric_range(statistics, quantile(magnitudes, edges[magnitudes.size :], ratio))
    if statistics.min >= 0.0:
        return affine_range(statistics, 0.0, quantile(statistics.histogram, edges, ratio))
    if statistics.max <= 0.0:
        return affine_range(statistics, quantile(statistics.histogram, edges, 1 - ratio), 0.0)
    outside = (1 - ratio) / 2
    return affine_range(
        statistics,
        quantile(statistics.histogram, edges, outside),
        quantile(statistics.histogram, edges, 1 - outside),
    )


@method("max-percentile")
def max_percentile(
    statistics: TensorStatistics,
    bits: int,
    symmetric: bool,
    *,
    ratio: float = 0.99,
    top: float | None = None,
) -> Range:
    """A percentile of the largest magnitudes of each batch: of the share `top`, or of that which was recorded."""
    _check("max-percentile", ratio)
    if top is not None and top != statistics.tail_ratio:
        words = f"was not recorded; recorded is {statistics.tail_ratio:g}"
        raise option_error("max-percentile", "top", f"{top:g}", words)
    edges = statistics.edges()[statistics.tail.size :]
    threshold = quantile(statistics.tail, edges, ratio)
    if symmetric:
        return symmetric_range(statistics, threshold)
    return affine_range(statistics, -threshold, threshold)


def _check(name: str, ratio: float) -> None:
    if not 0.0 < ratio <= 1.0:
        raise option_error(name, "ratio", ratio, "is not above 0 and at most 1 (0.9999 is 99.99 %)")
