"""Labelled samples as arrays: what training loops draw batches from.

data = load_data(graph, "train.npz")          # any data set of classes that `npuc eval` reads
train, held = data.split(3000)                # the last 3,000 choose, the others train
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.activity import activity
from npuc.arrays import Array
from npuc.datasets.data import DataLocation, find_dataset
from npuc.datasets.formats.arrays import read_row
from npuc.errors import EvaluationDataError, UsageError
from npuc.evaluate.subject import Feeding, ModelFile, Subject, settle_preprocessing
from npuc.ir import Graph
from npuc.words import counted

_MOST_BYTES = 32 << 30
"""Samples are held in memory."""


@dataclass(frozen=True)
class TrainingData:
    """The inputs of a network, samples along the first axis, and the class of each sample if it is known."""

    inputs: tuple[Array, ...]
    """In the order of the network's inputs."""
    labels: Array | None = None
    border: tuple[float, ...] = ()
    """The value of a black pixel in each channel of the first input: what random crops see beyond an image. Empty: 0."""

    def __post_init__(self) -> None:
        counts = {len(array) for array in self.inputs} | (
            {len(self.labels)} if self.labels is not None else set()
        )
        if len(counts) != 1:
            raise UsageError(
                f"inputs and labels have different numbers of samples: {', '.join(map(str, sorted(counts)))}",
                fix="Give one label for each sample along the first axis of every input",
            )
        if not counts.pop():
            raise UsageError("there is no sample to train on")
        if self.labels is not None and self.labels.ndim != 1:
            raise UsageError(
                f"labels have the shape {list(self.labels.shape)}, and the class of a sample is one number",
                fix="Give an array of one axis; argmax(1) makes classes of one-hot rows",
            )

    @staticmethod
    def of(data: Any) -> TrainingData:
        """From what users have: this class, an array, or a pair (inputs, labels) of arrays or tensors."""
        if isinstance(data, TrainingData):
            return data
        inputs, labels = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
        arrays = tuple(map(_array, inputs)) if isinstance(inputs, tuple | list) else (_array(inputs),)
        if not arrays:
            raise UsageError("there is no input to train on")
        return TrainingData(arrays, None if labels is None else _array(labels).astype(np.int64))

    def __len__(self) -> int:
        return len(self.inputs[0])

    def __getitem__(self, index: slice | Array) -> TrainingData:
        """Some of the samples."""
        labels = None if self.labels is None else self.labels[index]
        return TrainingData(tuple(array[index] for array in self.inputs), labels, self.border)

    def require_classes(self, classes: int) -> None:
        """Refuse labels that are no class of a network with so many scores."""
        wrong = (
            np.array([]) if self.labels is None else self.labels[(self.labels < 0) | (self.labels >= classes)]
        )
        if len(wrong):
            raise UsageError(
                f"the label {wrong[0]} is none of the {classes} classes that the network has scores for; so are {len(wrong)} of "
                f"{counted(len(self), 'label')}",
                fix=f"Labels are from 0 to {classes - 1}; --label-offset adds a number to all of them",
            )

    def split(self, held: int) -> tuple[TrainingData, TrainingData]:
        """All but the last `held` samples, and those."""
        if not 0 < held < len(self):
            raise UsageError(
                f"{held} of {counted(len(self), 'sample')} cannot be held back for validation",
                fix=f"Hold back between 1 and {len(self) - 1} samples"
                if len(self) > 1
                else "Give at least two samples: one to train on, one to measure",
            )
        return self[: len(self) - held], self[len(self) - held :]


def _array(values: Any) -> Array:
    """An array or a tensor as an array."""
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)


def load_data(
    graph: Graph,
    location: DataLocation | Path | str,
    *,
    dataset: str | None = None,
    preprocess: Mapping[str, Any] | None = None,
    max_count: int | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> TrainingData:
    """Read a data set of classes, or one without labels, and prepare its samples for the inputs of a network.

    `preprocess` are fields of `Preprocess` that replace what the network states about its images; `note` gets what users should
    know of how images become inputs.
    """
    place = location if isinstance(location, DataLocation) else DataLocation(Path(location))
    opened = find_dataset(place, dataset).open(place)
    if opened.task not in ("classification", "reference"):
        raise EvaluationDataError(
            f"is a data set of the task '{opened.task}', and training needs samples with classes, or without labels",
            where=str(place.path),
            fix="Train with a loop of your own (docs/training.md), or name another data set",
        )
    entries = list(opened.entries)[:max_count]
    subject = Subject(ModelFile(place.path), "float", graph)
    notes = settle_preprocessing([subject], preprocess or {})
    if opened.read is not read_row:
        for text in notes:
            note(text)
    feeding = Feeding(subject)
    rows: dict[str, list[Array]] = {name: [] for name in feeding.ports}
    size = 0
    with activity("reading samples", len(entries)) as step:
        for entry in entries:
            for name, array in feeding.inputs(opened.read(entry), entry.name).items():
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    raise EvaluationDataError(
                        f"the sample '{entry.name}' has elements for the input '{name}' that are not finite numbers",
                        where=str(place.path),
                        fix="Leave the sample out, or mend what wrote it",
                    )
                rows[name].append(array)
                size += array.nbytes
            if size > _MOST_BYTES:
                raise UsageError(
                    "the samples need more than 32 GB of memory", fix="Take fewer of them (--max-count)"
                )
            step()
    labelled = bool(entries) and all(entry.truth is not None for entry in entries)
    labels = np.array([entry.truth for entry in entries], np.int64) if labelled else None
    inputs = tuple(
        np.concatenate(rows[port.name]) if rows[port.name] else np.zeros(0) for port in graph.inputs
    )
    return TrainingData(inputs, labels, _border(subject))


def _border(subject: Subject) -> tuple[float, ...]:
    """What black pixels become in each channel; empty where the input takes no image."""
    for port in subject.image_ports().values():
        stated = subject.stated(port)
        if stated is not None and stated.has_arithmetic and not stated.standardize:
            mean, scale = stated.arithmetic()
            return tuple(-m * s for m, s in zip(mean, scale, strict=True))
    return ()
