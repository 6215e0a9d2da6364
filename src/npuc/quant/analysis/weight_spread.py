"""Weights: one scale for output channels of very different sizes, or simply too few bits for them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from npuc.quant.analysis.finding import Finding, some
from npuc.quant.analysis.measurements import Measurements, WeightMeasure

SPREAD, WEIGHTS = "weight spread", "weights"
_RATIO = 4.0
"""Two bits: a channel so many times smaller than the largest is badly served by its scale."""
_WORTH = 0.05
"""The part of the noise from which the rounding of weights is worth a word."""


def find(found: Measurements) -> Iterator[Finding]:
    """Layers whose weights differ too much under one scale, or else cost much."""
    for weight in found.weights:
        share = found.share(weight.random)
        spread = _spread(weight, found.share(weight.noise))
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
    bits = 4 if weight.layer.scheme.weight == "i4" else 8 * weight.layer.integers.dtype.itemsize
    more = some([f"layers: {{{name}: {change}}}" for name, change in weight.wide.items()])
    return Finding(
        weight.name,
        WEIGHTS,
        f"{bits} bits are few for its weights: nothing is wrong with their scales, but the outputs are sensitive to them",
        "'npuc quantize --ladder round' (learned rounding) or '--ladder gptq'"
        + (f"; or more bits: {more}" if more else ""),
        share,
    )
