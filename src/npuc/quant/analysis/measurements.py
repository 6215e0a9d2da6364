"""The measurements of an integer network, on which all findings are based.

They comprise the values of each tensor against the range of its type, the weights of each layer against their integers, and
the noise that each rounding alone causes at the outputs. Noise is error over signal, so that the noises of independent
roundings add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from npuc.arrays import Array
from npuc.calib.statistics import TensorStatistics
from npuc.compare.layers import TensorFigures
from npuc.ir import Graph
from npuc.ir.dtypes import QuantType
from npuc.quant.analysis.levels import SchemeChange
from npuc.quant.layers import IntegerLayer


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a tensor, and how its type represents them."""

    type: QuantType
    statistics: TensorStatistics
    """The statistics of the float tensor."""

    @property
    def low(self) -> float:
        """The smallest real value of the type."""
        return (self.type.dtype.limits[0] - self.type.zero_point) * self.type.scale

    @property
    def high(self) -> float:
        """The largest real value of the type."""
        return (self.type.dtype.limits[1] - self.type.zero_point) * self.type.scale

    @property
    def bits(self) -> int:
        """The bits of the type."""
        return self.type.dtype.bits

    @cached_property
    def _bins(self) -> tuple[Array, Array, Array]:
        """The centers of the non-empty bins, their shares of the values, and their integers."""
        counts = self.statistics.histogram.astype(np.float64)
        held = counts > 0
        middles = self.statistics.centers()[held]
        least, most = self.type.dtype.limits
        steps = np.clip(np.rint(middles / self.type.scale) + self.type.zero_point, least, most)
        return middles, counts[held] / max(counts.sum(), 1.0), steps.astype(np.int64)

    @cached_property
    def _outside(self) -> Array:
        middles, half = self._bins[0], self.type.scale / 2
        outside: Array = (middles < self.low - half) | (middles > self.high + half)
        return outside

    @cached_property
    def clipped(self) -> float:
        """The share of values outside the range."""
        return float(self._bins[1][self._outside].sum())

    @cached_property
    def errors(self) -> tuple[float, float]:
        """The mean squared error of the values outside the range (clipped), and of those inside (rounded)."""
        middles, shares, steps = self._bins
        lost = np.square(middles - (steps - self.type.zero_point) * self.type.scale) * shares
        return float(lost[self._outside].sum()), float(lost[~self._outside].sum())

    @property
    def sqnr(self) -> float:
        """The SQNR of the exact tensor after quantization to its type."""
        power = self.statistics.square / max(self.statistics.count, 1)
        return decibels(sum(self.errors) / power) if power > 0 else math.inf

    @cached_property
    def clipping_part(self) -> float:
        """The share of the error that is caused by clipping."""
        clipping, rounding = self.errors
        return clipping / (clipping + rounding) if clipping > 0 else 0.0

    @cached_property
    def entropy(self) -> float:
        """The entropy of the tensor's integers, in bits."""
        _, shares, steps = self._bins
        if not steps.size:
            return 0.0
        share = np.bincount(steps - steps.min(), weights=shares)
        share = share[share > 0]
        return float(max(0.0, -(share * np.log2(share)).sum()))

    @property
    def use(self) -> float:
        """The share of the range that the values use; zero, which every range contains, counts as used."""
        low = max(min(self.statistics.min, 0.0), self.low)
        high = min(max(self.statistics.max, 0.0), self.high)
        return max(high - low, 0.0) / (self.high - self.low)

    @cached_property
    def kurtosis(self) -> float:
        """The kurtosis of the values: 3 for a normal distribution, more with rare large values."""
        middles, shares, _ = self._bins
        centred = middles - float(middles @ shares)
        variance = float(np.square(centred) @ shares)
        return float(centred**4 @ shares) / variance**2 if variance > 0 else 0.0

    @property
    def reach(self) -> float:
        """The largest magnitude that occurs and is not clipped."""
        return min(max(-self.low, self.high), self.statistics.magnitude)

    @property
    def usual(self) -> float:
        """The 99.9th percentile of the magnitudes."""
        return self.magnitude_at(0.999)

    def magnitude_at(self, share: float) -> float:
        """The magnitude that a share of the values does not exceed."""
        counts = np.cumsum(self.statistics.magnitudes().astype(np.float64))
        if not counts.size or counts[-1] == 0:
            return 0.0
        index = int(np.searchsorted(counts, share * counts[-1]))
        return min((index + 1) * self.statistics.width, self.statistics.magnitude)

    @cached_property
    def channels(self) -> Array:
        """The largest magnitude of each channel; empty if the tensor has none."""
        low, high = self.statistics.channel_min, self.statistics.channel_max
        if low is None or high is None:
            return np.zeros(0)
        sizes = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
        return np.where(np.isfinite(sizes), sizes, 0.0)


