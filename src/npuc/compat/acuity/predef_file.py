"""The .npz file of `--predef-file`: values of placeholders, and a map from other names to theirs.

The map is a dictionary that NumPy has pickled. Nothing is unpickled here: the steps of the pickle are read as text, and a
dictionary of texts is all that is taken from them.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path

import numpy as np

from npuc.errors import FileFormatError, UsageError
from npuc.files import existing_file
from npuc.tensors import TensorFile

_LARGEST = 1 << 20
_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "UNICODE"}
_KEPT, _AGAIN = {"MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"}, {"BINGET", "LONG_BINGET", "GET"}
"""Steps that keep what was read last, and those that take it again."""
_END = {"SETITEM", "SETITEMS"}


def placeholder_values(path: str | None) -> dict[str, str]:
    """The values of placeholders by their names, as text with commas between numbers."""
    if not path:
        return {}
    tensors = TensorFile(existing_file(path))
    names = _map_of(Path(path)) if "map" in tensors else {}
    values = {}
    for name in tensors:
        if name == "map":
            continue
        array = np.atleast_1d(np.asarray(tensors[name])).ravel()
        numbers = (
            [str(value) for value in array.astype(np.float64)]
            if array.dtype.kind == "f"
            else [str(int(value)) for value in array]
        )
        values[names.get(name, name)] = ",".join(numbers)
    unknown = [name for name in names if name not in tensors]
    if unknown:
        raise UsageError(
            f"--predef-file {path}: the map names '{unknown[0]}', of which the file has no value"
        )
    return values


def _map_of(path: Path) -> dict[str, str]:
    """The dictionary of texts that the member `map` holds."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("map.npy").file_size > _LARGEST:
                raise FileFormatError("the map is larger than 1 MiB", where=str(path))
            stream = io.BytesIO(archive.read("map.npy"))
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, kind = read(stream)
        if shape != () or not kind.hasobject:
            raise ValueError("it is an array")
        return _texts(stream)
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FileFormatError(
            f"the map of --predef-file is no dictionary from names to names: {error}",
            where=str(path),
            fix="np.savez(file, value=False, map={'value': 'inference/train_stage'})",
        ) from error


def _texts(stream: io.BytesIO) -> dict[str, str]:
    """The one dictionary in the steps of a pickle, which has to hold texts and nothing else."""
    entries: list[str] | None = None
    memory: dict[int, str | None] = {}
    last: str | None = None
    for step, argument, _ in pickletools.genops(stream):
        if step.name in _KEPT:
            memory[len(memory) if argument is None else int(argument)] = last
            continue
        last = (
            str(argument)
            if step.name in _TEXTS
            else memory.get(int(argument or 0))
            if step.name in _AGAIN
            else None
        )
        if step.name == "EMPTY_DICT" and entries is None:
            entries = []
        elif entries is None or step.name == "MARK":
            continue
        elif last is not None:
            entries.append(last)
        elif step.name in _END and len(entries) % 2 == 0:
            return dict(zip(entries[0::2], entries[1::2], strict=True))
        else:
            raise ValueError(f"it has something else than texts ({step.name})")
    raise ValueError("there is none in it")
