"""Samples in one .npz file: inputs with labels, or inputs with the outputs that are wanted.

Labels are an integer vector called `labels`, `label`, `y` or `targets`; all other tensors are inputs, stacked along their
first axis. Without labels, tensors called `output:NAME`, or those of a second file (`--annotations`), are the reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from npuc.errors import EvaluationDataError
from npuc.evaluate.data import DataSet, Place, class_names, dataset
from npuc.evaluate.sample import Entry, Loaded
from npuc.tensors import TensorFile

Array = np.ndarray[Any, Any]

_LABELS = ("labels", "label", "y", "targets")
_OUTPUT = "output:"


def read_row(entry: Entry) -> Loaded:
    """One sample of a file: its inputs, and the reference outputs if there are any."""
    assert entry.path is not None and entry.row is not None
    file = TensorFile(entry.path)
    inputs = {
        name: file.row(name, entry.row)[0]
        for name in file
        if not name.startswith(_OUTPUT) and name not in _LABELS
    }
    wanted = {name[len(_OUTPUT) :]: file.row(name, entry.row)[0] for name in file if name.startswith(_OUTPUT)}
    if entry.extra is not None:
        other = TensorFile(entry.extra)
        wanted = {name: other.row(name, entry.row)[0] for name in other}
    # The only tensor is for the only input, whatever its name.
    tensors = next(iter(inputs.values())) if len(inputs) == 1 else inputs
    return Loaded(tensors=tensors, truth=wanted or None)


def _is_file(place: Place) -> bool:
    return place.path.is_file() and place.path.suffix.lower() == ".npz"


@dataset("arrays", matches=_is_file)
def arrays(place: Place) -> DataSet:
    """An .npz file with inputs and `labels`, or with inputs and the outputs that are wanted."""
    file = TensorFile(place.path)
    label = next((name for name in _LABELS if name in file), None)
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
    values = np.asarray(file[label])
    if values.ndim == 2 and values.shape[1] > 1:
        values = values.argmax(axis=1)
    values = values.reshape(-1)
    if values.dtype.kind not in "biu" or len(values) != count:
        raise EvaluationDataError(
            f"'{label}' is {values.dtype} of {values.size} values, not one whole number a sample",
            where=str(place.path),
        )
    truths = [int(value) + place.label_offset for value in values]
    return DataSet("classification", _entries(place.path, truths, None), read_row, names)


def _entries(path: Path, truths: list[Any], extra: Path | None) -> list[Entry]:
    return [Entry(f"{path.name}[{row}]", truth, path, row, extra) for row, truth in enumerate(truths)]
