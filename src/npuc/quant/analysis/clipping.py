"""Ranges that are too narrow: most of a tensor's error is caused by values outside the range of its type."""

from __future__ import annotations

from collections.abc import Iterator

from npuc.quant.analysis.finding import Finding, percent
from npuc.quant.analysis.levels import around
from npuc.quant.analysis.measurements import Measurements, TensorMeasure

KIND = "clipping"
MOST_OF_IT = 0.5
"""A smaller share of the error is normal: the best range of a tensor clips a little."""


def find(measurements: Measurements) -> Iterator[Finding]:
    """Tensors that are clipped too much."""
    for tensor in measurements.tensors:
        values = tensor.values
        part = values.clipping_part
        if part < MOST_OF_IT:
            continue
        observed = values.statistics
        severity = measurements.share(tensor.noise) * part
        yield Finding(
            tensor.name,
            KIND,
            f"{percent(values.clipped)} of the values are clipped: the range is {values.low:.4g} to {values.high:.4g}, "
            f"the values go from {observed.min:.4g} to {observed.max:.4g}. That is {percent(part)} of the error of this tensor",
            _remedy(tensor, measurements),
            severity,
        )


def _remedy(tensor: TensorMeasure, measurements: Measurements) -> str:
    if tensor.values.bits > 8:
        return (
            "a wider range, which costs nothing that shows with 16 bits: calibrate on more data, or widen its line in the "
            "table ('npuc quantize --save-table FILE', then '--table FILE')"
        )
    wider = f"a wider range for this tensor: 'npuc calibrate --tensor-method {tensor.name}=max' and its table"
    if tensor.other_range is None:
        return f"{wider}; calibration on more data, if it was on other data"
    share = percent(measurements.share(tensor.other_range))
    if tensor.other_range < tensor.noise:
        return f"{wider}, with which it would make {share} of the noise; calibration on more data, if it was on other data"
    return f"{around(tensor)}; its whole range would not help (then it would make {share} of the noise)"
