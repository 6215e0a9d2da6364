"""`NAME_statistic_info.npy`: the statistics of a calibration as the optimizer keeps them, layer by layer and tensor by tensor."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.statistics import ObserverOptions, Statistics, TensorStatistics
from npuc.compat.compass.pickled import load_npy
from npuc.errors import FileFormatError
from npuc.files import write_atomically

_HISTOGRAM = ("running_histc", "running_hisc")


def save_statistic_info(statistics: Statistics, path: Path, bins: int, momentum: float) -> None:
    """Write statistics in the vendor's form: a pickled dictionary of plain numbers and arrays."""
    content = {name: {name: _entry(tensor, bins, momentum)} for name, tensor in statistics.items()}
    with write_atomically(path) as out:
        pickle.dump(content, out, protocol=4)


def _entry(tensor: TensorStatistics, bins: int, momentum: float) -> dict[str, Any]:
    low, high = _running(tensor, momentum)
    edges = np.linspace(tensor.min, tensor.max if tensor.max > tensor.min else tensor.min + 1.0, bins + 1)
    cumulative = np.concatenate([[0.0], np.cumsum(tensor.histogram, dtype=np.float64)])
    counts = np.diff(np.interp(edges, tensor.edges(), cumulative))
    return {
        "extrema_min": tensor.min,
        "extrema_max": tensor.max,
        "running_min": low,
        "running_max": high,
        "running_mean": tensor.mean,
        "running_std": tensor.deviation,
        "running_histc": counts.astype(np.float32),
    }


def _running(tensor: TensorStatistics, momentum: float) -> tuple[float, float]:
    for known, ends in tensor.running.items():
        if abs(known - momentum) < 1e-9:
            return ends
    return tensor.mean_min, tensor.mean_max


def load_statistic_info(path: Path | str) -> Statistics:
    """The statistics of a file of either tool."""
    content = load_npy(path)
    if not isinstance(content, Mapping):
        raise FileFormatError("holds no dictionary of layers", where=str(path))
    tensors: dict[str, TensorStatistics] = {}
    options = ObserverOptions()
    for layer, entries in content.items():
        if not isinstance(entries, Mapping):
            raise FileFormatError(f"layer '{layer}' is no dictionary of tensors", where=str(path))
        for name, entry in entries.items():
            try:
                tensors[str(name)] = _tensor(str(name), entry, options)
            except (KeyError, TypeError, ValueError) as error:
                raise FileFormatError(
                    f"tensor '{name}' has no statistics ({error})", where=str(path)
                ) from error
    return Statistics(tensors, options, 1)


def _number(entry: Mapping[str, Any], key: str, default: float) -> float:
    value = entry.get(key)
    number = default if value is None else float(np.asarray(value, np.float64).reshape(-1)[0])
    if not math.isfinite(number):
        raise ValueError(f"{key} is {number}")
    return number


def _tensor(name: str, entry: Mapping[str, Any], options: ObserverOptions) -> TensorStatistics:
    low = _number(entry, "extrema_min", _number(entry, "running_min", math.nan))
    high = _number(entry, "extrema_max", _number(entry, "running_max", math.nan))
    ends = _number(entry, "running_min", low), _number(entry, "running_max", high)
    low, high = min(low, ends[0]), max(high, ends[1])
    mean, deviation = _number(entry, "running_mean", 0.0), _number(entry, "running_std", 0.0)
    exponent = max(-120, math.frexp(max(abs(low), abs(high), 1e-30))[1])
    histogram = _histogram(entry, low, high, exponent, options.bins)
    count = int(histogram.sum())
    return TensorStatistics(
        name=name,
        count=count,
        nans=0,
        infinite=0,
        batches=1,
        sum=mean * count,
        square=(deviation**2 + mean**2) * count,
        absolute=abs(mean) * count,
        min=low,
        max=high,
        mean_min=ends[0],
        mean_max=ends[1],
        running=dict.fromkeys(options.momenta, ends),
        exponent=exponent,
        histogram=histogram,
        tail=np.zeros(options.bins // 2, np.uint64),
        extremes=np.array([ends]),
    )


def _histogram(entry: Mapping[str, Any], low: float, high: float, exponent: int, bins: int) -> Array:
    """Counts over [-2^e, 2^e); without any, the values are taken to be spread evenly."""
    stored = next((entry[key] for key in _HISTOGRAM if entry.get(key) is not None), None)
    counts = np.ones(64) if stored is None else np.asarray(stored, np.float64).reshape(-1)
    if counts.size < 2 or not np.isfinite(counts).all() or counts.min() < 0 or counts.sum() <= 0:
        counts = np.ones(64)
    own = np.linspace(low, max(high, low + 1e-30), counts.size + 1)
    edges = np.linspace(-math.ldexp(1.0, exponent), math.ldexp(1.0, exponent), bins + 1)
    # A bin goes where its middle is: the zeros of a relu, which are all in one bin, stay in one.
    middles = (own[1:] + own[:-1]) / 2
    placed, _ = np.histogram(middles, edges, weights=counts * (1 << 20) / counts.sum())
    rounded: Array = np.round(placed).astype(np.uint64)
    return rounded
