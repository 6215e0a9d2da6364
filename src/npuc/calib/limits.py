"""Limits of the values that statistics see: those beyond are clipped to them, or left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array


@dataclass(frozen=True)
class ValueLimits:
    """From where on values are not data but overflows, such as the -inf of a mask.

    >>> ValueLimits(-1.0, 2.0, clips=True).applied(np.array([-5.0, 0.5, 7.0])).tolist()
    [-1.0, 0.5, 2.0]
    >>> ValueLimits(-1.0, 2.0).applied(np.array([-5.0, 0.5, 7.0])).tolist()
    [inf, 0.5, inf]
    """

    low: float
    high: float
    clips: bool = False
    """Whether values beyond count as the limits; otherwise they are left out."""

    def applied(self, values: Array) -> Array:
        """The values as statistics take them; infinite ones are left out there."""
        if self.clips:
            clipped: Array = np.clip(values, self.low, self.high)
            return clipped
        inside: Array = np.where((values < self.low) | (values > self.high), np.inf, values)
        return inside

    def __str__(self) -> str:
        return f"beyond {self.low:g} to {self.high:g}"
