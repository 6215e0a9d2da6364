"""NumPy files that hold more than arrays, read without trust: numbers, texts, lists and dictionaries, and no code."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from npuc.errors import FileFormatError, UsageError
from npuc.files import existing_file
from npuc.tensors import TensorFile

_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
}
"""What a pickle may name: how NumPy puts arrays and numbers together, and nothing that does anything."""
_LARGEST = 1 << 30


class _Reader(pickle.Unpickler):
    """A reader of pickles that makes nothing but data."""

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle names, if it is data."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no data")
        return super().find_class(module, name)


def load_npy(path: Path | str) -> Any:
    """An array, or what one single object holds; of an `.npz` file, a dictionary of arrays."""
    if not str(path):
        raise UsageError("the data set is given no file", fix="Set calibration_data, or data and label")
    place = existing_file(path)
    if place.suffix.lower() == ".npz":
        tensors = TensorFile(place)
        return {name: tensors[name] for name in tensors}
    if place.stat().st_size > _LARGEST:
        return np.load(place, mmap_mode="r", allow_pickle=False)
    data = place.read_bytes()
    stream = io.BytesIO(data)
    try:
        if not data.startswith(b"\x93NUMPY"):
            return _Reader(stream).load()
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, kind = read(stream)
        if kind.hasobject:
            array = _Reader(stream).load()
            return array.item() if shape == () else array
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)
    except (
        pickle.UnpicklingError,
        ValueError,
        EOFError,
        AttributeError,
        IndexError,
        TypeError,
        KeyError,
    ) as error:
        raise FileFormatError(
            f"is no array or dictionary of arrays: {error}",
            where=str(place),
            fix="numpy.save writes such files",
        ) from error
