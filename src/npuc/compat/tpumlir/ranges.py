"""Tables for one network: ranges by the names of either tool, and the types of layers that a quantization table states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.calib.table import CalibrationTable, Entry
from npuc.compat.running import warn
from npuc.compat.tpumlir.names import names_of
from npuc.compat.tpumlir.tables import VendorTable
from npuc.engine import FloatEngine
from npuc.errors import QuantizationError, UnknownTensorError
from npuc.ir import Graph, result_names, top
from npuc.ir.passes import run_pipeline
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import fitted, misfit
from npuc.quant.scheme import SCHEMES
from npuc.target import Target
from npuc.transform.merge_pointwise_convs import MergePointwiseConvs
from npuc.words import counted


def ranges_for(graph: Graph, table: VendorTable, where: str) -> CalibrationTable:
    """The ranges of a network's tensors. A row of an op that is fused away here is left out, with a word."""
    names = names_of(graph)
    known = {*graph.tensor_names(), *(port.name for port in graph.inputs)}
    entries: dict[str, Entry] = {}
    others: list[str] = []
    for name, entry in table.ranges.items():
        own = names.npuc_name(name)
        if own in known:
            # The extremes of a row are those that were seen; the range of an affine scheme holds zero.
            entries[own] = replace(entry, name=own, min=min(entry.min, 0.0), max=max(entry.max, 0.0))
        else:
            others.append(name)
    if not entries:
        raise UnknownTensorError(
            f"has no op of this network: it has {', '.join(list(table.ranges)[:3])}",
            where=where,
            fix="Is the table of another network?",
        )
    if others:
        warn(
            f"{where}: {counted(len(others), 'op', 'is', 'are')} not in this network: {', '.join(others[:5])}"
        )
    return CalibrationTable(entries)


def merged_like(graph: Graph, ranges: CalibrationTable) -> Graph:
    """The network without the tensors that a table of TPU-MLIR has no row for because it merges pointwise convolutions.

    A network with a table of npuc's own, which has a row for every tensor, stays as it is.
    """
    missing = tuple(ranges.check(graph))
    return run_pipeline(graph, [MergePointwiseConvs(between=missing, single=True)]) if missing else graph


def with_measured(
    graph: Graph, ranges: CalibrationTable, inputs: Mapping[str, Array] | None, where: str
) -> CalibrationTable:
    """The ranges, completed by those of tensors that the table has no row for, as where TPU-MLIR fuses what npuc does not.

    They are measured on the test input; without one they are an error.
    """
    missing = ranges.check(graph)
    if not missing:
        return ranges
    words = f"{counted(len(missing), 'op', 'has', 'have')} no row: {', '.join(missing[:3])}"
    if inputs is None:
        raise QuantizationError(
            words,
            where=where,
            fix="Write the table with run_calibration.py, or give --test_input to measure their ranges on it",
        )
    warn(f"{where}: {words}; the range is that on the test input")
    values = {**inputs, **FloatEngine(graph, fetch=missing).run(inputs)}
    measured = {}
    for name in missing:
        low, high = min(0.0, float(values[name].min())), max(0.0, float(values[name].max()))
        measured[name] = Entry(name, max(-low, high), low, high)
    return CalibrationTable({**ranges.entries, **measured})


def weight_scales_for(graph: Graph, table: VendorTable, where: str) -> dict[str, Any]:
    """The scales of weights that a table of quantization-aware training states, by the layers of this network."""
    names = names_of(graph)
    scales = {}
    for name, stated in table.weights.items():
        own = names.npuc_name(name)
        if any(stated.zero_points):
            raise QuantizationError(
                f"the weights of '{name}' have zero points, and weights are symmetric here",
                where=where,
                fix="Train with symmetric weights, as prepare_by_platform does by itself",
            )
        if graph.find(own) is None:
            warn(f"{where}: the layer '{name}', whose weights have a row, is not in this network")
        else:
            scales[own] = np.asarray(stated.scales)
    return scales


def int8_config(target: Target, *, asymmetric: bool = False) -> QuantizationConfig:
    """INT8 as TPU-MLIR means it: with zero points, or symmetric with unsigned integers for tensors that are never negative.

    A machine without the latter has signed integers for all.
    """
    options, types = _rounding_of(target)
    if asymmetric:
        return QuantizationConfig(scheme="int8", options=options, types=types)
    unsigned = replace(SCHEMES["int8-symmetric"], activation="ui8", unsigned_from_zero=True)
    if misfit(fitted(unsigned, target), target) is None:
        options |= {"activation": "ui8", "unsigned_from_zero": True}
    return QuantizationConfig(scheme="int8-symmetric", options=options, types=types)


def _rounding_of(target: Target) -> tuple[dict[str, Any], dict[str, Any]]:
    """How TPU-MLIR's integers are rounded, as far as a machine rounds so: options of all layers, and those of single types.

    Sums of products have one rounding of half up, by the integers of a factor in float32 and a shift of at most 30. Sums of two
    tensors round each operand, averages have multipliers of 7 bits, and the weights of a product of matrices one scale. A machine
    that has another rounding keeps its own.
    """
    if not _rounds_alike(target):
        return {}, {}
    options = {"requant": "single_rounding", "multiplier_bits": 24, "max_shift": 30, "short_multipliers": True,
               "rounded_operands": True, "exact_scales": True}  # fmt: skip
    return options, {"avg_pool": {"multiplier_bits": 7}, "matmul": {"per_channel": False}}


def _rounds_alike(target: Target) -> bool:
    how = target.arithmetic
    return Kind.SINGLE_ROUNDING in how.requantization.kinds and how.requantization.multiplier_bits >= 24


def scales_of_maxima(graph: Graph, target: Target) -> dict[str, Any]:
    """The scales of the 8-bit weights of convolutions as TPU-MLIR has them: in float32, and never below 1e-5."""
    if not _rounds_alike(target) or "per_channel" not in target.arithmetic.weights.granularity:
        return {}
    scales = {}
    for op in graph.ops:
        weight = graph.constant(op.operands[1]) if isinstance(op, top.Conv) else None
        if weight is not None:
            most = np.abs(weight.astype(np.float32)).reshape(len(weight), -1).max(axis=1)
            scales[result_names(op)[0]] = np.maximum(most / np.float32(127), np.float32(1e-5))
    return scales


SCHEME_OF: dict[str, Any] = {
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    **{
        f"W{bits}{name.upper()}": {"activation": name, "weight": f"i{bits}", "per_channel": True}
        for bits in (8, 4)
        for name in ("f16", "bf16")
    },
}
"""The scheme of a mode that computes in floats; of W8F16 and its like, the weights are rounded to 8 or 4 bits first."""


def layers_of(graph: Graph, modes: Mapping[str, str], where: str) -> dict[str, Any]:
    """The scheme of each layer that a quantization table names."""
    names = names_of(graph)
    known = {*graph.tensor_names(), *(port.name for port in graph.inputs)}
    layers = {}
    for name, mode in modes.items():
        own = names.npuc_name(name)
        if own not in known:
            warn(f"{where}: '{name}' is not in this network")
        elif mode in SCHEME_OF:
            layers[own] = SCHEME_OF[mode]
        elif mode != "INT8":
            raise QuantizationError(f"the mode {mode} of '{name}' is not supported", where=where)
    return layers
