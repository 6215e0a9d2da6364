"""Range methods, one small module each; importing this package registers them all."""

from typing import Any

from npuc.calib.ranges import (
    analytic,
    averages,
    behind_sigmoid,
    deviations,
    divergence,
    extremes,
    powers,
    quantiles,
    square_error,
)
from npuc.calib.ranges.base import METHODS, MethodSpec, Range, find_range, options_of, parse_method
from npuc.calib.ranges.choice import CANDIDATES, POWER_CANDIDATES, RangeCandidate, candidates
from npuc.calib.ranges.error import mean_square_error
from npuc.calib.ranges.recording import observer_options
from npuc.registries import renamed

__all__ = [
    "CANDIDATES",
    "METHODS",
    "POWER_CANDIDATES",
    "MethodSpec",
    "Range",
    "RangeCandidate",
    "analytic",
    "averages",
    "behind_sigmoid",
    "candidates",
    "deviations",
    "divergence",
    "extremes",
    "find_range",
    "mean_square_error",
    "observer_options",
    "options_of",
    "parse_method",
    "powers",
    "quantiles",
    "square_error",
]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Candidate": RangeCandidate})
