"""`moving-average` and `mean`: averages of the extremes of batches, so that no single sample determines the range.

`moving-average` gives each new batch a small weight, as in training. `mean` has a momentum, or none for the arithmetic
mean. The averages are computed while the data is read, so only the momenta of `ObserverOptions.momenta` are available.
"""

from __future__ import annotations

from npuc.calib.ranges.base import Range, affine_range, method, option_error, symmetric_range
from npuc.calib.statistics import TensorStatistics


@method("moving-average")
def moving_average(
    statistics: TensorStatistics, bits: int, symmetric: bool, *, weight: float = 0.01
) -> Range:
    """The running average of the extremes, each new batch with a weight."""
    return _range(statistics, symmetric, _running(statistics, 1 - weight, "moving-average", "weight", weight))


@method("mean")
def mean(statistics: TensorStatistics, bits: int, symmetric: bool, *, momentum: float | None = 0.9) -> Range:
    """The mean of the extremes of batches: running with a momentum, or arithmetic (`momentum=none`)."""
    if momentum is None:
        return _range(statistics, symmetric, (statistics.mean_min, statistics.mean_max))
    return _range(statistics, symmetric, _running(statistics, momentum, "mean", "momentum", momentum))


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
    recorded = [known if option == "momentum" else round(1 - known, 9) for known in statistics.running]
    words = f"was not recorded; recorded are {', '.join(f'{number:g}' for number in recorded) or 'none'}"
    raise option_error(name, option, value, words)
