"""Items: the samples of a data set, read lazily.

An `Item` has a label for messages and a function that reads it. An image file is one item; an `.npy`, `.npz` or raw file is
one item for each sample stacked in it, read row by row, so a large file need not fit in memory. Errors in a file are
raised when its item is read, so that the sample can be named and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.layouts import layout_of, shape_in
from npuc.calib.raw import RawFile, RawFormat, TextFile, is_raw, is_text
from npuc.calib.samples import batch_size, fit_array, read_image
from npuc.errors import CalibrationDataError, FileFormatError, InputDataError, NpucError, PreprocessError
from npuc.images.loading import is_gray, is_image
from npuc.ir import Graph, Port, dtype_of, shape_of
from npuc.tensors import TensorFile
from npuc.words import counted

TENSOR_SUFFIXES = (".npy", ".npz", ".tensor")
LABELS = ("labels", "label", "y", "targets", "y_train", "y_test")
"""What the labels in an `.npz` file are called."""


@dataclass(frozen=True)
class Sample:
    """The tensors of one sample: for each input an array whose first axis is its batch axis."""

    inputs: Mapping[str, Array]
    gray: bool | None = None
    """True for an image without colours; None if it was no image."""


@dataclass(frozen=True)
class Item:
    """A sample that is yet to be read."""

    label: str
    read: Callable[[], Sample]


@dataclass
class Reader:
    """Reads files as samples for the inputs of one network."""

    graph: Graph
    prepare: Callable[[Path], Any] | None = None
    """A recipe or a user's function that replaces the preprocessing attached to the inputs."""
    takes_any: bool = False
    """True if `prepare` takes files of every kind, not only images."""
    raw: RawFormat | None = None
    """The format of raw files; None if none was stated."""
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ports = {port.name: port for port in self.graph.inputs}

    def reads(self, path: Path) -> bool:
        """True if a file looks like a sample."""
        tensors = path.suffix.lower() in TENSOR_SUFFIXES or (self.raw is not None and is_raw(path))
        return is_image(path) or tensors or self.takes_any

    def items(self, path: Path, label: str, name: str | None = None) -> list[Item]:
        """The samples in a file, for the input `name`, or for any input that they fit if there is no name."""
        if is_image(path) or self.takes_any:
            return [Item(label, partial(self._image, path, name))]
        try:
            file = self._open(path, name)
            keys = self._keys(file, name)
            counts = {key: self._rows(file, key, port) for key, port in keys.items()}
        except NpucError as error:
            return [Item(label, partial(_fail, error))]
        many = {count for count in counts.values() if count is not None}
        if len(many) != 1 or None in counts.values():
            return [Item(label, partial(self._whole, path, name, keys))]
        count = many.pop()
        if count == 1:
            return [Item(label, partial(self._whole, path, name, keys))]
        return [Item(f"{label}[{row}]", partial(self._row, path, name, keys, row)) for row in range(count)]

    def _open(self, path: Path, name: str | None) -> TensorFile | RawFile | TextFile:
        if not is_raw(path) and not is_text(path):
            return TensorFile(path)
        port = self._port(path, name)
        shape = shape_of(port.value)
        if is_text(path):
            return TextFile(path, shape)
        if self.raw is not None:
            return RawFile(path, self.raw, shape)
        own = RawFormat(np.dtype(dtype_of(port.type).numpy))
        file = RawFile(path, own, shape)
        note = (
            f"raw files are read as {own.dtype} of shape {list(shape)}, as input '{port.name}' is "
            "(--preprocess raw:TYPE:SHAPE says otherwise)"
        )
        if note not in self.notes:
            self.notes.append(note)
        return file

    def _keys(self, file: TensorFile | RawFile | TextFile, name: str | None) -> dict[str, Port]:
        """Which tensor of a file is for which input."""
        ports = {name: self.ports[name]} if name is not None else self.ports
        by_key = {key: ports[key] for key in file if key in ports}
        data = [key for key in file if key.lower() not in LABELS]
        needed = self._needed(ports)
        if not by_key and len(data) == 1 and len(needed) == 1:
            return {data[0]: next(iter(needed.values()))}
        missing = next((key for key in needed if key not in by_key), None)
        if missing is not None:
            held = ", ".join(f"'{key}'" for key in list(file)[:8]) if "" not in file else "one tensor"
            raise InputDataError(
                f"has no tensor for input '{missing}'; it holds {held}",
                where=str(file.path),
                fix="Name the tensors of an .npz file after the inputs",
            )
        return by_key

    def _needed(self, ports: Mapping[str, Port]) -> dict[str, Port]:
        """The inputs that data is for: states may be left out."""
        return {name: port for name, port in ports.items() if name not in self.graph.states}

    def _rows(self, file: TensorFile | RawFile | TextFile, key: str, port: Port) -> int | None:
        """How many samples are stacked in a tensor; None if it cannot be split into samples."""
        have = file.header(key).shape
        layout = layout_of(have, shape_of(port.value))
        if layout is None:
            return None
        want = shape_in(layout, shape_of(port.value))
        if have == want and want and want[0] > 1 and batch_size(self.graph) is not None:
            return want[0]
        if len(have) == len(want) + 1 and have[1:] == want and have[0]:
            return have[0]
        if want and len(have) == len(want) and have[1:] == want[1:] and have[0] and batch_size(self.graph):
            return have[0]
        return None

    def _whole(self, path: Path, name: str | None, keys: Mapping[str, Port]) -> Sample:
        file = self._open(path, name)
        return Sample({port.name: self._fitted(file[key], port, str(path)) for key, port in keys.items()})

    def _row(self, path: Path, name: str | None, keys: Mapping[str, Port], row: int) -> Sample:
        file = self._open(path, name)
        return Sample(
            {port.name: self._fitted(file.row(key, row), port, str(path)) for key, port in keys.items()}
        )

    def _fitted(self, array: Array, port: Port, where: str) -> Array:
        return fit_array(array, port, where, self.notes)

    def _image(self, path: Path, name: str | None) -> Sample:
        if self.prepare is not None:
            tensors = self.prepare(path)
            gray = is_gray(path) if is_image(path) else None
            return Sample(self.named(tensors, str(path), name), gray)
        port = self._port(path, name)
        return Sample({port.name: read_image(path, port, self.notes)}, is_gray(path))

    def _port(self, path: Path, name: str | None) -> Port:
        if name is not None:
            return self.ports[name]
        needed = self._needed(self.ports)
        if len(needed) != 1:
            raise InputDataError(
                f"is for one input, and the network has {counted(len(needed), 'input')}",
                where=str(path),
                fix="Use .npz files, or a list file with a file for each input on a line",
            )
        return next(iter(needed.values()))

    def named(self, tensors: Any, where: str, name: str | None = None) -> dict[str, Array]:
        """Tensors by input name, from a mapping, a sequence in the order of the inputs, or a single array."""
        ports = {name: self.ports[name]} if name is not None else self.ports
        needed = self._needed(ports)
        if isinstance(tensors, Mapping):
            given = dict(tensors)
        elif isinstance(tensors, list | tuple) and len(tensors) in (len(ports), len(needed)):
            given = dict(zip(ports if len(tensors) == len(ports) else needed, tensors, strict=True))
        elif len(needed) == 1:
            given = {next(iter(needed)): tensors}
        else:
            raise InputDataError(
                f"one tensor was given, and the network has {counted(len(needed), 'input')}",
                where=where,
                fix=f"Give a mapping with {', '.join(needed)}",
            )
        for key in given:
            if key not in self.ports:
                raise InputDataError(
                    f"the network has no input '{key}'",
                    where=where,
                    fix=f"The inputs are {', '.join(self.ports)}",
                )
        missing = [key for key in needed if key not in given]
        if missing:
            raise InputDataError(f"input '{missing[0]}' is missing", where=where)
        return {
            key: self._fitted(_array(value, where), self.ports[key], where) for key, value in given.items()
        }


def merged(label: str, parts: Sequence[Item]) -> Item:
    """Several items, each for different inputs, as one item."""

    def read() -> Sample:
        samples = [part.read() for part in parts]
        inputs = {name: array for sample in samples for name, array in sample.inputs.items()}
        gray = next((sample.gray for sample in samples if sample.gray is not None), None)
        return Sample(inputs, gray)

    return Item(label, read)


def _array(value: Any, where: str) -> Array:
    # Tensors of other libraries know how to become arrays.
    array = np.asarray(value)
    if array.dtype.kind not in "biufV":
        raise InputDataError(f"{type(value).__name__} is not a tensor of numbers", where=where)
    return array


def _fail(error: NpucError) -> Sample:
    raise error


SKIPPABLE = (CalibrationDataError, FileFormatError, InputDataError, PreprocessError)
"""Errors that concern one sample only, so that reading can continue with the next. `feeding` adds missing files."""
