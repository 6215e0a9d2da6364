"""`max`: the full range of the observed values. Nothing is clipped, so a single outlier makes the steps coarse for all."""

from __future__ import annotations

from npuc.calib.ranges.base import Range, affine_range, method, symmetric_range
from npuc.calib.statistics import TensorStatistics


@method("max")
def maximum(statistics: TensorStatistics, bits: int, symmetric: bool) -> Range:
    """The smallest and the largest value."""
    if symmetric:
        return symmetric_range(statistics, statistics.magnitude)
    return affine_range(statistics, statistics.min, statistics.max)
