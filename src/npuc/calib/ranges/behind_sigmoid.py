"""`sigmoid`: the range of least squared error behind a sigmoid, for raw scores that a sigmoid follows outside of the network.

A score of 8 and one of 12 are the same to three digits behind a sigmoid, and a step near 0 is worth far more than one at the end.
Inside the range, rounding x to a grid of step d costs (s'(x) d)² / 12, where s' is the slope of the sigmoid; outside, x costs
(s(x) - s(end))². Sums over bins are differences of prefix sums, as in `error`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.ranges.base import Range, affine_range, method, symmetric_range
from npuc.calib.ranges.error import RangeError
from npuc.calib.ranges.square_error import affine_search
from npuc.calib.statistics import TensorStatistics

_THRESHOLDS = 1024
"""Symmetric ranges that are compared."""


class SigmoidError(RangeError):
    """The squared error of any range for one tensor, behind a sigmoid."""

    def __init__(self, statistics: TensorStatistics) -> None:
        super().__init__(statistics)
        self._levels = _sigmoid(self._centers)
        counts = np.diff(self._sums[0])
        slopes = (self._levels * (1 - self._levels)) ** 2
        self._sums = [np.concatenate([[0.0], np.cumsum(counts * self._levels**power)]) for power in (0, 1, 2)]
        self._slopes = np.concatenate([[0.0], np.cumsum(counts * slopes)])

    def error(self, low: Any, high: Any, step: Any) -> Array:
        """The summed squared error of ranges (low, high) with a grid of `step`; arrays broadcast."""
        low, high, step = (np.asarray(value, np.float64) for value in (low, high, step))
        clipped = np.zeros(())
        for end, (count, first, second) in ((high, self.above(high)), (low, self.below(low))):
            level = _sigmoid(end)
            clipped = clipped + np.maximum(second - 2 * level * first + level**2 * count, 0.0)
        begin = np.searchsorted(self._centers, low, side="left")
        stop = np.searchsorted(self._centers, high, side="right")
        cost: Array = clipped + (self._slopes[stop] - self._slopes[begin]) * step**2 / 12
        return cost


@method("sigmoid")
def behind_sigmoid(statistics: TensorStatistics, bits: int, symmetric: bool) -> Range:
    """The range of least squared error behind a sigmoid."""
    range_error = SigmoidError(statistics)
    if symmetric:
        grid = statistics.magnitude * np.arange(1, _THRESHOLDS + 1) / _THRESHOLDS
        return symmetric_range(statistics, float(grid[int(np.argmin(range_error.symmetric(grid, bits)))]))
    return affine_range(statistics, *affine_search(range_error, statistics, bits))


def _sigmoid(x: Array) -> Array:
    level: Array = 0.5 * (1.0 + np.tanh(0.5 * x))
    return level
