"""Calibration in one call: data in, a table of ranges out.

    >>> table = calibrate(graph, "images/", method="percentile")            # doctest: +SKIP
    >>> table["conv1"].threshold                                             # doctest: +SKIP

The statistics can be collected once and turned into tables by several methods: `collect`, then `table_from`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npuc.calib.collection import collect, observed_tensors
from npuc.calib.ranges import MethodSpec, find_range, observer_options, parse_method
from npuc.calib.sources import Data, DataOptions, Source
from npuc.calib.statistics import ObserverOptions, Statistics
from npuc.calib.table import CalibrationTable, Entry
from npuc.errors import UnknownTensorError, UsageError
from npuc.export.onnx.model import find_tensors
from npuc.ir import Graph, value_name
from npuc.words import counted

DEFAULT_METHOD = "mse"
_DIGITS = 9
"""Significant digits of a range: enough to tell any two float32 apart."""


def calibrate(
    graph: Graph,
    data: Data | Source | None = None,
    method: str = DEFAULT_METHOD,
    *,
    statistics: Statistics | None = None,
    overrides: Mapping[str, str] | None = None,
    bits: int = 8,
    data_options: DataOptions | None = None,
    options: ObserverOptions | None = None,
    threads: int | None = None,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
    step: Callable[[], None] | None = None,
) -> CalibrationTable:
    """The range of every tensor of a network, from data or from statistics that were collected before.

    `overrides` sets another method for single tensors or layers. `bits` is the integer width assumed by the methods that
    trade clipping error against rounding error.
    """
    if (data is None) == (statistics is None):
        raise UsageError("calibration takes either data or statistics")
    parse_method(method)
    by_tensor = resolve_overrides(graph, overrides or {})
    if statistics is None:
        statistics = collect(
            graph,
            data,
            data_options,
            options=observer_options([method, *by_tensor.values()], options),
            threads=threads,
            strict=strict,
            warn=warn,
            step=step,
        )
    check_statistics(graph, statistics)
    return table_from(statistics, method, overrides=by_tensor, bits=bits, warn=warn)


def table_from(
    statistics: Statistics,
    method: str | MethodSpec = DEFAULT_METHOD,
    *,
    overrides: Mapping[str, str | MethodSpec] | None = None,
    bits: int = 8,
    warn: Callable[[str], None] | None = None,
) -> CalibrationTable:
    """The table of ranges of collected statistics; `overrides` are by tensor name."""
    usual = parse_method(method)
    special = {name: parse_method(text) for name, text in (overrides or {}).items()}
    entries: list[Entry] = []
    notes = list(statistics.notes)
    for name, tensor in statistics.items():
        spec = special.get(name, usual)
        if tensor.count == 0:
            text = f"tensor '{name}' never had a finite value, so it has no range"
            notes.append(text)
            if warn is not None:
                warn(text)
            continue
        symmetric = find_range(tensor, spec, bits, symmetric=True)
        affine = find_range(tensor, spec, bits, symmetric=False)
        threshold, low, high = map(_rounded, (symmetric.threshold, affine.min, affine.max))
        entries.append(Entry(name, threshold, low, high, str(spec)))
    comments = [
        f"method: {usual}",
        f"bits: {bits}",
        f"samples: {statistics.samples}",
    ]
    return CalibrationTable({entry.name: entry for entry in entries}, tuple(comments), tuple(notes))


def resolve_overrides(graph: Graph, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Range methods given by tensor or layer name, keyed by tensor name; an unknown name is an error."""
    values = find_tensors(graph, list(overrides)) if overrides else {}
    names = {}
    for given_name, value in values.items():
        name = next((port.name for port in graph.inputs if port.value is value), value_name(value))
        names[name] = parse_method(overrides[given_name])
    return names


def check_statistics(graph: Graph, statistics: Statistics) -> None:
    """Refuse statistics that lack a tensor of the network."""
    missing = [name for name in observed_tensors(graph) if name not in statistics]
    if missing:
        raise UnknownTensorError(
            f"the statistics have nothing about {counted(len(missing), 'tensor')} of the network, such as '{missing[0]}'",
            fix="Were they collected on another network, or before it was simplified? Collect them again",
        )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
