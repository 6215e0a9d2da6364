"""`pow2` and `pow2-min-diff`: thresholds 2^k, for schemes whose scales are powers of two.

`pow2` is the smallest threshold at which nothing saturates: with b bits and scale 2^k / 2^(b-1), every value rounds to a
representable integer. `pow2-min-diff` also tries the next smaller thresholds and takes the one with the least squared error.
Power-of-two schemes are symmetric, so the affine range is the same.
"""

from __future__ import annotations

import math

import numpy as np

from npuc.calib.ranges.base import Range, method, option_error
from npuc.calib.ranges.error import RangeError
from npuc.calib.statistics import TensorStatistics


@method("pow2")
def non_overflow(statistics: TensorStatistics, bits: int, symmetric: bool) -> Range:
    """The smallest 2^k at which nothing saturates."""
    return _range(_exponent(statistics, bits))


@method("pow2-min-diff")
def min_diff(statistics: TensorStatistics, bits: int, symmetric: bool, *, steps: int = 5) -> Range:
    """The 2^k of least squared error, down to `steps` below the one at which nothing saturates."""
    if steps < 0:
        raise option_error("pow2-min-diff", "steps", steps, "is below 0")
    exponents = _exponent(statistics, bits) - np.arange(steps + 1)
    thresholds = np.ldexp(1.0, exponents)
    step = thresholds / 2 ** (bits - 1)
    costs = RangeError(statistics).error(-thresholds, thresholds - step, step)
    return _range(int(exponents[int(np.argmin(costs))]))


def _range(exponent: int) -> Range:
    return Range(-math.ldexp(1.0, exponent), math.ldexp(1.0, exponent))


def _exponent(statistics: TensorStatistics, bits: int) -> int:
    half = 1 << (bits - 1)
    exponent = math.frexp(statistics.magnitude)[1] - 1
    while True:
        scale = math.ldexp(1.0, exponent) / half
        # A half rounds away from zero, so it counts as the next integer.
        if (
            math.floor(statistics.max / scale + 0.5) < half
            and math.floor(-statistics.min / scale + 0.5) <= half
        ):
            return exponent
        exponent += 1
