"""Ranges that are wide because of a few outliers: large channels, or rare large values, leave few steps for the others."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from npuc.quant.analysis.finding import Finding, percent, some
from npuc.quant.analysis.levels import around
from npuc.quant.analysis.measurements import Measurements, TensorMeasure, Values

CHANNELS, VALUES = "outlier channels", "outliers"
_RATIO = 4.0
"""Values that are this many times smaller than the range lose two bits."""
_FEWEST = 4
"""The least number of channels among which outliers are searched."""


def find(measurements: Measurements) -> Iterator[Finding]:
    """Tensors with outlier channels, or else with rare large values."""
    for tensor in measurements.tensors:
        finding = _channels(measurements, tensor) or _values(measurements, tensor)
        if finding is not None:
            yield finding


def _channels(measurements: Measurements, tensor: TensorMeasure) -> Finding | None:
    sizes, reach = tensor.values.channels, tensor.values.reach
    alive = sizes[sizes > 0]
    if alive.size < _FEWEST or reach <= 0:
        return None
    usual = float(np.median(alive))
    if usual * _RATIO > reach:
        return None
    large = np.flatnonzero(sizes * 2 > reach)
    order = large[np.argsort(-sizes[large], kind="stable")]
    names = some([str(channel) for channel in order])
    is_single = large.size == 1
    # The gain if the outlier channels had the magnitude of the others.
    gain = 1 - float(np.square(np.minimum(alive / reach, 1.0)).mean())
    left = max(0.0, tensor.values.bits - math.log2(reach / usual))
    return Finding(
        tensor.name,
        CHANNELS,
        f"channel{'s' * (not is_single)} {names} of {sizes.size} reach{'es' * is_single} {float(sizes.max()):.4g}, the usual one "
        f"{usual:.3g}: of {tensor.values.bits} bits, {left:.1f} are left for most channels",
        "'npuc quantize --ladder smooth', which moves the size of such channels to the weights that read them, or "
        "'--ladder equalize'; 16 bits for the layers around it otherwise",
        measurements.share(tensor.noise) * (1 - tensor.values.clipping_part) * gain,
    )


def _values(measurements: Measurements, tensor: TensorMeasure) -> Finding | None:
    values = tensor.values
    if not has_outliers(values):
        return None
    usual, reach = values.usual, values.reach
    clip = (
        f"a range that clips them: 'npuc calibrate --tensor-method {tensor.name}=percentile' and its table, or "
        "'npuc quantize --method percentile' for all tensors"
    )
    if tensor.other_range is None:
        remedy = f"{clip}, if the outputs allow it"
    elif tensor.other_range < tensor.noise:
        remedy = f"{clip}; without them the tensor would make {percent(measurements.share(tensor.other_range))} of the noise"
    else:
        remedy = f"the outputs need these values, so clipping does not help: {around(tensor)}"
    return Finding(
        tensor.name,
        VALUES,
        f"99.9 % of the values are below {usual:.3g}, but the range holds magnitudes up to {reach:.4g} "
        f"(kurtosis {values.kurtosis:.0f}): rare values take {math.log2(reach / usual):.1f} bits from the usual ones",
        remedy,
        measurements.share(tensor.noise) * (1 - values.clipping_part) * (1 - (usual / reach) ** 2),
    )


def has_outliers(values: Values) -> bool:
    """Whether rare values take more than two bits from the usual ones."""
    return 0 < values.usual * _RATIO <= values.reach
