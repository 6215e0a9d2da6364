"""Plain rounding: a tensor to which the outputs are sensitive, without another finding that explains it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from npuc.quant.analysis.finding import Finding
from npuc.quant.analysis.levels import around
from npuc.quant.analysis.measurements import Measurements

KIND = "rounding"
_WORTH = 0.05
"""The share of the noise from which a tensor is reported."""


def find(measurements: Measurements, explained: Collection[str]) -> Iterator[Finding]:
    """Tensors that cause much noise, except those that are already explained."""
    for tensor in measurements.tensors:
        share = measurements.share(tensor.noise)
        if share < _WORTH or tensor.name in explained or not tensor.wide:
            continue
        alone = (
            f" (by itself the layer has {tensor.isolated.sqnr:.0f} dB)" if tensor.isolated is not None else ""
        )
        yield Finding(
            tensor.name,
            KIND,
            f"{tensor.values.bits} bits are few for this tensor: its range fits and its values are nothing unusual, but "
            f"the outputs are sensitive to it{alone}",
            around(tensor),
            share,
        )
