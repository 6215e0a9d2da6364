"""Layers whose error is larger than the rounding of their tensors and weights explains.

An op may round internally (an average in the steps of its operand, a table), or be limited by the target's output stage. Such
a layer, measured alone, is much worse than its exact result after rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

from npuc.quant.analysis.finding import Finding
from npuc.quant.analysis.levels import around
from npuc.quant.analysis.measurements import Measurements, TensorMeasure

KIND = "arithmetic"
_UNEXPLAINED = 0.75
"""If more than this share of the network's noise (6 dB) is unexplained, roundings are not the cause."""
_WORSE = 10.0
"""The decibels by which a layer measured alone has to be below its exact result after rounding."""


def find(measurements: Measurements) -> Iterator[Finding]:
    """The layer with the largest internal loss, if roundings do not explain the noise of the network."""
    unexplained = (
        1 - measurements.separate / measurements.output_noise if measurements.output_noise > 0 else 0.0
    )
    worst = max(measurements.tensors, key=_lost, default=None)
    if unexplained < _UNEXPLAINED or worst is None or worst.isolated is None or _lost(worst) < _WORSE:
        return
    more = f"; {around(worst)}" if worst.wide else ""
    yield Finding(
        worst.name,
        KIND,
        f"the layer loses more than its types do: by itself it has {worst.isolated.sqnr:.1f} dB, its exact result, rounded, "
        f"{worst.values.sqnr:.1f} dB",
        f"another scheme or target, if its way to compute this op is the cause ('npuc diff --isolated' compares){more}",
        unexplained,
    )


def _lost(tensor: TensorMeasure) -> float:
    return tensor.values.sqnr - tensor.isolated.sqnr if tensor.isolated is not None else 0.0
