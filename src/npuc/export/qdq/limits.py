"""The limits [lo, hi] of an output stage as ops on reals: a fused relu, a relu, a clip, or nothing.

QuantizeLinear saturates to the ends of its type; what lies inside of them has to be said. A bound of `n` steps is the real
`n * scale`, which quantizes to `n` again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from npuc.ir.dtypes import QuantType


@dataclass(frozen=True)
class Limits:
    """Bounds of a real result, infinite where the type saturates by itself."""

    low: float
    high: float

    @property
    def is_relu(self) -> bool:
        """Whether a relu, with or without an upper limit, says it."""
        return self.low == 0 and self.high > 0

    @property
    def bind(self) -> bool:
        """Whether there are any."""
        return self.low > -inf or self.high < inf

    @property
    def relu(self) -> dict[str, Any]:
        """The properties of an op with a fused relu; none of a clip."""
        if not self.is_relu:
            return {}
        return {"relu": True, "relu_limit": 0.0 if self.high == inf else self.high}


def limits_of(op: Any) -> Limits:
    """The limits of an op with `lo`, `hi` and a quantized result.

    A relu6 in unsigned integers from zero on has the lower bound of its type, and is a relu all the same.
    """
    kind = op.to
    assert isinstance(kind, QuantType)
    least, most = kind.dtype.carrier.limits
    low = -inf if op.lo == least else (op.lo - kind.zero_point) * kind.scale
    high = inf if op.hi == most else (op.hi - kind.zero_point) * kind.scale
    if low == -inf and high < inf and op.lo == kind.zero_point:
        low = 0.0
    return Limits(low, high)
