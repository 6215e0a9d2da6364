"""`mse`: the range of least squared error.

Symmetric: the derivative of the error is zero at the fixed point t = sum of |x| above t / (number above t + c · number
inside), c = 1 / (12 · levels²) (OCTAV, Sakr et al. 2022). The iteration starts at the best threshold of a coarse grid,
because irregular distributions have several fixed points. Affine: both ends are searched together on a grid that is
refined around the best pair.
"""

from __future__ import annotations

import numpy as np

from npuc.calib.ranges.base import Range, affine_range, levels, method, symmetric_range
from npuc.calib.ranges.error import RangeError
from npuc.calib.statistics import TensorStatistics

_COARSE = 256
_ITERATIONS = 40
_SIDE = 65
_REFINEMENTS = 4


@method("mse")
def square_error(statistics: TensorStatistics, bits: int, symmetric: bool) -> Range:
    """The range of least squared error."""
    range_error = RangeError(statistics)
    if symmetric:
        return symmetric_range(statistics, octav(range_error, statistics.magnitude, bits))
    return affine_range(statistics, *affine_search(range_error, statistics, bits))


def octav(range_error: RangeError, magnitude: float, bits: int) -> float:
    """The threshold of least squared error for a symmetric grid."""
    grid = magnitude * np.arange(1, _COARSE + 1) / _COARSE
    best = float(grid[int(np.argmin(range_error.symmetric(grid, bits)))])
    constant = 1.0 / (12.0 * levels(bits, True) ** 2)
    threshold = best
    for _ in range(_ITERATIONS):
        over, over_sum, _ = range_error.above(threshold)
        under, under_sum, _ = range_error.below(-threshold)
        outside, mass = float(over + under), float(over_sum - under_sum)
        following = mass / (outside + constant * (range_error.total - outside))
        if not 0 < following <= magnitude or abs(following - threshold) <= 1e-7 * magnitude:
            break
        threshold = following
    candidates = np.array([best, threshold, magnitude])
    return float(candidates[int(np.argmin(range_error.symmetric(candidates, bits)))])


def affine_search(range_error: RangeError, statistics: TensorStatistics, bits: int) -> tuple[float, float]:
    """Both ends of the range of least error."""
    bottom, top = min(0.0, statistics.min), max(0.0, statistics.max)
    low_ends, high_ends = (bottom, 0.0), (0.0, top)
    low, high = bottom, top
    for _ in range(_REFINEMENTS):
        lows = np.linspace(*low_ends, _SIDE if bottom < 0 else 1)
        highs = np.linspace(*high_ends[::-1], _SIDE if top > 0 else 1)
        costs = range_error.affine(lows[:, None], highs[None, :], bits)
        row, column = np.unravel_index(int(np.argmin(costs)), costs.shape)
        low, high = float(lows[row]), float(highs[column])
        low_step = 2 * (low_ends[1] - low_ends[0]) / (_SIDE - 1)
        high_step = 2 * (high_ends[1] - high_ends[0]) / (_SIDE - 1)
        low_ends = (max(bottom, low - low_step), min(0.0, low + low_step))
        high_ends = (max(0.0, high - high_step), min(top, high + high_step))
    return low, high