@dataclass(frozen=True, eq=False)
class TensorMeasure:
    """The measurements of one rounded tensor."""

    name: str
    layer: str
    kind: str
    """The kind of the op that computes it, or `input`."""
    values: Values
    noise: float
    """The noise at the outputs if only this tensor is rounded."""
    accumulated: TensorFigures | None
    isolated: TensorFigures | None
    wide: Mapping[str, SchemeChange]
    """The scheme changes, by layer name, with which it would have 16 bits; empty if it has them."""
    other_range: float | None = None
    """The noise at the outputs with another range: the full range if this one clips, a narrower one if it has outliers."""
    joined: str = ""
    """The concat whose scale it shares, if any."""

    @property
    def entropy(self) -> float:
        """From 0 to 1, the share of the bits of its type that carry no information about the float tensor; low is precise.

        A tensor with SQNR s (as a ratio) has log2(1 + s) / 2 informative bits.
        """
        sqnr = self.values.sqnr if self.accumulated is None else self.accumulated.sqnr
        informative = math.log2(1 + 10 ** (min(sqnr, 300.0) / 10)) / 2
        return min(1.0, max(0.0, 1 - informative / self.values.bits))


@dataclass(frozen=True, eq=False)
class WeightMeasure:
    """The measurements of the weights and the bias of one layer."""

    layer: IntegerLayer
    kind: str
    wide: Mapping[str, SchemeChange]
    """The scheme change, by layer name, with which the weights would have more bits; empty if there is none."""
    random: float
    """The noise at the outputs of rounding the weights, with the means of the output channels kept."""
    shifted: float
    """The noise at the outputs of the shift of those means alone."""
    shift: float
    """The largest mean error of an output channel, in standard deviations of the layer's output."""

    @property
    def name(self) -> str:
        """The name of the layer's result."""
        return self.layer.name

    @property
    def noise(self) -> float:
        """The noise at the outputs of rounding these constants."""
        return self.random + self.shifted

    @property
    def reaches(self) -> Array:
        """The largest weight of each output channel."""
        axes = tuple(i for i in range(self.layer.weight.ndim) if i != self.layer.axis)
        largest: Array = np.abs(self.layer.weight).max(axis=axes, initial=0.0)
        return largest


@dataclass(frozen=True, eq=False)
class Measurements:
    """All measurements of an integer network."""

    source: Graph
    tensors: tuple[TensorMeasure, ...]
    weights: tuple[WeightMeasure, ...]
    output_noise: float
    """The noise at the outputs of the whole integer network."""
    samples: int

    @cached_property
    def separate(self) -> float:
        """The sum of the noises of all roundings, measured one at a time."""
        return sum(t.noise for t in self.tensors) + sum(w.noise for w in self.weights)

    def share(self, noise: float) -> float:
        """A noise as a share of the network's noise, or of the sum of all separate noises if that is larger."""
        total = max(self.separate, self.output_noise)
        return noise / total if total > 0 else 0.0


def decibels(noise: float) -> float:
    """The SQNR of a noise, in decibels.

    >>> decibels(0.01)
    20.0
    """
    return math.inf if noise <= 0 else -10 * math.log10(noise)
