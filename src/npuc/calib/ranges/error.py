"""The squared error of quantizing with a range, from a histogram: rounding inside the range, clipping outside.

Rounding a value to a grid of step d costs d²/12 on average; exact zeros cost nothing, because zero is on every grid.
A value outside costs the square of its distance to the range. Sums over bins are differences of prefix sums, so that
thousands of candidate ranges are evaluated at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.ranges.base import levels
from npuc.calib.statistics import TensorStatistics


class RangeError:
    """The squared error of any range for one tensor.

    The bin that holds zero is not counted: zeros are rounded and clipped without error.
    """

    def __init__(self, statistics: TensorStatistics) -> None:
        counts = statistics.histogram.astype(np.float64)
        half = counts.size // 2
        counts[half] = 0.0
        if not counts.any():
            # All values are in the first bin above zero: count them.
            counts[half] = statistics.histogram[half]
        self._centers = statistics.centers()
        self._edges = statistics.edges()
        self._sums = [
            np.concatenate([[0.0], np.cumsum(counts * self._centers**power)]) for power in (0, 1, 2)
        ]
        self.total = float(self._sums[0][-1])

    def above(self, limit: Any) -> tuple[Array, Array, Array]:
        """Number, sum and sum of squares of the values above a limit."""
        index = np.searchsorted(self._centers, limit, side="right")
        count, first, second = (sums[-1] - sums[index] for sums in self._sums)
        return count, first, second

    def below(self, limit: Any) -> tuple[Array, Array, Array]:
        """Number, sum and sum of squares of the values below a limit."""
        index = np.searchsorted(self._centers, limit, side="left")
        count, first, second = (sums[index] for sums in self._sums)
        return count, first, second

    def error(self, low: Any, high: Any, step: Any) -> Array:
        """The summed squared error of ranges (low, high) with a grid of `step`; arrays broadcast."""
        low, high, step = (np.asarray(value, np.float64) for value in (low, high, step))
        over, over_sum, over_square = self.above(high)
        under, under_sum, under_square = self.below(low)
        clipped = over_square - 2 * high * over_sum + high**2 * over
        clipped = clipped + under_square - 2 * low * under_sum + low**2 * under
        inside = self.total - over - under
        cost: Array = np.maximum(clipped, 0.0) + inside * step**2 / 12
        return cost

    def symmetric(self, threshold: Any, bits: int) -> Array:
        """The error of (-t, t)."""
        threshold = np.asarray(threshold, np.float64)
        return self.error(-threshold, threshold, threshold / levels(bits, True))

    def affine(self, low: Any, high: Any, bits: int) -> Array:
        """The error of (low, high)."""
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        return self.error(low, high, (high - low) / levels(bits, False))


def mean_square_error(
    statistics: TensorStatistics, low: float, high: float, bits: int, symmetric: bool
) -> float:
    """The mean squared error of quantizing a tensor with a range."""
    range_error = RangeError(statistics)
    cost = (
        range_error.symmetric(max(abs(low), abs(high)), bits)
        if symmetric
        else range_error.affine(low, high, bits)
    )
    return float(cost) / max(1, statistics.count)
