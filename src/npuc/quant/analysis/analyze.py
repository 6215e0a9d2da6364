"""The analysis as a whole: from data to findings, worst first, with remedies."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.collection import collect
from npuc.calib.samples import batch_size
from npuc.calib.sources import Data, Source, open_data
from npuc.errors import CalibrationDataError, UsageError
from npuc.ir import Graph
from npuc.quant.analysis import (
    arithmetic,
    bias_shift,
    clipping,
    inherited,
    outliers,
    resolution,
    rounding,
    weight_spread,
)
from npuc.quant.analysis.finding import Finding, percent
from npuc.quant.analysis.measurements import Measurements, TensorMeasure, WeightMeasure, decibels
from npuc.quant.analysis.measuring import COMPARED, all_channels, measure
from npuc.quant.crowding import crowded, spans_of
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.prequantized import integer_types
from npuc.quant.validation import Program
from npuc.words import counted

LEVERS = {
    clipping.KIND: "wider ranges or 16 bits, see each layer; calibration on more typical data",
    outliers.CHANNELS: "'--ladder smooth', then '--ladder equalize'",
    outliers.VALUES: "ranges that clip, or 16 bits: see each layer",
    weight_spread.SPREAD: "'--ladder equalize', or a scale for each channel",
    weight_spread.WEIGHTS: "'--ladder round' or '--ladder gptq'; more bits for weights (--hybrid)",
    bias_shift.KIND: "bias correction (leave out --no-tune), on more data",
    resolution.KIND: "narrower ranges, or scales that fit: see each layer",
    arithmetic.KIND: "another scheme or target, or 16 bits for the layers around it",
    rounding.KIND: "16 bits for a few layers: --hybrid FILE.yaml, then 'npuc quantize --config FILE.yaml'",
}
"""For each kind of finding, the general remedy."""
_LEAST = 0.01
"""Findings that account for a smaller share of the noise are not reported."""
_STANDS_OUT = 0.05
CLOSE = 30.0
"""Decibels of the outputs above which labels and boxes hardly change."""
_EXPLAINED = 0.5
"""The share of a tensor's noise that a finding has to account for to count as its explanation."""


