"""Validation of integer networks: their outputs against those of the float network, per slice and per sample.

The quantizer makes all its choices by the same figures (`npuc.compare`): the mean over the slices, and the worst slice of the
worst sample, so that neither a lost slice nor a single bad image is hidden by strong signals elsewhere. The outputs of the
float network are cached up to a memory limit, and computed again beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compare import NOTHING, OutputFigures, Slice, find_slices, slice_squares
from npuc.engine import IntegerEngine, float_engine
from npuc.engine.rounded import relative_noise
from npuc.errors import UsageError
from npuc.ir import Graph
from npuc.registries import renamed


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"OutputJudge": OutputValidator})


Sample = Mapping[str, Array]
Program = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""What goes on from the outputs of a network, by name, and returns what they are judged by."""

_MOST_HELD = 256 << 20
"""Bytes of float outputs that are cached."""
SLACK = 0.1
"""Differences below this many decibels do not count."""


class OutputValidator:
    """Compares integer networks with one float network on a set of samples."""

    def __init__(self, graph: Graph, samples: Sequence[Sample], threads: int = 1) -> None:
        self.samples, self.threads = list(samples), threads
        self._engine = float_engine(graph, threads=threads)
        self._names = [port.name for port in graph.outputs]
        self._held: dict[int, dict[str, Array]] = {}
        self._room = _MOST_HELD
        self.slices: dict[str, tuple[Slice, ...]] = find_slices(graph, self._references())
        self.parts: tuple[Slice, ...] = tuple(part for parts in self.slices.values() for part in parts)

    def _references(self) -> Iterator[dict[str, Array]]:
        return (self.reference(index) for index in range(len(self.samples)))

    def reference(self, index: int) -> dict[str, Array]:
        """The outputs of the float network for a sample."""
        if index in self._held:
            return self._held[index]
        values = self._engine.run(self.samples[index])
        outputs = {name: np.asarray(values[name]) for name in self._names}
        size = sum(array.nbytes for array in outputs.values())
        if size <= self._room:
            self._room -= size
            self._held[index] = outputs
        return outputs

    def figures(self, quantized: Graph, indices: Iterable[int] | None = None) -> OutputFigures:
        """The figures of an integer network on all samples, or on those of the given indices."""
        engine = IntegerEngine(quantized, threads=self.threads)
        rows = [
            slice_squares(engine.run(self.samples[index]), self.reference(index), self.parts)
            for index in (range(len(self.samples)) if indices is None else indices)
        ]
        return OutputFigures(self.parts, np.array(rows, np.float64).reshape(len(rows), len(self.parts), 2))

    def figures_of(self, networks: Sequence[Graph], samples: Iterable[Sample]) -> list[OutputFigures]:
        """The figures of several networks on other samples, which are read one at a time."""
        engines = [IntegerEngine(network, threads=self.threads) for network in networks]
        rows: list[list[Array]] = [[] for _ in engines]
        for sample in samples:
            exact = self._engine.run(sample)
            for row, engine in zip(rows, engines, strict=True):
                row.append(slice_squares(engine.run(sample), exact, self.parts))
        shape = (len(self.parts), 2)
        return [
            OutputFigures(self.parts, np.array(row, np.float64).reshape(len(row), *shape)) for row in rows
        ]


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the indices below `count`, evenly spread.

    >>> spread(9, 3), spread(2, 3)
    ([0, 4, 8], [0, 1])
    """
    return sorted({int(index) for index in np.linspace(0, count - 1, min(count, most))}) if count else []


def is_no_worse(figures: OutputFigures, baseline: OutputFigures) -> bool:
    """Whether neither the mean nor the worst slice of the worst sample is below the baseline by more than `SLACK`."""
    return not shortfalls(figures, baseline)


def shortfalls(figures: OutputFigures, baseline: OutputFigures) -> dict[str, tuple[float, float]]:
    """The figures in which a network is below a baseline by more than `SLACK`, in words: its decibels and the baseline's.

    A worst slice whose error is larger than its signal (below 0 dB) is lost in both: a network that computes nothing but zeros
    has 0 dB everywhere, and is no better.
    """
    if not baseline.has_signal:
        return {}
    worst, baseline_worst = figures.worst, baseline.worst
    assert worst is not None and baseline_worst is not None
    losses = {}
    if figures.mean < baseline.mean - SLACK:
        losses["the mean of the slices"] = (figures.mean, baseline.mean)
    if max(worst.sqnr, NOTHING) < max(baseline_worst.sqnr, NOTHING) - SLACK:
        losses["the worst slice of the worst sample"] = (worst.sqnr, baseline_worst.sqnr)
    return losses


Noise = Callable[[Sequence[Sequence[Array]], Sequence[Sequence[Array]]], float]


def slice_noise(graph: Graph, slices: Mapping[str, Sequence[Slice]]) -> Noise:
    """A noise measure for `npuc.engine.rounded`: the mean over the slices of error over signal.

    A slice that is lost outweighs all others in this mean.
    """
    places = [slices.get(port.name, ()) for port in graph.outputs]

    def cut(rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        return [
            [part.of(array) for array, parts in zip(row, places, strict=True) for part in parts]
            for row in rows
        ]

    return lambda outputs, exact: relative_noise(cut(outputs), cut(exact))


def noise_behind(graph: Graph, program: Program) -> Noise:
    """A noise measure like `slice_noise` of what a program of the user's makes of the outputs, such as boxes of raw heads."""
    names = [port.name for port in graph.outputs]
    held: list[tuple[object, list[list[Array]]]] = []

    def through(rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        results = (program(dict(zip(names, row, strict=True))) for row in rows)
        return [[np.asarray(array, np.float64) for array in arrays.values()] for arrays in results]

    def measured(outputs: Sequence[Sequence[Array]], exact: Sequence[Sequence[Array]]) -> float:
        if not held or held[0][0] is not exact:
            held[:] = [(exact, through(exact))]
        ours, reference = through(outputs), held[0][1]
        check_same_shapes(ours, reference)
        return relative_noise(ours, reference)

    return measured


def check_same_shapes(ours: Sequence[Sequence[Array]], reference: Sequence[Sequence[Array]]) -> None:
    """Refuse results of a user's program that cannot be compared."""
    for arrays, expected in zip(ours, reference, strict=True):
        if [array.shape for array in arrays] != [array.shape for array in expected]:
            raise UsageError(
                "what the user's function makes of the quantized network's outputs has other shapes than that of the float one's",
                fix="Return arrays whose shapes do not depend on values: boxes and scores before they are selected",
            )
