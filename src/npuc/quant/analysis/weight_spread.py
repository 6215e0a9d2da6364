"""Weights: one scale for output channels of very different magnitudes, or simply too few bits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from npuc.ir import dtype_of
from npuc.quant.analysis.finding import Finding, some
from npuc.quant.analysis.measurements import Measurements, WeightMeasure

SPREAD, WEIGHTS = "weight spread", "weights"
_RATIO = 4.0
"""A channel that is this many times smaller than the largest loses two bits."""
_WORTH = 0.05
"""The share of the noise from which the rounding of weights is reported."""


def find(measurements: Measurements) -> Iterator[Finding]:
    """Layers whose weights differ too much under one scale, or whose rounding causes much noise."""
    for weight in measurements.weights:
        share = measurements.share(weight.random)
        spread = _spread(weight, measurements.share(weight.noise))
        if spread is not None:
            yield spread
        elif share >= _WORTH:
            yield _rounded(weight, share)


def _spread(weight: WeightMeasure, share: float) -> Finding | None:
    sizes = weight.reaches
    alive = sizes[sizes > 0]
    if weight.layer.scale.size > 1 or alive.size < 2:
        return None
    largest, usual = float(alive.max()), float(np.median(alive))
    if usual * _RATIO > largest:
        return None
    gain = 1 - float(np.square(alive / largest).mean())
    lost = math.log2(largest / usual)
    return Finding(
        weight.name,
        SPREAD,
        f"one scale serves the weights of {sizes.size} output channels, whose largest weights go from {alive.min():.3g} to "
        f"{largest:.4g} (the usual one {usual:.3g}): most channels lose {lost:.1f} bits",
        "'npuc quantize --ladder equalize', which gives the channels of neighbouring layers like ranges, or a scale for "
        f"each channel where the machine has it (layers: {{{weight.name}: {{per_channel: true}}}})",
        share * gain,
    )


def _rounded(weight: WeightMeasure, share: float) -> Finding:
    bits = dtype_of(weight.layer.integer_op.weight.type).bits
    more = some([f"layers: {{{name}: {change}}}" for name, change in weight.wide.items()])
    return Finding(
        weight.name,
        WEIGHTS,
        f"{bits} bits are few for its weights: nothing is wrong with their scales, but the outputs are sensitive to them",
        "'npuc quantize --ladder round' (learned rounding) or '--ladder gptq'"
        + (f"; or more bits: {more}" if more else ""),
        share,
    )