@dataclass(frozen=True)
class Analysis:
    """The measurements of an integer network, and the findings from them."""

    measurements: Measurements
    findings: tuple[Finding, ...]
    """The worst first."""
    crowded: tuple[str, ...] = ()
    """One sentence for each tensor whose parts differ in magnitude by more than its bits can represent."""

    def summary(self) -> list[str]:
        """A few sentences on the network as a whole."""
        measured = self.measurements
        if measured.separate <= 0:
            none = "Rounding disturbs no float output of this network: there is nothing to find."
            return [none, *(f"{text}." for text in self.crowded)]
        tensors = sum(rounding.noise for rounding in measured.tensors) / measured.separate
        words = [
            f"The outputs are {decibels(measured.output_noise):.1f} dB from float; the roundings of {len(measured.tensors)} "
            f"tensors and the weights of {counted(len(measured.weights), 'layer')}, tried one at a time, add up to "
            f"{decibels(measured.separate):.1f} dB. Tensors make {percent(tensors)} of that noise, weights "
            f"{percent(1 - tensors)}."
        ]
        costs: list[TensorMeasure | WeightMeasure] = [*measured.tensors, *measured.weights]
        noises = sorted((rounding.noise for rounding in costs), reverse=True)
        half = int(np.searchsorted(np.cumsum(noises), measured.separate / 2)) + 1
        words.append(f"Half of it comes from {half} of these {len(noises)} roundings.")
        if decibels(measured.output_noise) >= CLOSE:
            words.append("That is close to float: shares below are shares of little.")
        if not any(finding.severity >= _STANDS_OUT for finding in self.findings):
            words.append(
                f"No layer stands out: the worst rounding makes {percent(noises[0] / measured.separate)}. What is left is "
                "the price of the types: '--ladder round', 16 bits all over ('--scheme int16'), or more calibration data."
            )
        words += [f"{text}." for text in self.crowded]
        return words

    def plan(self) -> list[tuple[str, float, str]]:
        """(kind of finding, share of the noise, remedy), the most promising first."""
        totals: dict[str, float] = {}
        for finding in self.findings:
            if finding.severity > 0:
                totals[finding.kind] = totals.get(finding.kind, 0.0) + finding.severity
        ranked = sorted(totals.items(), key=lambda item: -item[1])
        return [(kind, severity, LEVERS[kind]) for kind, severity in ranked]

    def tensor(self, name: str) -> TensorMeasure:
        """A tensor by its own name or its layer's; `UsageError` if no tensor with integers of its own has that name."""
        for tensor in self.measurements.tensors:
            if name in (tensor.name, tensor.layer):
                return tensor
        raise no_such_tensor(name, [tensor.name for tensor in self.measurements.tensors])

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain values."""
        measured = self.measurements
        return {
            "output_sqnr": decibels(measured.output_noise),
            "separate_sqnr": decibels(measured.separate),
            "samples": measured.samples,
            "summary": self.summary(),
            "findings": [finding.as_json() for finding in self.findings],
            "plan": [{"kind": k, "severity": s, "remedy": words} for k, s, words in self.plan()],
            "tensors": [_tensor_json(layer, measured) for layer in measured.tensors],
            "weights": [
                {
                    "layer": layer.name,
                    "kind": layer.kind,
                    "share": measured.share(layer.noise),
                    "share_of_shift": measured.share(layer.shifted),
                    "shift": layer.shift,
                }
                for layer in measured.weights
            ],
        }


def _tensor_json(tensor: TensorMeasure, measurements: Measurements) -> dict[str, Any]:
    values = tensor.values
    return {
        "name": tensor.name,
        "layer": tensor.layer,
        "kind": tensor.kind,
        "type": values.type.dtype.name,
        "range": [values.low, values.high],
        "seen": [values.statistics.min, values.statistics.max],
        "share": measurements.share(tensor.noise),
        "clipped": values.clipped,
        "clipping_part": values.clipping_part,
        "range_use": values.use,
        "entropy_bits": values.entropy,
        "entropy": tensor.entropy,
        "kurtosis": values.kurtosis,
        "accumulated": None if tensor.accumulated is None else asdict(tensor.accumulated),
        "isolated": None if tensor.isolated is None else asdict(tensor.isolated),
    }


def analyze(
    source: Graph,
    quantized: Graph,
    data: Data | Source,
    scheme_of: LayerSchemes | None = None,
    *,
    threads: int | None = None,
    warn: Callable[[str], None] | None = None,
    step: Callable[[], None] = lambda: None,
    wide: bool = True,
    behind: Program | None = None,
) -> Analysis:
    """Measure an integer network, and find what degrades it and why.

    `source` is the float network that it was made of, `scheme_of` the schemes of its layers (by default, the default scheme);
    `wide` says whether remedies may use 16-bit activations.
    Noise is measured at the outputs, or at what `behind` makes of them by name.

    Example: `analyze(done.source, done.graph, "images/", done.scheme_of).findings[0].words`.
    """
    if not integer_types(quantized):
        raise UsageError(
            "the network has no integers to analyse", fix="'npuc diff' compares networks of any other kind"
        )
    threads = threads or len(os.sched_getaffinity(0))
    data = data if isinstance(data, Source) else open_data(source, data)
    # Data is often sorted by class, so samples are kept at even intervals, not from the beginning.
    every = max(1, (data.total or 0) // ((batch_size(source) or 1) * COMPARED))
    kept: list[Mapping[str, Array]] = []
    batches = count()

    def keep(inputs: Mapping[str, Array]) -> None:
        if next(batches) % every == 0 and len(kept) < COMPARED:
            kept.append({name: np.array(array) for name, array in inputs.items()})

    statistics = collect(source, data, channels=all_channels(source), threads=threads, warn=warn, seen=keep)
    if not kept:
        raise CalibrationDataError("there is no sample to analyse with")
    schemes = LayerSchemes.of(source, scheme_of)
    measurements = measure(
        source, quantized, schemes, statistics, kept, threads=threads, step=step, behind=behind
    )
    return Analysis(
        measurements,
        tuple(findings(measurements)),
        crowded(source, quantized, spans_of(statistics), schemes, wide=wide),
    )


def findings(measurements: Measurements) -> list[Finding]:
    """All findings about a network, the worst first."""
    causes = [
        finding
        for kind in (arithmetic, clipping, outliers, resolution, weight_spread)
        for finding in kind.find(measurements)
        if finding.severity >= _LEAST
    ]
    share = {tensor.name: measurements.share(tensor.noise) for tensor in measurements.tensors}
    tensors = {
        finding.layer
        for finding in causes
        if finding.kind in (clipping.KIND, outliers.CHANNELS, outliers.VALUES, resolution.KIND)
        and finding.severity >= _EXPLAINED * share[finding.layer]
    }
    spread = {finding.layer for finding in causes if finding.kind == weight_spread.SPREAD}
    effects = [*rounding.find(measurements, tensors), *bias_shift.find(measurements, spread)]
    relevant = [finding for finding in (*causes, *effects) if finding.severity >= _LEAST]
    return [*sorted(relevant, key=lambda finding: -finding.severity), *inherited.find(measurements)]


def no_such_tensor(name: str, known: Sequence[str]) -> UsageError:
    """The error for a name that is not that of a tensor with integers of its own."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, 3, 0.3)
    return UsageError(
        f"there is no tensor '{name}' with integers of its own",
        fix=f"Did you mean {' or '.join(map(repr, near))}?" if near else "Take a name of the findings",
    )
