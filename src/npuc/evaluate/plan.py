"""What a worker has to know: a plan of plain values, which travels to processes and machines, and the work it describes.

Everything that a result depends on is in the plan and in the samples of a chunk. Chunks are cut from the list of samples at
fixed places, so that a batch never depends on who runs it: one process, many, or a cluster give the same numbers.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from math import lcm
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from npuc import __version__, plugins
from npuc.arrays import Array, ceil_div
from npuc.calib.samples import batch_size
from npuc.calib.sources import prepared_by
from npuc.datasets.geometry import ImageView
from npuc.datasets.registry import Origin, load_origins
from npuc.datasets.sample import LoadedSample, Observation, SampleEntry
from npuc.errors import (
    EvaluationDataError,
    FileFormatError,
    FileMissingError,
    InputDataError,
    NpucError,
    PreprocessError,
    ResourceLimitError,
    UsageError,
)
from npuc.evaluate.decoding import Decoder
from npuc.evaluate.decoding import inside as detections_inside
from npuc.evaluate.subject import (
    Feeding,
    ModelFile,
    Subject,
    SubjectEngine,
    open_subject,
    settle_preprocessing,
)
from npuc.metrics.measuring import parse_metric
from npuc.runtime.postprocess import Detections

CHUNK = 8
"""Samples that are handed out at a time, at least."""
_UNREADABLE = (
    EvaluationDataError,
    FileFormatError,
    FileMissingError,
    InputDataError,
    PreprocessError,
    ResourceLimitError,
)


@dataclass(frozen=True)
class Plan:
    """An evaluation, but for its samples."""

    models: tuple[ModelFile, ...]
    metrics: tuple[str, ...]
    read: tuple[str, str]
    """Module and name of the function that reads a sample."""
    classes: tuple[str, ...] = ()
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Preprocess` that the options state."""
    prepare: str | None = None
    """A recipe or a function that prepares files."""
    postprocess: str | None = None
    skip_unreadable: bool = False
    stream: bool = False
    """The samples are one sequence: a model with states goes on where the sample before ended."""
    plugins: tuple[str, ...] = ()
    """Files and modules of plugins."""
    origins: tuple[Origin, ...] = ()
    """Modules that register what the plan names."""
    key: str = ""
    version: str = __version__

    fix: ClassVar[str] = (
        "Is there enough memory for so many workers? --workers 1 shows what happens in this process. (A program that starts "
        "workers needs `if __name__ == '__main__':`)"
    )

    def open(self) -> Callable[[Sequence[SampleEntry]], list[str]]:
        """What runs samples in this process."""
        return SampleWorker(self).run

    def describe(self, entries: Sequence[SampleEntry]) -> str:
        """A chunk in words."""
        return f"samples from '{entries[0].name}' to '{entries[-1].name}'"


