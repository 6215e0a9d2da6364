"""Shifted means: rounded weights and biases that move the mean of an output channel, the same way for every sample.

Random errors of layers cancel in part; shifts add up, and an average over a picture does not take them away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from npuc.quant.analysis.finding import Finding, percent
from npuc.quant.analysis.measurements import Measurements

KIND = "bias shift"
_MUCH = 0.5
"""The part of the noise of a layer's constants that the shift has to make."""


def find(found: Measurements, explained: Collection[str]) -> Iterator[Finding]:
    """Layers whose constants move the means of their channels, other than those that are explained."""
    for weight in found.weights:
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
            found.share(weight.shifted),
        )
