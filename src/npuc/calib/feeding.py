"""From items to batches: items are read and checked, bad ones are skipped, and the rest are grouped into batches.

A sample that cannot be read or does not fit an input is skipped with a warning, or is an error if `strict`. The last
batch is padded with copies of its last sample; `Batch.keep` is the number of real samples. Samples without the states of a
streaming network are the chunks of one sequence: the float network carries the states from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from npuc.arrays import Array
from npuc.calib.items import SKIPPABLE, Item, Sample
from npuc.calib.samples import Batch, batch_size
from npuc.calib.sources import Source
from npuc.engine import FloatEngine
from npuc.errors import (
    CalibrationDataError,
    FileMissingError,
    NpucError,
    ResourceLimitError,
    UnsupportedTypeError,
)
from npuc.ir import Graph, shape_of
from npuc.ir.states import data_inputs, initial_states
from npuc.words import counted

_SKIPPABLE = (*SKIPPABLE, FileMissingError, ResourceLimitError, UnsupportedTypeError)
_NAMED = 20


@dataclass
class Feeder:
    """Reads the items of a source, and counts how many were used and skipped."""

    graph: Graph
    source: Source
    strict: bool = False
    warn: Callable[[str], None] = lambda text: None
    step: Callable[[], None] = lambda: None
    """Called after every item."""
    used: int = 0
    skipped: int = 0
    gray: int = 0
    colour: int = 0
    _examples: dict[bool, str] = field(default_factory=dict)
    _noted: int = 0

    def samples(self) -> Iterator[tuple[Item, Sample]]:
        """The good samples in order."""
        first: NpucError | None = None
        for item in self.source.items:
            try:
                sample = self._read(item)
                self._check_colour(item, sample)
            except _SKIPPABLE as error:
                if self.strict:
                    raise
                first = first or error
                self.skipped += 1
                if self.skipped <= _NAMED:
                    self.warn(f"passed over: {_named(error, item)}")
                elif self.skipped == _NAMED + 1:
                    self.warn("more samples are passed over; they are not named any more")
                self.step()
                continue
            self._notes()
            self.used += 1
            yield item, sample
            self.step()
        if self.used == 0:
            raise self._nothing(first)
        if self.gray and self.colour:
            self.warn(
                f"{self.source.what} mixes {self.gray} gray and {self.colour} coloured images: all were converted "
                "to what the network takes"
            )

    def batches(self) -> Iterator[Batch]:
        """The good samples as the batches that the network runs."""
        samples = self.samples()
        first = next(samples, None)
        if first is None:
            return
        if any(name not in first[1].inputs for name in self.graph.states):
            yield from self._chunks(sample for _, sample in chain([first], samples))
        else:
            yield from self._batches(chain([first], samples))

    def _chunks(self, samples: Iterable[Sample]) -> Iterator[Batch]:
        """The chunks of a sequence, each with the states that the one before it leaves; rows that fill no chunk are left out."""
        states = initial_states(self.graph)
        shapes = {port.name: shape_of(port.value) for port in data_inputs(self.graph)}
        engine = FloatEngine(self.graph, threads=1)
        waiting: dict[str, list[Array]] = {name: [] for name in shapes}
        for sample in samples:
            for name, array in sample.inputs.items():
                if name in shapes:
                    waiting[name].append(array)
            while all(sum(map(len, waiting[name])) >= (shape or (1,))[0] for name, shape in shapes.items()):
                rows = {name: _cut(waiting[name], (shape or (1,))[0]) for name, shape in shapes.items()}
                inputs = states | {name: array.reshape(shapes[name]) for name, array in rows.items()}
                outputs = engine.run(inputs)
                states = {name: outputs[output] for name, output in self.graph.states.items()}
                yield Batch(inputs)

    def _batches(self, samples: Iterable[tuple[Item, Sample]]) -> Iterator[Batch]:
        size = batch_size(self.graph)
        shapes = {port.name: shape_of(port.value) for port in self.graph.inputs}
        if size is None:
            for _, sample in samples:
                yield from _runs(sample.inputs, shapes)
            return
        waiting: dict[str, list[Array]] = {name: [] for name in shapes}
        for _, sample in samples:
            rows = {len(array) for array in sample.inputs.values()}
            if len(rows) > 1:
                # One row of an input serves all rows of the others.
                most = max(rows)
                inputs = {
                    n: np.repeat(a, most, axis=0) if len(a) == 1 else a for n, a in sample.inputs.items()
                }
            else:
                inputs = dict(sample.inputs)
            for name, array in inputs.items():
                waiting[name].append(array)
            while sum(map(len, next(iter(waiting.values()), []))) >= size:
                yield Batch({name: _cut(parts, size) for name, parts in waiting.items()})
        left = sum(map(len, next(iter(waiting.values()), [])))
        if left:
            yield Batch(
                {name: _filled(np.concatenate(parts), size) for name, parts in waiting.items()}, keep=left
            )

    def _read(self, item: Item) -> Sample:
        sample = item.read()
        missing = [port.name for port in data_inputs(self.graph) if port.name not in sample.inputs]
        if missing:
            raise CalibrationDataError(f"has nothing for input '{missing[0]}'", where=item.label)
        _check_rows(self.graph, item, sample)
        for name, array in sample.inputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array.sum(dtype=np.float64)):
                bad = array.size - int(np.isfinite(array).sum())
                if bad:
                    are = "is" if bad == 1 else "are"
                    raise CalibrationDataError(
                        f"input '{name}' has {counted(bad, 'value')} that {are} NaN or infinite",
                        where=item.label,
                    )
        return sample

    def _check_colour(self, item: Item, sample: Sample) -> None:
        if sample.gray is None:
            return
        self.gray += sample.gray
        self.colour += not sample.gray
        first = not self._examples.get(sample.gray)
        self._examples.setdefault(sample.gray, item.label)
        if first and len(self._examples) == 2 and self.strict:
            gray, colour = self._examples[True], self._examples[False]
            raise CalibrationDataError(
                f"gray and coloured images are mixed: '{gray}' is gray and '{colour}' is not",
                where=self.source.what,
                fix="Use images of one kind, or leave out --strict to have them converted",
            )

    def _notes(self) -> None:
        for note in self.source.reader.notes[self._noted :]:
            self.warn(note)
        self._noted = len(self.source.reader.notes)

    def _nothing(self, first: NpucError | None) -> CalibrationDataError:
        if first is None:
            return CalibrationDataError("there is no sample", where=self.source.what)
        return CalibrationDataError(
            f"{_none_of(self.skipped)} be used{'; the first' * (self.skipped > 1)}: {_words(first)}",
            where=self.source.what,
            fix=first.fix,
        )


def _none_of(count: int) -> str:
    return f"none of the {count} samples can" if count > 1 else "the only sample cannot"


def _check_rows(graph: Graph, item: Item, sample: Sample) -> None:
    """Refuse a sample whose inputs have different numbers of rows, other than 1.

    Without a batch axis that all inputs share, each input must hold a whole number of runs.
    """
    shapes = {port.name: shape_of(port.value) for port in graph.inputs}
    if batch_size(graph) is not None:
        counts = {name: len(array) for name, array in sample.inputs.items()}
    else:
        counts = {}
        for name, array in sample.inputs.items():
            size = int(np.prod(shapes[name], dtype=np.int64))
            if not size or array.size % size:
                raise CalibrationDataError(
                    f"input '{name}' takes shape {list(shapes[name])}, and was given {list(array.shape)}",
                    where=item.label,
                )
            counts[name] = array.size // size
    if len({count for count in counts.values() if count != 1}) > 1:
        words = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise CalibrationDataError(f"the inputs have different numbers of samples: {words}", where=item.label)


def _named(error: NpucError, item: Item) -> str:
    words = _words(error)
    return words if item.label in words else f"{item.label}: {words}"


def _words(error: NpucError) -> str:
    return f"{error.where}: {error.message}" if error.where else error.message


def _runs(inputs: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Batch]:
    """One batch per sample, for inputs that share no batch axis."""
    runs = {name: array.reshape(-1, *shapes[name]) for name, array in inputs.items()}
    for index in range(max(map(len, runs.values()), default=0)):
        yield Batch({name: array[index if len(array) > 1 else 0] for name, array in runs.items()})


def _cut(parts: list[Array], size: int) -> Array:
    """Remove and return the first `size` rows of a list of arrays."""
    if len(parts[0]) == size:
        return parts.pop(0)
    joined = np.concatenate(parts) if len(parts) > 1 else parts[0]
    parts[:] = [joined[size:]] if len(joined) > size else []
    return joined[:size]


def _filled(array: Array, size: int) -> Array:
    return np.concatenate([array, np.repeat(array[-1:], size - len(array), axis=0)])
