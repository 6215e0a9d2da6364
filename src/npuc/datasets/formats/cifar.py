"""CIFAR-10 and CIFAR-100 as their authors publish them in binary: a label or two and 3072 pixels an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from npuc.datasets.data import DataLocation, DataSet, class_names, dataset
from npuc.datasets.sample import LoadedSample, SampleEntry
from npuc.errors import EvaluationDataError, FileFormatError

_PIXELS = 3 * 32 * 32
_TESTS = {"test_batch.bin": 1, "test.bin": 2}
_NAMES = ("batches.meta.txt", "fine_label_names.txt", "classes.txt")


def _file_of(path: Path) -> Path | None:
    if path.is_file() and path.suffix == ".bin":
        return path
    return next((path / name for name in _TESTS if (path / name).is_file()), None)


def read_pixels(entry: SampleEntry) -> LoadedSample:
    """One image of a file."""
    assert entry.path is not None and entry.row is not None
    record = _record(entry.path)
    with open(entry.path, "rb") as handle:
        handle.seek((entry.row + 1) * record - _PIXELS)
        data = handle.read(_PIXELS)
    if len(data) != _PIXELS:
        raise FileFormatError("is shorter than when it was listed", where=str(entry.path))
    planes = np.frombuffer(data, np.uint8).reshape(3, 32, 32)
    return LoadedSample(image=Image.fromarray(np.ascontiguousarray(planes.transpose(1, 2, 0))))


def _record(path: Path) -> int:
    """The bytes of a record: CIFAR-100 has two labels."""
    size = path.stat().st_size
    labels = _TESTS.get(path.name) or (2 if path.name == "train.bin" else 1)
    if not size or size % (_PIXELS + labels):
        raise FileFormatError(
            f"is not a whole number of CIFAR records of {_PIXELS + labels} bytes", where=str(path)
        )
    return _PIXELS + labels


@dataset("cifar", matches=lambda place: _file_of(place.path) is not None)
def cifar(place: DataLocation) -> DataSet:
    """The binary files of CIFAR-10 or CIFAR-100: test_batch.bin, test.bin, or a file by its name."""
    path = _file_of(place.path)
    if path is None:
        raise EvaluationDataError(
            f"has none of {', '.join(_TESTS)}",
            where=str(place.path),
            fix="Use the binary version of CIFAR; the one for Python is pickled, and pickles are not opened",
        )
    record = _record(path)
    table = np.fromfile(path, np.uint8).reshape(-1, record)
    labels = table[:, record - _PIXELS - 1]
    beside = next((path.parent / name for name in _NAMES if (path.parent / name).is_file()), None)
    names = class_names(place.classes or beside)
    entries = [
        SampleEntry(f"{path.name}[{row}]", int(label) + place.label_offset, path, row)
        for row, label in enumerate(labels)
    ]
    return DataSet("classification", entries, read_pixels, names)
