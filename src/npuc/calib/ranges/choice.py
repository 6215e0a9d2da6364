"""`auto`: the best of the ranges that the other methods propose.

`candidates` lists the distinct ranges that the methods propose for a tensor. Which one is best for the network can only be
measured at the outputs of the layers that read the tensor; the quantizer does so. Without a quantizer, `auto` takes the
candidate with the least squared error of the tensor itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from npuc.calib.ranges.base import Range, find_range, method
from npuc.calib.ranges.error import mean_square_error
from npuc.calib.statistics import TensorStatistics

CANDIDATES = (
    "max",
    "percentile:ratio=0.99999",
    "percentile:ratio=0.9999",
    "percentile:ratio=0.999",
    "max-percentile",
    "mean:momentum=none",
    "kl",
    "mse",
    "aciq",
)
"""The methods that are tried for schemes with any scale."""
POWER_CANDIDATES = ("pow2", "pow2-min-diff")
"""Those for power-of-two schemes."""


class RangeCandidate(NamedTuple):
    """The range that one method proposes."""

    method: str
    min: float
    max: float


def candidates(
    statistics: TensorStatistics,
    bits: int = 8,
    symmetric: bool = True,
    methods: Sequence[str] = CANDIDATES,
) -> list[RangeCandidate]:
    """The distinct ranges that methods propose for a tensor, widest first."""
    distinct: list[RangeCandidate] = []
    for name in methods:
        proposed = find_range(statistics, name, bits, symmetric)
        tolerance = 1e-3 * (proposed.max - proposed.min)
        if not any(
            abs(proposed.min - other.min) <= tolerance and abs(proposed.max - other.max) <= tolerance
            for other in distinct
        ):
            distinct.append(RangeCandidate(name, proposed.min, proposed.max))
    return sorted(distinct, key=lambda other: other.min - other.max)


def steps_to_maximum(
    statistics: TensorStatistics, name: str, count: int, bits: int = 8, symmetric: bool = True
) -> list[RangeCandidate]:
    """`count` ranges at equal distances, from the one that a method proposes to all values; widest first."""
    narrow, wide = (find_range(statistics, method, bits, symmetric) for method in (name, "max"))
    shares = [index / (count - 1) for index in reversed(range(count))] if count > 1 else [0.0]
    return [
        RangeCandidate(
            name, narrow.min + share * (wide.min - narrow.min), narrow.max + share * (wide.max - narrow.max)
        )
        for share in shares
    ]


@method("auto")
def automatic(statistics: TensorStatistics, bits: int, symmetric: bool) -> Range:
    """The candidate of least squared error."""
    best = min(
        candidates(statistics, bits, symmetric),
        key=lambda candidate: mean_square_error(statistics, candidate.min, candidate.max, bits, symmetric),
    )
    return Range(best.min, best.max)
