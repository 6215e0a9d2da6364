"""Weights for a network that comes without: random, always the same, and such that signals neither die nor explode."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from npuc.arrays import Array
from npuc.errors import ResourceLimitError
from npuc.frontend.layered.network import Shape

SEED = 7
_MOST = 1 << 28
"""Elements of all weights of a network together."""


class RandomWeights:
    """How many were made so far, and what they look like."""

    def __init__(self) -> None:
        self._spent = 0

    def make(self, rng: np.random.Generator, shape: Shape, role: str) -> Array:
        """Weights for a role: weight, bias, one, scale, variance."""
        self._spent += prod(shape)
        if self._spent > _MOST:
            raise ResourceLimitError("the network asks for more than 1 GiB of random weights")
        if role == "one":
            return np.ones(shape, np.float32)
        values = rng.standard_normal(shape, np.float32)
        if role == "weight":
            values *= np.float32(sqrt(2 / max(1, prod(shape[1:]))))
            return values
        if role == "bias":
            values *= np.float32(0.1)
            return values
        # Below one, so that sums of many layers do not grow out of hand.
        least, spread = (1.0, 0.2) if role == "variance" else (0.7, 0.1)
        return np.abs(values) * np.float32(spread) + np.float32(least)
