"""Wasted bits: a range that is much wider than the values, so that few of the integers occur."""

from __future__ import annotations

import math
from collections.abc import Iterator

from npuc.arithmetic.kinds import Scales
from npuc.quant.analysis.finding import Finding, percent
from npuc.quant.analysis.levels import around
from npuc.quant.analysis.measurements import Measurements, TensorMeasure

KIND = "wasted bits"
_USED = 0.45
"""A lower use wastes more than one bit, which a power-of-two scale, or a symmetric range after a relu, may cost."""


def find(measurements: Measurements) -> Iterator[Finding]:
    """Tensors that use little of their range."""
    for tensor in measurements.tensors:
        values = tensor.values
        use = values.use
        if not 0 < use < _USED:
            continue
        observed = values.statistics
        yield Finding(
            tensor.name,
            KIND,
            f"the values, {observed.min:.4g} to {observed.max:.4g}, use {percent(use)} of the range {values.low:.4g} to "
            f"{values.high:.4g}: {-math.log2(use):.1f} of {values.bits} bits never change, and the integers carry "
            f"{values.entropy:.1f} bits",
            _remedy(tensor),
            measurements.share(tensor.noise) * (1 - values.clipping_part) * (1 - use**2),
        )


def _remedy(tensor: TensorMeasure) -> str:
    if tensor.joined:
        more = f": {around(tensor)}" if tensor.wide else ""
        return f"it has the scale of '{tensor.joined}', which it is joined into{more}"
    kind = tensor.values.type
    if any(change.old.activation_scales is Scales.POWER_OF_TWO for change in tensor.wide.values()):
        return f"scales that are powers of two fit it badly: '--method pow2-min-diff', or {around(tensor)}"
    if tensor.values.statistics.one_sided and kind.dtype.limits[0] < 0 and kind.zero_point == 0:
        return (
            f"its values have one sign, and its range has two: layers: {{{tensor.name}: {{activation_scales: affine}}}} "
            "where the machine has zero points"
        )
    return (
        "a narrower range: calibrate on data like this, with 'npuc quantize --data'; for this tensor alone "
        f"'npuc calibrate --tensor-method {tensor.name}=mse' and its table"
    )
