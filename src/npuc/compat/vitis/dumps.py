"""Dumps as Vitis AI writes them: `NAME.bin` with the raw elements and `NAME.txt` with a value a line, '/' in names as '_'.

Elements are little endian, tensors of rank 4 in the order N x H x W x C, as the DPU holds them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError, FileMissingError
from npuc.files import make_folder, write_atomically

_LONGEST = 200


def file_stem(name: str) -> str:
    """The name of a tensor as that of a file: '/' becomes '_'.

    >>> file_stem("custom/alpha:0_const")
    'custom_alpha:0_const'
    """
    stem = "".join("_" if letter in "/\0" or not letter.isprintable() else letter for letter in name)
    return stem[:_LONGEST] if stem.strip(".") else "_"


def channels_last(array: Array) -> Array:
    """An array in the vendor's order: channels last, if it has four axes."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1) if array.ndim == 4 else array)


def channels_first(array: Array) -> Array:
    """An array of the vendor's in npuc's order."""
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2) if array.ndim == 4 else array)


def stored_bytes(array: Array) -> bytes:
    """The elements as a `.bin` file has them."""
    ordered = channels_last(array)
    return ordered.astype(ordered.dtype.newbyteorder("<"), copy=False).tobytes()


class DumpFolder:
    """A folder of dumps; two tensors whose names become the same file get a number."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = make_folder(Path(folder))
        self._taken: set[str] = set()

    def write(self, name: str, array: Array, *, text: bool = True) -> Path:
        """Write a tensor as `.bin` and, with `text`, as `.txt`; returns the first."""
        stem, number = file_stem(name), 1
        while stem in self._taken:
            number += 1
            stem = f"{file_stem(name)}_{number}"
        self._taken.add(stem)
        binary = self.folder / f"{stem}.bin"
        with write_atomically(binary) as out:
            out.write(stored_bytes(array))
        if text:
            values = channels_last(array).ravel()
            written = (
                values.tolist() if values.dtype.kind in "iub" else map(repr, values.astype(float).tolist())
            )
            with write_atomically(binary.with_suffix(".txt")) as out:
                out.write("".join(f"{value}\n" for value in written).encode())
        return binary


def read_tensor(path: Path, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """The tensor of a `.bin` file, in npuc's order; its size has to be the tensor's."""
    if not path.is_file():
        raise FileMissingError(
            "does not exist", where=str(path), fix=f"It has to hold {shape} elements of {dtype}"
        )
    data = path.read_bytes()
    count = int(np.prod(shape, dtype=np.int64))
    if len(data) != count * dtype.itemsize:
        raise FileFormatError(
            f"has {len(data)} bytes, and the tensor has {count * dtype.itemsize}: {list(shape)} of {dtype}",
            where=str(path),
        )
    stored = (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape
    return channels_first(np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(stored))
