"""Shifted means: rounded weights and biases that move the mean of an output channel, the same way for every sample.

Random errors of layers partly cancel; shifts add up, and averaging over an image does not remove them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from npuc.quant.analysis.finding import Finding, percent
from npuc.quant.analysis.measurements import Measurements

KIND = "bias shift"
_MUCH = 0.5
"""The share of the noise of a layer's constants that the shift has to cause."""


def find(measurements: Measurements, explained: Collection[str]) -> Iterator[Finding]:
    """Layers whose constants shift the means of their channels, except those that are already explained."""
    for weight in measurements.weights:
        part = weight.shifted / weight.noise if weight.noise > 0 else 0.0
        if part < _MUCH or weight.name in explained:
            continue
        yield Finding(
            weight.name,
            KIND,
            f"its rounded weights and bias shift the means of its output channels, by up to {weight.shift:.2g} of the "
            f"output's standard deviation; that is {percent(part)} of what they cost",
            "bias correction, which 'npuc quantize --data' does unless --no-tune forbids it, on more data if it was done; "
            "or 'npuc quantize --ladder round'",
            measurements.share(weight.shifted),
        )
