"""`auto`: the best of what the other methods propose.

`candidates` lists the different ranges that the methods give for a tensor. What is best for the network shows only at
the output of the layers that read the tensor: the quantizer judges the candidates there. Without a quantizer, `auto` is
the candidate of least squared error of the tensor itself.
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


class Candidate(NamedTuple):
    """What one method proposes."""

    method: str
    min: float
    max: float


def candidates(
    statistics: TensorStatistics,
    bits: int = 8,
    symmetric: bool = True,
    methods: Sequence[str] = CANDIDATES,
) -> list[Candidate]:
    """The different ranges that methods propose for a tensor, widest first; equal ones are listed once."""
    found: list[Candidate] = []
    for name in methods:
        proposed = find_range(statistics, name, bits, symmetric)
        tolerance = 1e-3 * (proposed.max - proposed.min)
        if not any(
            abs(proposed.min - one.min) <= tolerance and abs(proposed.max - one.max) <= tolerance
            for one in found
        ):
            found.append(Candidate(name, proposed.min, proposed.max))
    return sorted(found, key=lambda one: one.min - one.max)


@method("auto")
def automatic(statistics: TensorStatistics, bits: int, symmetric: bool) -> Range:
    """The candidate of least squared error."""
    best = min(
        candidates(statistics, bits, symmetric),
        key=lambda one: mean_square_error(statistics, one.min, one.max, bits, symmetric),
    )
    return Range(best.min, best.max)
