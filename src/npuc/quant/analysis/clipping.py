"""Ranges that are too narrow: most of a tensor's error is made by values outside the range of its type."""

from __future__ import annotations

from collections.abc import Iterator

from npuc.quant.analysis.finding import Finding, percent
from npuc.quant.analysis.measurements import Measurements

KIND = "clipping"
_MOST_OF_IT = 0.5
"""Below this part of the error, clipping is a good bargain: the best range of a tensor clips a little."""


def find(found: Measurements) -> Iterator[Finding]:
    """Tensors that are clipped too much."""
    for tensor in found.tensors:
        values = tensor.values
        part = values.clipping_part
        if part < _MOST_OF_IT:
            continue
        seen = values.statistics
        severity = found.share(tensor.noise) * part
        yield Finding(
            tensor.name,
            KIND,
            f"{percent(values.clipped)} of the values are clipped: the range is {values.low:.4g} to {values.high:.4g}, "
            f"the values go from {seen.min:.4g} to {seen.max:.4g}. That is {percent(part)} of the error of this tensor",
            f"a wider range: 'npuc quantize --method max', or for this tensor alone 'npuc calibrate --tensor-method "
            f"{tensor.name}=max'; if the ranges came from other data, calibrate on data like this, and more of it; "
            "16 bits if the wider range costs too much resolution",
            severity,
        )
