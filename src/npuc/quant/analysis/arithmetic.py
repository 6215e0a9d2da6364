"""Layers that lose more than their types do: what roundings of tensors and weights do not explain.

An op may round on its way (an average that is taken in the steps of its operand, a table), or be bound by what a target's
output stage can express. Such a layer is much worse by itself than its exact result, rounded, would be.
"""

from __future__ import annotations

from collections.abc import Iterator

from npuc.quant.analysis.finding import Finding
from npuc.quant.analysis.levels import around
from npuc.quant.analysis.measurements import Measurements, TensorMeasure

KIND = "arithmetic"
_UNEXPLAINED = 0.75
"""The part of the noise of the network, 6 dB, from which roundings are no explanation."""
_WORSE = 10.0
"""Decibels that a layer by itself has to be below its exact result, rounded."""


def find(found: Measurements) -> Iterator[Finding]:
    """The layer that loses most, if roundings do not explain the noise of the network."""
    unexplained = 1 - found.separate / found.output_noise if found.output_noise > 0 else 0.0
    worst = max(found.tensors, key=_lost, default=None)
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
