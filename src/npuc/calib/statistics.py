"""The statistics of a calibration run, in constant memory per tensor.

`TensorStatistics` holds the extremes, sums, batch averages, a histogram of the values and one of the largest magnitudes of
each batch. Every range method works on these, so trying another method needs no second pass over the data. `Statistics`
holds all tensors of a run; `save_statistics` writes them to an `.npz` file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError
from npuc.format_versions import STATISTICS
from npuc.tensors import TensorFile, write_npz

DEFAULT_BOUND = 1e30
"""Magnitudes above this, and infinities, are left out of all statistics: they are overflows, not data."""

DEFAULT_TAIL = 0.001
"""The share of a batch that `max-percentile` looks at, unless it is told otherwise."""

_FIELDS = ("sum", "square", "absolute", "min", "max", "mean_min", "mean_max")
_COUNTS = ("count", "nans", "infinite", "batches", "exponent")


@dataclass(frozen=True)
class ObserverOptions:
    """What is recorded during a run. Range methods are chosen afterwards, from what was recorded."""

    bins: int = 8192
    """Bins of the histogram over [-2^e, 2^e), a power of two."""
    bound: float = DEFAULT_BOUND
    """Values with a larger magnitude are left out."""
    tail_ratio: float = DEFAULT_TAIL
    """The share of a batch, by magnitude from the top, that `max-percentile` looks at."""
    momenta: tuple[float, ...] = (0.9, 0.99)
    """Momenta of the running averages of the extremes of batches."""
    kept_batches: int = 1024
    """The most batches whose extremes are kept one by one; of more batches, those of every second, fourth and so on."""

    def __post_init__(self) -> None:
        if not (64 <= self.bins <= 1 << 20 and self.bins & (self.bins - 1) == 0):
            raise ValueError(f"bins: {self.bins} is not a power of two from 64 to {1 << 20}")
        if not 0 < self.bound <= 2.0**100:
            raise ValueError(f"bound: {self.bound} is not above 0 and at most 2^100")
        if not 0 <= self.tail_ratio <= 1:
            raise ValueError(f"tail_ratio: {self.tail_ratio} is not from 0 to 1")
        if not all(0 <= momentum < 1 for momentum in self.momenta):
            raise ValueError("momenta: each has to be at least 0 and below 1")
        if not 2 <= self.kept_batches <= 1 << 20:
            raise ValueError(f"kept_batches: {self.kept_batches} is not from 2 to {1 << 20}")


@dataclass(frozen=True, eq=False)
class TensorStatistics:
    """The statistics of the values of one tensor."""

    name: str
    count: int
    """Values counted; those left out are in `nans` and `infinite`."""
    nans: int
    infinite: int
    batches: int
    sum: float
    square: float
    absolute: float
    min: float
    max: float
    mean_min: float
    """The mean of the smallest values of the batches."""
    mean_max: float
    running: Mapping[float, tuple[float, float]]
    """Momentum to the running average of the extremes of batches."""
    exponent: int
    """The histogram covers [-2^exponent, 2^exponent)."""
    histogram: Array
    tail: Array
    """Histogram of the largest magnitudes of each batch, over [0, 2^exponent)."""
    channel_axis: int | None = None
    channel_min: Array | None = None
    channel_max: Array | None = None
    extremes: Array = field(default_factory=lambda: np.zeros((0, 2)))
    """(min, max) of batches, in their order: of all, or of every 2^k-th (`ObserverOptions.kept_batches`)."""
    tail_ratio: float = DEFAULT_TAIL
    """The share of each batch that `tail` counts."""

    @property
    def width(self) -> float:
        """The width of a bin."""
        return math.ldexp(1.0, self.exponent + 1) / self.histogram.size

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(abs(self.min), abs(self.max))

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return self.sum / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of all values."""
        if not self.count:
            return 0.0
        return math.sqrt(max(0.0, self.square / self.count - self.mean**2))

    @property
    def one_sided(self) -> bool:
        """True if no value is negative, as after a relu."""
        return self.min >= 0.0

    def centers(self) -> Array:
        """The middle of each bin, within the extremes."""
        half = self.histogram.size // 2
        middles = (np.arange(-half, half) + 0.5) * self.width
        clipped: Array = np.clip(middles, self.min, self.max)
        return clipped

    def edges(self) -> Array:
        """The borders of the bins, one more than there are bins."""
        half = self.histogram.size // 2
        borders: Array = np.arange(-half, half + 1) * self.width
        return borders

    def magnitudes(self) -> Array:
        """The histogram of |x|: bins of the same width over [0, 2^exponent)."""
        half = self.histogram.size // 2
        folded: Array = self.histogram[half:] + self.histogram[:half][::-1]
        return folded


