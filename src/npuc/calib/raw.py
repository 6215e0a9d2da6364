"""Raw files: the numbers of one or more samples without a header, so that type and shape must be known from elsewhere.

`--preprocess raw:uint8:224,224,3` states them; by default they are the type and shape of the input, if the file size
matches. Only the bytes of the current sample are read.

Text files have the numbers of one sample as words, one a line in the files that other tools write (`.tensor`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError, UsageError
from npuc.files import existing_file, read_short
from npuc.tensors import Header

RAW_SUFFIXES = (".bin", ".raw")
TEXT_SUFFIXES = (".tensor", ".txt")
"""Files with numbers as words; by itself, a `.txt` file is a list of samples."""
RAW = "raw:"
"""The prefix of a `--preprocess` value that states the format of raw files."""
_TYPES = ("float32", "float16", "float64", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool")
_EXAMPLE = "--preprocess raw:uint8:224,224,3"
_LONGEST_WORD = 40
"""Bytes that a number of a text file may have, with what separates it from the next."""


@dataclass(frozen=True)
class RawFormat:
    """The element type of raw files and the shape of one sample (None: the shape of the input)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> RawFormat:
        """`uint8` or `uint8:224,224,3`, with or without `raw:` in front.

        >>> RawFormat.parse("raw:uint8:2,2").shape
        (2, 2)
        """
        kind, _, sizes = text.removeprefix(RAW).partition(":")
        if kind not in _TYPES:
            raise UsageError(
                f"'{kind}' is no type of raw numbers", fix=f"Write {_EXAMPLE}; types are {', '.join(_TYPES)}"
            )
        try:
            shape = tuple(int(size) for size in sizes.split(",")) if sizes else None
        except ValueError:
            shape = (0,)
        if shape is not None and any(size < 1 for size in shape):
            raise UsageError(f"'{sizes}' is no shape of a raw sample", fix=f"Write {_EXAMPLE}")
        return cls(np.dtype(kind), shape)


def is_raw(path: Path) -> bool:
    """True if the name of a file is that of raw numbers."""
    return path.suffix.lower() in RAW_SUFFIXES


class RawFile(Mapping[str, Array]):
    """The single tensor of a raw file, under the empty name, as in `TensorFile` for an `.npy` file."""

    def __init__(self, path: Path, form: RawFormat, shape: tuple[int, ...]) -> None:
        self.path = existing_file(path)
        shape = form.shape or shape
        sample, size = int(np.prod(shape, dtype=np.int64)) * form.dtype.itemsize, self.path.stat().st_size
        if not sample or not size or size % sample:
            raise InputDataError(
                f"has {size:,} bytes, no whole number of samples of {form.dtype} and shape {list(shape)} "
                f"({sample:,} bytes each)",
                where=str(path),
                fix=f"Say what it holds, as {_EXAMPLE} does",
            )
        self._header = Header(shape if size == sample else (size // sample, *shape), form.dtype, False, 0)

    def header(self, name: str) -> Header:
        """Shape and type."""
        return self._header

    def row(self, name: str, index: int) -> Array:
        """`self[name][index : index + 1]`, reading no more than that."""
        shape = self._header.shape
        size = self._header.nbytes // shape[0]
        return self._read(index * size, size).reshape(1, *shape[1:])

    def _read(self, start: int, size: int) -> Array:
        with open(self.path, "rb") as handle:
            handle.seek(start)
            data = handle.read(size)
        if len(data) != size:
            raise InputDataError("is shorter than when it was opened", where=str(self.path))
        return np.frombuffer(data, self._header.dtype)

    def __getitem__(self, name: str) -> Array:
        if name:
            raise KeyError(name)
        return self._read(0, self._header.nbytes).reshape(self._header.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(("",))

    def __len__(self) -> int:
        return 1


def is_text(path: Path) -> bool:
    """True if the name of a file is that of numbers as words."""
    return path.suffix.lower() in TEXT_SUFFIXES


class TextFile(Mapping[str, Array]):
    """The single sample of a text file, under the empty name; `shape` is that of the input."""

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.path = existing_file(path)
        count = int(np.prod(shape, dtype=np.int64))
        data = read_short(
            self.path, max(count, 1) * _LONGEST_WORD, "the numbers of one sample", InputDataError
        )
        try:
            self._values = np.array(data.split(), np.float64).astype(np.float32)
        except ValueError as error:
            raise InputDataError(
                f"has a word that is no number: {error}", where=str(path), fix="Write one number a line"
            ) from error
        if self._values.size != count:
            raise InputDataError(
                f"has {self._values.size:,} numbers, and a sample of shape {list(shape)} has {count:,}",
                where=str(path),
            )
        self._values = self._values.reshape(shape)

    def header(self, name: str) -> Header:
        """Shape and type."""
        return Header(self._values.shape, self._values.dtype, False, 0)

    def row(self, name: str, index: int) -> Array:
        """`self[name][index : index + 1]`."""
        return self[name][index : index + 1]

    def __getitem__(self, name: str) -> Array:
        if name:
            raise KeyError(name)
        return self._values

    def __iter__(self) -> Iterator[str]:
        return iter(("",))

    def __len__(self) -> int:
        return 1
