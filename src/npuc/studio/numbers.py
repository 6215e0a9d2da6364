"""Two forms of a network on one sample: the error of every layer, and one tensor in both.

The figures are those of `npuc diff`. Between a float and an integer network each layer also has its isolated error: that of the
layer alone, on exact inputs, which tells where an error comes from rather than where it is felt.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.samples import Batch
from npuc.compare.layers import LayerError, compare_layers
from npuc.debug.difference import RunPair, compare_runs
from npuc.debug.layers import Layers, LayerTensor
from npuc.debug.opening import Opened
from npuc.errors import FileMissingError, UsageError
from npuc.studio.maps import channel_count, channel_map, ends, histogram, plain, plain_map

_KEPT_BYTES = 256 << 20
"""Tensors of one side that a comparison keeps; the others are computed again when they are looked at."""


@dataclass
class _Side:
    """One of the two, and the tensors of its run."""

    layers: Layers
    inputs: Mapping[str, Array]
    kept: dict[str, Array] = field(default_factory=dict)
    bytes: int = 0
    complete: bool = False

    def tensor(self, name: str) -> Array | None:
        """The reals of a tensor."""
        if name not in self.kept and not self.complete:
            self._run(name)
        return self.kept.get(name)

    def _run(self, name: str) -> None:
        complete = True

        def visit(tensor: LayerTensor) -> bool:
            nonlocal complete
            reals = tensor.reals
            values = np.asarray(tensor.values if reals is None else reals)
            if tensor.name == name or self.bytes + values.nbytes <= _KEPT_BYTES:
                self.bytes += values.nbytes * (tensor.name not in self.kept)
                self.kept[tensor.name] = values
            else:
                complete = False
            return False

        self.layers.trace(self.inputs, visit)
        self.complete = complete


class Comparison:
    """A reference and another form of it, on one sample."""

    def __init__(
        self, reference: Opened, other: Opened, inputs: Mapping[str, Array], threads: int = 1
    ) -> None:
        for opened in (reference, other):
            if opened.graph is None:
                raise UsageError(f"{opened.path.name} is a dump", fix="npuc diff compares with a dump")
        self.reference, self.other, self.inputs, self.threads = reference, other, inputs, threads
        self._running = threading.Lock()
        self._last: tuple[str, dict[str, Any]] = ("", {})
        self.sides = tuple(_Side(opened.layers(threads), inputs) for opened in (reference, other))

    def rows(self) -> list[dict[str, Any]]:
        """Every tensor that both have, in the order in which the second computes them."""
        return [self._row(entry) for entry in self._errors()]

    def _errors(self) -> list[LayerError]:
        reference, other = self.reference, self.other
        if (reference.kind, other.kind) == ("float", "integer"):
            assert reference.graph is not None and other.graph is not None
            batches = [Batch(dict(self.inputs), None)]
            return compare_layers(reference.graph, other.graph, batches, isolated=True, threads=self.threads)
        a, b = (side.layers for side in self.sides)
        return compare_runs([RunPair(self.inputs, a, b)]).layers

    @staticmethod
    def _row(entry: LayerError) -> dict[str, Any]:
        figures = entry.accumulated
        row = {
            "name": entry.name,
            "layer": entry.layer,
            "kind": entry.kind,
            "type": entry.type,
            "cosine": plain(figures.cosine),
            "sqnr": plain(figures.sqnr),
            "max_error": plain(figures.max_error),
            "saturation": plain(entry.saturation),
            "range_use": plain(entry.range_use),
        }
        if entry.isolated is not None:
            row["isolated"] = plain(entry.isolated.sqnr)
        return row

    def _whole(self, name: str, reference: Array | None, ours: Array) -> dict[str, Any]:
        """What all channels of a tensor have in common; that of the last tensor is kept: its channels are looked at in turn."""
        known, record = self._last
        if known != name:
            low, high = ends([array for array in (reference, ours) if array is not None])
            record = {
                "low": low,
                "high": high,
                "histograms": [None if a is None else histogram(a, low, high) for a in (reference, ours)],
            }
            if reference is not None:
                record["channel_errors"] = _channel_errors(reference, ours)
            self._last = name, record
        return record

    def tensor(self, name: str, channel: int = 0) -> dict[str, Any]:
        """One tensor in both: its histograms, and one of its channels as a map with the difference."""
        with self._running:
            values = [side.tensor(name) for side in self.sides]
        ours = values[1]
        if ours is None:
            raise FileMissingError(f"no tensor is called '{name[:100]}'")
        reference = values[0] if values[0] is not None and values[0].shape == ours.shape else None
        whole = self._whole(name, reference, ours)
        maps = [None if array is None else channel_map(array, channel) for array in (reference, ours)]
        return {
            "name": name,
            "shape": list(ours.shape),
            "channels": channel_count(ours),
            "channel": min(max(channel, 0), channel_count(ours) - 1),
            **whole,
            "maps": [None if a is None else plain_map(a) for a in maps],
        }


def _channel_errors(reference: Array, ours: Array) -> list[float | str]:
    """The SQNR of each channel in decibels; of one channel, that of the whole tensor."""
    a, b = (np.asarray(array, np.float64) for array in (ours, reference))
    if a.ndim < 4:
        a, b = a.reshape(1, 1, -1, 1), b.reshape(1, 1, -1, 1)
    axes = (0, *range(2, a.ndim))
    signal, noise = (b * b).sum(axes), ((a - b) ** 2).sum(axes)
    with np.errstate(divide="ignore", invalid="ignore"):
        figures = np.where(noise == 0, np.inf, 10 * np.log10(signal / noise))
    return [plain(round(float(figure), 2)) if not np.isnan(figure) else "nan" for figure in figures]
