"""`aciq`: the optimal clipping value of a Gauss or Laplace distribution with the moments of the tensor.

Clipping a Laplace distribution of scale b at a, with M bits, costs 2 b² exp(-a/b) + a² / (3 · 4^M), which is least where
(a/b) exp(a/b) = 3 · 4^M. For a Gauss distribution the clipping cost contains the error function. Both are solved here
for any number of bits (Banner et al. 2019 tabulate them). Values of one sign are treated as half of a distribution around
zero; an affine range spends all its levels on that half, which is worth one more bit.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from npuc.calib.ranges.base import Range, affine_range, method, option_error, symmetric_range
from npuc.calib.ranges.error import mean_square_error
from npuc.calib.statistics import TensorStatistics


@method("aciq")
def analytic(
    statistics: TensorStatistics, bits: int, symmetric: bool, *, distribution: str = "auto"
) -> Range:
    """The best clipping for a Gauss or Laplace distribution; `auto` takes the one that fits the histogram better."""
    if distribution not in ("auto", "gauss", "laplace"):
        raise option_error("aciq", "distribution", distribution, "is not auto, gauss or laplace")
    kinds = ("gauss", "laplace") if distribution == "auto" else (distribution,)
    ranges = [_range(statistics, bits, symmetric, kind) for kind in kinds]
    return min(ranges, key=lambda r: mean_square_error(statistics, r.min, r.max, bits, symmetric))


def _range(statistics: TensorStatistics, bits: int, symmetric: bool, kind: str) -> Range:
    factor = gauss_factor if kind == "gauss" else laplace_factor
    half = statistics.histogram.size // 2
    if statistics.min >= 0.0 or statistics.max <= 0.0:
        # Zeros of a relu are no part of the half distribution.
        zeros = int(statistics.histogram[half]) if statistics.min >= 0.0 else 0
        number = max(1, statistics.count - zeros)
        spread = math.sqrt(statistics.square / number) if kind == "gauss" else statistics.absolute / number
        threshold = factor(bits if symmetric else bits + 1) * spread
        if symmetric:
            return symmetric_range(statistics, threshold)
        return affine_range(statistics, -threshold, threshold)
    mean = statistics.mean
    spread = statistics.deviation if kind == "gauss" else _absolute_deviation(statistics)
    reach = factor(bits) * spread
    if symmetric:
        return symmetric_range(statistics, abs(mean) + reach)
    return affine_range(statistics, mean - reach, mean + reach)


def _absolute_deviation(statistics: TensorStatistics) -> float:
    counts = statistics.histogram.astype(np.float64)
    return float(np.sum(counts * np.abs(statistics.centers() - statistics.mean)) / statistics.count)


@cache
def laplace_factor(bits: int) -> float:
    """The best clipping value in units of b.

    >>> round(laplace_factor(4), 2)
    5.03
    """
    target = math.log(3.0) + bits * math.log(4.0)
    value = target
    for _ in range(100):
        value -= (value + math.log(value) - target) / (1 + 1 / value)
    return value


@cache
def gauss_factor(bits: int) -> float:
    """The best clipping value in units of the standard deviation.

    >>> round(gauss_factor(4), 2)
    2.55
    """

    def slope(a: float) -> float:
        # Of the clipped part 2 * integral from a of (x - a)² times the density, and of the rounding part.
        tail = math.erfc(a / math.sqrt(2.0))
        density = math.sqrt(2.0 / math.pi) * math.exp(-a * a / 2)
        return 2 * a * tail - 2 * density + 2 * a / (3 * 4.0**bits)

    low, high = 0.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2
