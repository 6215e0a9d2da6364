"""Averages of the extremes of batches, so that no single sample determines the range.

`moving-average` gives each new batch a small weight, as in training. `mean` has a momentum, or none for the arithmetic mean.
`trimmed-mean` leaves out a share of the batches at both ends of their order before it takes the mean, `median` takes the one in
the middle, and `mode` the value around which most batches lie.

Running averages are computed while the data is read: those of `ObserverOptions.momenta` for any number of batches, others from
the extremes that were kept, as long as all were.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.calib.ranges.base import Range, affine_range, method, option_error, symmetric_range
from npuc.calib.statistics import TensorStatistics
from npuc.errors import UsageError


@method("moving-average")
def moving_average(
    statistics: TensorStatistics, bits: int, symmetric: bool, *, weight: float = 0.01
) -> Range:
    """The running average of the extremes, each new batch with a weight."""
    if not 0 < weight <= 1:
        raise option_error("moving-average", "weight", weight, "is not above 0 and at most 1")
    return _range(statistics, symmetric, _running(statistics, 1 - weight, "moving-average", "weight", weight))


@method("mean")
def mean(statistics: TensorStatistics, bits: int, symmetric: bool, *, momentum: float | None = 0.9) -> Range:
    """The mean of the extremes of batches: running with a momentum, or arithmetic (`momentum=none`)."""
    if momentum is None:
        return _range(statistics, symmetric, (statistics.mean_min, statistics.mean_max))
    if not 0 <= momentum < 1:
        raise option_error("mean", "momentum", momentum, "is not at least 0 and below 1")
    return _range(statistics, symmetric, _running(statistics, momentum, "mean", "momentum", momentum))


@method("trimmed-mean")
def trimmed_mean(statistics: TensorStatistics, bits: int, symmetric: bool, *, limit: float = 0.1) -> Range:
    """The mean of the extremes of batches without the `limit` largest and smallest shares of them."""
    if not 0 <= limit < 0.5:
        raise option_error("trimmed-mean", "limit", limit, "is not at least 0 and below 0.5")
    ordered = np.sort(_kept(statistics, "trimmed-mean"), axis=0)
    left_out = int(limit * len(ordered))
    low, high = ordered[left_out : len(ordered) - left_out].mean(axis=0)
    return _range(statistics, symmetric, (float(low), float(high)))


@method("median")
def median(statistics: TensorStatistics, bits: int, symmetric: bool) -> Range:
    """The median of the extremes of batches."""
    low, high = np.median(_kept(statistics, "median"), axis=0)
    return _range(statistics, symmetric, (float(low), float(high)))


@method("mode")
def mode(statistics: TensorStatistics, bits: int, symmetric: bool, *, bins: int = 32) -> Range:
    """The extremes that most batches have: the mean of those in the fullest of equal intervals, the widest of several."""
    if not 1 <= bins <= 1 << 16:
        raise option_error("mode", "bins", bins, f"is not from 1 to {1 << 16}")
    extremes = _kept(statistics, "mode")
    return _range(statistics, symmetric, (-_modal(-extremes[:, 0], bins), _modal(extremes[:, 1], bins)))


def _modal(values: Array, bins: int) -> float:
    """The mean of the values in the fullest interval; of equally full ones the uppermost.

    >>> _modal(np.array([1.0, 1.25, 1.5, 5.0]), 4)
    1.25
    """
    low, high = float(values.min()), float(values.max())
    if low == high:
        return high
    index = np.minimum(((values - low) / (high - low) * bins).astype(np.int64), bins - 1)
    counts = np.bincount(index, minlength=bins)
    fullest = bins - 1 - int(np.argmax(counts[::-1]))
    return float(values[index == fullest].mean())


def _kept(statistics: TensorStatistics, name: str) -> Array:
    if not len(statistics.extremes):
        raise UsageError(
            f"range method '{name}' needs the extremes of batches, which these statistics do not have",
            fix="Collect them again with this npuc",
        )
    return statistics.extremes


def _range(statistics: TensorStatistics, symmetric: bool, ends: tuple[float, float]) -> Range:
    low, high = ends
    if symmetric:
        return symmetric_range(statistics, max(abs(low), abs(high)))
    return affine_range(statistics, low, high)


def _running(
    statistics: TensorStatistics, momentum: float, name: str, option: str, value: float
) -> tuple[float, float]:
    for known, ends in statistics.running.items():
        if abs(known - momentum) < 1e-9:
            return ends
    if 0 < len(statistics.extremes) == statistics.batches:
        average = statistics.extremes[0]
        for batch in statistics.extremes[1:]:
            average = momentum * average + (1 - momentum) * batch
        return float(average[0]), float(average[1])
    recorded = [known if option == "momentum" else round(1 - known, 9) for known in statistics.running]
    words = f"was not recorded; recorded are {', '.join(f'{number:g}' for number in recorded) or 'none'}"
    raise option_error(name, option, value, words)