class SampleWorker:
    """A plan with its models open; threads may share it."""

    def __init__(self, plan: Plan) -> None:
        if plan.version != __version__:
            raise UsageError(
                f"a worker has npuc {__version__}, and the evaluation was started by {plan.version}",
                fix="Install the same version everywhere",
            )
        plugins.load(*plan.plugins, installed=False)
        load_origins(plan.origins)
        self.plan = plan
        self.metrics = [parse_metric(text).metric for text in plan.metrics]
        self.decoder = Decoder.parse(plan.postprocess) if plan.postprocess else None
        from npuc.datasets.formats.arrays import read_row

        module, name = plan.read
        self.read = getattr(importlib.import_module(module), name)
        self.subjects = [open_subject(file) for file in plan.models]
        if plan.prepare is not None:
            how = prepared_by(plan.prepare)
            for subject in self.subjects:
                subject.prepare, subject.takes_any, subject.raw = how
        notes = settle_preprocessing(self.subjects, plan.preprocess)
        # What becomes of images is no news where the samples are tensors.
        self.notes = [] if self.read is read_row else notes
        self._feeding = [Feeding(subject) for subject in self.subjects]
        self._engines: list[SubjectEngine] = []
        self._lock = Lock()

    @property
    def chunk(self) -> int:
        """How many samples are done at a time: whole batches of every model."""
        sizes = [1 if subject.graph.states else batch_size(subject.graph) or 1 for subject in self.subjects]
        common = reduce(lcm, sizes, 1)
        return ceil_div(CHUNK, common) * common

    def run(self, entries: Sequence[SampleEntry]) -> list[str]:
        """For each sample a line of JSON: `results` by model and metric, or why it was `skipped`."""
        with self._lock:
            if not self._engines:
                self._engines = [subject.engine() for subject in self.subjects]
        lines: dict[int, str] = {}
        ready: list[tuple[int, SampleEntry, LoadedSample, list[dict[str, Array]]]] = []
        for index, entry in enumerate(entries):
            try:
                loaded = self.read(entry)
                ready.append((index, entry, loaded, self._inputs(loaded, entry)))
            except _UNREADABLE as error:
                if not self.plan.skip_unreadable:
                    raise _named(error, entry) from error
                lines[index] = json.dumps({"skipped": _named(error, entry).paragraph()})
        if ready:
            outputs = [
                engine.run_samples([inputs[k] for *_, inputs in ready], self.plan.stream)
                for k, engine in enumerate(self._engines)
            ]
            for at, (index, entry, loaded, inputs) in enumerate(ready):
                own = [by_sample[at] for by_sample in outputs]
                lines[index] = json.dumps({"results": self._observe(entry, loaded, inputs, own)})
        return [lines[index] for index in range(len(entries))]

    def remarks(self, entry: SampleEntry) -> list[str]:
        """What is to be said of how samples become inputs, from one of them; what is wrong with it shows in its turn."""
        try:
            self._inputs(self.read(entry), entry)
        except _UNREADABLE:
            return []
        return list(dict.fromkeys(note for feeding in self._feeding for note in feeding.reader.notes))

    def _inputs(self, loaded: LoadedSample, entry: SampleEntry) -> list[dict[str, Array]]:
        """The inputs of every model; those that agree are made once."""
        by_key: dict[Any, dict[str, Array]] = {}
        for feeding in self._feeding:
            if feeding.key not in by_key:
                by_key[feeding.key] = feeding.inputs(loaded, entry.name)
        return [by_key[feeding.key] for feeding in self._feeding]

    def _observe(
        self,
        entry: SampleEntry,
        loaded: LoadedSample,
        inputs: list[dict[str, Array]],
        outputs: list[dict[str, Array]],
    ) -> list[list[Any]]:
        given = loaded.truth if isinstance(loaded.truth, Mapping) else None
        truth = entry.truth if loaded.truth is None or given is not None else loaded.truth
        records = []
        for feeding, own, result in zip(self._feeding, inputs, outputs, strict=True):
            view = feeding.view(loaded)
            observation = Observation(
                entry.name,
                result,
                truth,
                own,
                given if given is not None else outputs[0],
                self.plan.classes,
                view,
                None if view is None else partial(self._detect, result, view, entry.name),
            )
            records.append([metric.observe(observation) for metric in self.metrics])
        return records

    def _detect(self, outputs: Mapping[str, Array], view: ImageView, where: str) -> Detections:
        if self.decoder is not None:
            return self.decoder.detect(outputs, view, where)
        detections = detections_inside(outputs, view)
        if detections is None:
            raise EvaluationDataError(
                "the model gives no detections, and --postprocess does not say how to make them of its outputs "
                f"({', '.join(outputs)})",
                fix="Give --postprocess NAME, such as yolox or yolov5",
            )
        return detections


def _named(error: NpucError, entry: SampleEntry) -> EvaluationDataError:
    """An error of one sample, with the sample in it."""
    words = f"{error.where}: {error.message}" if error.where else error.message
    fix = error.fix or "--skip-unreadable passes over such samples"
    if entry.name in words:
        return EvaluationDataError(error.message, where=error.where, fix=fix)
    return EvaluationDataError(words, where=entry.name, fix=fix)


def chunks_of(entries: Sequence[SampleEntry], size: int) -> list[tuple[int, list[SampleEntry]]]:
    """The samples in chunks, each with the position of its first.

    >>> [first for first, _ in chunks_of([Entry("a"), Entry("b"), Entry("c")], 2)]
    [0, 2]
    """
    return [(first, list(entries[first : first + size])) for first in range(0, len(entries), size)]


def absolute(entries: Sequence[SampleEntry]) -> list[SampleEntry]:
    """The samples with whole paths, for processes that run elsewhere."""
    return [
        SampleEntry(
            entry.name,
            entry.truth,
            entry.path and Path(entry.path).absolute(),
            entry.row,
            entry.extra and Path(entry.extra).absolute(),
        )
        for entry in entries
    ]


__all__ = ["CHUNK", "Plan", "SampleWorker", "Subject", "absolute", "chunks_of"]
