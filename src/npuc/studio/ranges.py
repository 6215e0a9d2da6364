"""Calibration ranges over the values that they are for: each tensor's histogram, its range, and what other methods would say.

A calibration job leaves two files: `NAME.cali`, the table that `npuc quantize --table` takes, and `NAME.stats.npz`, the
statistics that it was made of. A range that is changed on the page becomes a line of a new table, with the method `edited`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npuc.calib.ranges import find_range, parse_method
from npuc.calib.ranges.error import mean_square_error
from npuc.calib.statistics import Statistics, TensorStatistics
from npuc.calib.table import CalibrationTable, Entry
from npuc.errors import NpucError, UsageError

STATISTICS_SUFFIX = ".stats.npz"
EDITED = "edited"
_METHODS = ("max", "percentile", "kl", "mse", "aciq")
_BINS = 120
_MOST_CHANGES = 10_000


def range_rows(statistics: Statistics, table: CalibrationTable) -> list[dict[str, Any]]:
    """Every tensor of a table that there are statistics of: its values, its range, and what the range does to them."""
    rows = []
    for name, entry in table.items():
        tensor = statistics.get(name)
        if tensor is None or not tensor.count:
            continue
        rows.append(
            {
                "name": name,
                "low": tensor.min,
                "high": tensor.max,
                "min": entry.min,
                "max": entry.max,
                "method": entry.method,
                "clipped": clipped_share(tensor, entry.min, entry.max),
                "sqnr": _decibels(tensor, entry.min, entry.max),
            }
        )
    return rows


def range_details(tensor: TensorStatistics, bits: int = 8) -> dict[str, Any]:
    """The histogram of a tensor's values, and the ranges that methods choose from it."""
    low, high, counts = rebinned(tensor)
    choices = {}
    for method in _METHODS:
        try:
            chosen = find_range(tensor, parse_method(method), bits, symmetric=False)
        except NpucError:  # it needs something that was not recorded
            continue
        choices[method] = [float(f"{chosen.min:.9g}"), float(f"{chosen.max:.9g}")]
    return {
        "name": tensor.name,
        "count": tensor.count,
        "observed": [tensor.min, tensor.max],
        "low": low,
        "high": high,
        "counts": counts,
        "zeros": int(tensor.histogram[tensor.histogram.size // 2]),
        "square": tensor.square / max(1, tensor.count),
        "methods": choices,
    }


def rebinned(tensor: TensorStatistics) -> tuple[float, float, list[int]]:
    """The histogram of the bins that have something in them, joined to about a hundred."""
    used = np.flatnonzero(tensor.histogram)
    first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, tensor.histogram.size)
    step = -(-(last - first) // _BINS)
    part = tensor.histogram[first:last]
    padded = np.concatenate([part, np.zeros(-len(part) % step, part.dtype)]).reshape(-1, step)
    begin = first * tensor.width - tensor.width * tensor.histogram.size / 2
    return begin, begin + padded.size * tensor.width, [int(count) for count in padded.sum(axis=1)]


def clipped_share(tensor: TensorStatistics, low: float, high: float) -> float:
    """The share of values outside of a range, as far as the histogram tells: in bins that are outside as a whole."""
    edges = (np.arange(tensor.histogram.size + 1) - tensor.histogram.size / 2) * tensor.width
    outside = (edges[1:] < low) | (edges[:-1] > high)
    return float(tensor.histogram[outside].sum() / max(1, tensor.histogram.sum()))


def edited(table: CalibrationTable, changes: Any) -> CalibrationTable:
    """A table with other ranges for some of its tensors: name to [min, max]."""
    if not isinstance(changes, Mapping) or not changes or len(changes) > _MOST_CHANGES:
        raise UsageError("there is no range that was changed")
    entries = dict(table.entries)
    for name, pair in changes.items():
        if name not in entries:
            raise UsageError(f"the table has no tensor '{str(name)[:100]}'")
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(v) in (int, float) for v in pair):
            raise UsageError(f"the range of '{name[:100]}' is not two numbers")
        try:
            low, high = min(0.0, float(pair[0])), max(0.0, float(pair[1]))
            entries[name] = Entry(name, max(-low, high), low, high, EDITED)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"the range of '{name[:100]}': {error}") from error
    return replace(table, entries=entries)


def _decibels(tensor: TensorStatistics, low: float, high: float, bits: int = 8) -> float | None:
    """The signal of a tensor over the error that rounding to a range makes by itself; None for one that is always 0."""
    error = mean_square_error(tensor, low, high, bits, False) if high > low else tensor.square / tensor.count
    signal = tensor.square / tensor.count
    return round(float(10 * np.log10(signal / error)), 2) if signal > 0 and error > 0 else None
