"""Samples in one .npz or .npy file: inputs with labels, or inputs with the outputs that are wanted.

Labels are an integer vector called `labels`, `label`, `y`, `targets`, `y_test` or `y_train`, or a file of their own
(`--annotations`): an .npy file, or a text file with one a line. All other tensors are inputs, stacked along their first axis.
Without labels, tensors called `output:NAME`, or those of a second .npz file (`--annotations`), are the reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.items import LABELS
from npuc.datasets.data import DataLocation, DataSet, class_names, dataset, read_lines
from npuc.datasets.sample import LoadedSample, SampleEntry
from npuc.errors import EvaluationDataError
from npuc.tensors import TensorFile

_OUTPUT = "output:"


def read_row(entry: SampleEntry) -> LoadedSample:
    """One sample of a file: its inputs, and the reference outputs if there are any."""
    assert entry.path is not None and entry.row is not None
    file = TensorFile(entry.path)
    inputs = {
        name: file.row(name, entry.row)[0]
        for name in file
        if not name.startswith(_OUTPUT) and name not in LABELS
    }
    references = {
        name[len(_OUTPUT) :]: file.row(name, entry.row)[0] for name in file if name.startswith(_OUTPUT)
    }
    if entry.extra is not None:
        other = TensorFile(entry.extra)
        references = {name: other.row(name, entry.row)[0] for name in other}
    # The only tensor is for the only input, whatever its name.
    tensors = next(iter(inputs.values())) if len(inputs) == 1 else inputs
    return LoadedSample(tensors=tensors, truth=references or None)


def _is_file(place: DataLocation) -> bool:
    return place.path.is_file() and place.path.suffix.lower() in (".npz", ".npy")


@dataset("arrays", matches=_is_file)
def arrays(place: DataLocation) -> DataSet:
    """An .npz file with inputs and `labels` or the outputs that are wanted, or an .npy file with --annotations LABELS.npy."""
    file = TensorFile(place.path)
    beside = None if place.annotations is None else _labels_beside(place.annotations)
    if beside is not None:
        return _with_labels(place, file, beside)
    label = next((name for name in LABELS if name in file), None)
    inputs = [name for name in file if name != label and not name.startswith(_OUTPUT)]
    counts = {name: (file.header(name).shape or (0,))[0] for name in file}
    if place.annotations is not None:
        other = TensorFile(place.annotations)
        counts |= {
            f"{place.annotations.name}: {name}": (other.header(name).shape or (0,))[0] for name in other
        }
    if not inputs or len(set(counts.values())) != 1 or not next(iter(counts.values())):
        words = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise EvaluationDataError(
            f"its tensors are not inputs of as many samples as labels or outputs: {words}",
            where=str(place.path),
            fix="Stack the samples along the first axis of every tensor",
        )
    count = next(iter(counts.values()))
    names = class_names(place.classes)
    if label is None:
        if place.annotations is None and not any(name.startswith(_OUTPUT) for name in file):
            # The first model is the reference.
            return DataSet("reference", _entries(place.path, [None] * count, None), read_row, names)
        return DataSet("reference", _entries(place.path, [None] * count, place.annotations), read_row, names)
    truths = _classes(np.asarray(file[label]), count, place, f"'{label}'", place.path)
    return DataSet("classification", _entries(place.path, truths, None), read_row, names)


def _labels_beside(path: Path) -> Array | None:
    """The labels of a file of their own; None if it is one of reference outputs."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return TensorFile(path)[""]
    if suffix not in (".txt", ".csv", ".lst", ".labels"):
        return None
    words = [line.strip() for line in read_lines(path, "a list of labels") if line.strip()]
    try:
        return np.array([int(word) for word in words], np.int64)
    except (ValueError, OverflowError) as error:
        raise EvaluationDataError(
            f"is not one class a line ({str(error)[:80]})",
            where=str(path),
            fix="Write a whole number on each line",
        ) from error


def _with_labels(place: DataLocation, file: TensorFile, labels: Array) -> DataSet:
    assert place.annotations is not None
    counts = {(file.header(name).shape or (0,))[0] for name in file if name not in LABELS}
    if len(counts) != 1:
        raise EvaluationDataError(
            "its tensors have different numbers of samples",
            where=str(place.path),
            fix="Stack the samples along the first axis of every tensor",
        )
    truths = _classes(labels, counts.pop(), place, "the tensor of labels", place.annotations)
    return DataSet("classification", _entries(place.path, truths, None), read_row, class_names(place.classes))


def _classes(values: Array, count: int, place: DataLocation, what: str, where: Path) -> list[int]:
    """One class a sample; of scores or one-hot rows the largest."""
    if values.ndim == 2 and values.shape[1] > 1:
        values = values.argmax(axis=1)
    values = values.reshape(-1)
    if values.dtype.kind == "f" and np.array_equal(values, np.rint(values)):
        values = values.astype(np.int64)
    if values.dtype.kind not in "biu" or len(values) != count:
        raise EvaluationDataError(
            f"{what} is {values.dtype} of {values.size} values, not one whole number a sample ({count})",
            where=str(where),
        )
    return [int(value) + place.label_offset for value in values]


def _entries(path: Path, truths: list[Any], extra: Path | None) -> list[SampleEntry]:
    return [SampleEntry(f"{path.name}[{row}]", truth, path, row, extra) for row, truth in enumerate(truths)]
