"""`std`: the mean plus and minus N standard deviations, within the extremes."""

from __future__ import annotations

from npuc.calib.ranges.base import Range, affine_range, method, option_error, symmetric_range
from npuc.calib.statistics import TensorStatistics


@method("std")
def deviations(statistics: TensorStatistics, bits: int, symmetric: bool, *, n: float = 4.0) -> Range:
    """N standard deviations on both sides of the mean."""
    if not n > 0:
        raise option_error("std", "n", n, "is not above 0")
    low = statistics.mean - n * statistics.deviation
    high = statistics.mean + n * statistics.deviation
    if symmetric:
        return symmetric_range(statistics, max(abs(low), abs(high)))
    return affine_range(statistics, low, high)
