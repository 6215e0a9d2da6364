"""The judge of integer networks: their outputs against those of the float network, by slice and in every sample.

All choices of the quantizer are made by the same figures (`npuc.compare`): the mean of the slices, and beside it the worst slice
of the worst sample, so that neither a lost slice nor a wrecked picture can hide behind much signal elsewhere. What the float
network gives is held where it is small, and computed again where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from npuc.arrays import Array
from npuc.compare import OutputFigures, Slice, find_slices, slice_squares
from npuc.engine import FloatEngine, IntegerEngine
from npuc.engine.rounded import relative_noise
from npuc.ir import Graph

Sample = Mapping[str, Array]

_MOST_HELD = 256 << 20
"""Bytes of float outputs that are held."""
SLACK = 0.1
"""Decibels: less is no difference."""


class OutputJudge:
    """One float network, its samples, and what it makes of them."""

    def __init__(self, graph: Graph, samples: Sequence[Sample], threads: int = 1) -> None:
        self.samples, self.threads = list(samples), threads
        self._engine = FloatEngine(graph, threads=threads)
        self._names = [port.name for port in graph.outputs]
        self._held: dict[int, dict[str, Array]] = {}
        self._room = _MOST_HELD
        self.slices: dict[str, tuple[Slice, ...]] = find_slices(graph, self._references())
        self.chosen: tuple[Slice, ...] = tuple(one for parts in self.slices.values() for one in parts)

    def _references(self) -> Iterator[dict[str, Array]]:
        return (self.reference(index) for index in range(len(self.samples)))

    def reference(self, index: int) -> dict[str, Array]:
        """What the float network makes of a sample."""
        if index in self._held:
            return self._held[index]
        values = self._engine.run(self.samples[index])
        found = {name: np.asarray(values[name]) for name in self._names}
        size = sum(array.nbytes for array in found.values())
        if size <= self._room:
            self._room -= size
            self._held[index] = found
        return found

    def figures(self, made: Graph, chosen: Iterable[int] | None = None) -> OutputFigures:
        """Of an integer network, on all samples or on some."""
        engine = IntegerEngine(made, threads=self.threads)
        rows = [
            slice_squares(engine.run(self.samples[index]), self.reference(index), self.chosen)
            for index in (range(len(self.samples)) if chosen is None else chosen)
        ]
        return OutputFigures(self.chosen, np.array(rows, np.float64).reshape(len(rows), len(self.chosen), 2))

    def figures_of(self, networks: Sequence[Graph], samples: Iterable[Sample]) -> list[OutputFigures]:
        """Of several networks on other samples, one sample at a time."""
        engines = [IntegerEngine(made, threads=self.threads) for made in networks]
        rows: list[list[Array]] = [[] for _ in engines]
        for sample in samples:
            exact = self._engine.run(sample)
            for row, engine in zip(rows, engines, strict=True):
                row.append(slice_squares(engine.run(sample), exact, self.chosen))
        shape = (len(self.chosen), 2)
        return [
            OutputFigures(self.chosen, np.array(row, np.float64).reshape(len(row), *shape)) for row in rows
        ]


def spread(count: int, most: int) -> list[int]:
    """At most so many of some places, evenly spread.

    >>> spread(9, 3), spread(2, 3)
    ([0, 4, 8], [0, 1])
    """
    return sorted({int(index) for index in np.linspace(0, count - 1, min(count, most))}) if count else []


def is_no_worse(one: OutputFigures, other: OutputFigures) -> bool:
    """Whether neither the mean nor the worst slice of the worst sample is behind by more than `SLACK` decibels."""
    if not other.has_signal:
        return True
    mine, theirs = one.worst, other.worst
    assert mine is not None and theirs is not None
    return one.mean >= other.mean - SLACK and mine.sqnr >= theirs.sqnr - SLACK


Noise = Callable[[Sequence[Sequence[Array]], Sequence[Sequence[Array]]], float]


def slice_noise(graph: Graph, slices: Mapping[str, Sequence[Slice]]) -> Noise:
    """Error over signal by slice, their mean, for `npuc.engine.rounded`: a slice that is lost outweighs all others."""
    places = [slices.get(port.name, ()) for port in graph.outputs]

    def cut(rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        return [
            [one.of(array) for array, parts in zip(row, places, strict=True) for one in parts] for row in rows
        ]

    return lambda found, exact: relative_noise(cut(found), cut(exact))