@dataclass(frozen=True, eq=False)
class Statistics(Mapping[str, TensorStatistics]):
    """The statistics of all tensors of a run, by name, in the order of the program."""

    tensors: Mapping[str, TensorStatistics]
    options: ObserverOptions = ObserverOptions()
    samples: int = 0
    skipped: int = 0
    notes: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> TensorStatistics:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def regrouped(statistics: Statistics, size: int) -> Statistics:
    """The statistics as if `size` batches in a row had been one: averages are then over the extremes of those.

    The extremes of all batches have to be there (`ObserverOptions.kept_batches`).
    """
    if size == 1:
        return statistics
    tensors = {}
    for name, tensor in statistics.items():
        if len(tensor.extremes) != tensor.batches:
            raise ValueError(f"of {tensor.batches} batches, the extremes of {len(tensor.extremes)} were kept")
        groups = [tensor.extremes[start : start + size] for start in range(0, tensor.batches, size)]
        ends = np.array([(group[:, 0].min(), group[:, 1].max()) for group in groups]).reshape(-1, 2)
        running = {}
        for momentum in tensor.running:
            average = ends[0] if len(ends) else np.zeros(2)
            for pair in ends[1:]:
                average = momentum * average + (1 - momentum) * pair
            running[momentum] = float(average[0]), float(average[1])
        low, high = ends.mean(axis=0) if len(ends) else (0.0, 0.0)
        tensors[name] = replace(
            tensor,
            extremes=ends,
            batches=len(ends),
            running=running,
            mean_min=float(low),
            mean_max=float(high),
        )
    return replace(statistics, tensors=tensors)


def save_statistics(statistics: Statistics, path: Path | str) -> None:
    """Write statistics to an `.npz` file; only the used part of each histogram is stored."""
    meta = {
        "npuc": "statistics",
        "version": STATISTICS.version,
        "options": asdict(statistics.options),
        "samples": statistics.samples,
        "skipped": statistics.skipped,
        "notes": list(statistics.notes),
        "names": list(statistics),
    }
    tensors = list(statistics.values())
    arrays: dict[str, Array] = {
        "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8),
        "sums": np.array([[getattr(t, key) for key in _FIELDS] for t in tensors], np.float64).reshape(
            -1, len(_FIELDS)
        ),
        "counts": np.array([[getattr(t, key) for key in _COUNTS] for t in tensors], np.int64).reshape(
            -1, len(_COUNTS)
        ),
        "running": np.array(
            [[t.running[m] for m in statistics.options.momenta] for t in tensors], np.float64
        ).reshape(len(tensors), len(statistics.options.momenta), 2),
    }
    for index, tensor in enumerate(tensors):
        used = np.flatnonzero(tensor.histogram)
        first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
        arrays[f"histogram.{index}"] = tensor.histogram[first:last]
        arrays[f"first.{index}"] = np.array([first], np.int64)
        arrays[f"tail.{index}"] = np.trim_zeros(tensor.tail, "b")
        arrays[f"extremes.{index}"] = tensor.extremes
        if tensor.channel_axis is not None:
            arrays[f"channels.{index}"] = np.stack(
                [np.asarray(tensor.channel_min), np.asarray(tensor.channel_max)]
            )
            arrays[f"axis.{index}"] = np.array([tensor.channel_axis], np.int64)
    write_npz(path, arrays)


def load_statistics(path: Path | str) -> Statistics:
    """Read what `save_statistics` wrote."""
    file = TensorFile(path)
    try:
        meta = json.loads(file["meta"].tobytes())
        if meta["npuc"] != "statistics":
            raise ValueError(f"but {meta['npuc']!r}")
        STATISTICS.check(meta["version"], str(path))
        options = ObserverOptions(**{**meta["options"], "momenta": tuple(meta["options"]["momenta"])})
        sums, counts, running = file["sums"], file["counts"], file["running"]
        tensors = {}
        for index, name in enumerate(meta["names"]):
            values: dict[str, Any] = dict(zip(_FIELDS, map(float, sums[index]), strict=True))
            values |= dict(zip(_COUNTS, map(int, counts[index]), strict=True))
            averages = {
                m: (float(low), float(high))
                for m, (low, high) in zip(options.momenta, running[index], strict=True)
            }
            channels, extremes = file.get(f"channels.{index}"), file.get(f"extremes.{index}")
            tensors[name] = TensorStatistics(
                name=name,
                running=averages,
                histogram=_padded(file[f"histogram.{index}"], int(file[f"first.{index}"][0]), options.bins),
                tail=_padded(file[f"tail.{index}"], 0, options.bins // 2),
                channel_axis=int(file[f"axis.{index}"][0]) if channels is not None else None,
                channel_min=channels[0] if channels is not None else None,
                channel_max=channels[1] if channels is not None else None,
                extremes=_pairs(extremes),
                tail_ratio=options.tail_ratio,
                **values,
            )
        notes = tuple(map(str, meta["notes"]))
        return Statistics(tensors, options, int(meta["samples"]), int(meta["skipped"]), notes)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise FileFormatError(
            f"does not hold the statistics of a calibration ({error})",
            where=str(path),
            fix="Write it with 'npuc calibrate --save-stats'",
        ) from error


def _pairs(stored: Array | None) -> Array:
    """The extremes of batches; files of earlier versions have none."""
    pairs = np.zeros((0, 2)) if stored is None else np.asarray(stored, np.float64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.isfinite(pairs).all():
        raise ValueError("the extremes of batches are no finite pairs")
    return pairs


def _padded(used: Array, first: int, size: int) -> Array:
    if used.ndim != 1 or used.dtype != np.uint64 or not 0 <= first <= size - used.size:
        raise ValueError("a histogram has the wrong size")
    histogram = np.zeros(size, np.uint64)
    histogram[first : first + used.size] = used
    return histogram
