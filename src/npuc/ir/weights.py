"""The weight store: named constant tensors that are looked at in place.

A weight is either an array in memory or a slice of a file (a `.safetensors` written by npuc, the `.onnx` a model came
from, ONNX external data). File slices are memory-mapped: a 2 GB model is imported without reading its weights, and
written by copying bytes from file to file. Stores are append-only, so a copy of a program can share one cheaply.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from npuc.arithmetic.dtypes import DTYPES, DType
from npuc.errors import WeightFileError
from npuc.files import map_file, write_atomically
from npuc.ir.dtypes import dtype_of

_CHUNK = 8 << 20
_RELEASE = 16 << 20
"""After this many bytes of new weights, pages of the old ones are let go."""
_MAX_HEADER = 256 << 20
_MAX_ITEMS, _MAX_RANK = 1 << 21, 64


class MappedFile:
    """A file mapped read-only; one mapping serves all weights in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as handle:
                status = os.fstat(handle.fileno())
                self.size = status.st_size
                self._identity = _identity(status)
                self.buffer = map_file(handle)
        except OSError as error:
            raise WeightFileError(f"cannot be mapped: {error.strerror}", where=str(path)) from error

    def release(self) -> None:
        """Let go of the pages that were looked at; whoever looks again gets them from the file."""
        if isinstance(self.buffer, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.buffer.madvise(mmap.MADV_DONTNEED)

    def check(self) -> None:
        """Raise `WeightFileError` if the file has become shorter: nobody can read what it has lost."""
        if isinstance(self.buffer, mmap.mmap) and self.buffer.size() < self.size:
            raise self.shorter()

    def shorter(self) -> WeightFileError:
        """What is said of a file that has become shorter."""
        return WeightFileError(
            "became shorter while it was read",
            where=str(self.path),
            fix="Run the command again when nothing writes to the file",
        )

    def is_current(self) -> bool:
        """True if the path still leads to the file that is mapped (a file may be replaced while it is in use)."""
        try:
            return _identity(os.stat(self.path)) == self._identity
        except OSError:
            return False


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class FileSlice:
    """Where the bytes of a weight lie in a mapped file."""

    file: MappedFile
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Weight:
    """One constant tensor: its type, and its bytes in memory or in a file."""

    dtype: DType
    shape: tuple[int, ...]
    data: np.ndarray[Any, Any] | FileSlice

    def __post_init__(self) -> None:
        if isinstance(self.data, FileSlice):
            expected = int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
            end = self.data.offset + self.data.nbytes
            if self.data.offset < 0 or self.data.nbytes != expected or end > self.data.file.size:
                raise WeightFileError(
                    f"a tensor of shape {list(self.shape)} and type {self.dtype.name} needs {expected} bytes, "
                    f"but the file gives it bytes {self.data.offset} to {end} of {self.data.file.size}",
                    where=str(self.data.file.path),
                )

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> Weight:
        """The constant that an array is."""
        return Weight(dtype_of(array.dtype), array.shape, array)

    @property
    def nbytes(self) -> int:
        """Size in bytes as stored (sub-byte types take one byte an element)."""
        return self.data.nbytes

    def array(self) -> np.ndarray[Any, Any]:
        """The values, read-only; a file slice is mapped, not copied."""
        if isinstance(self.data, FileSlice):
            count = int(np.prod(self.shape, dtype=np.int64))
            if count == 0:
                return np.zeros(self.shape, self.dtype.numpy)
            self.data.file.check()
            flat = np.frombuffer(self.data.file.buffer, self.dtype.numpy, count, self.data.offset)
            return flat.reshape(self.shape)
        return self.data


class WeightStore(Mapping[str, Weight]):
    """Append-only mapping from name to `Weight`."""

    def __init__(self, weights: Mapping[str, Weight] | None = None) -> None:
        self._weights: dict[str, Weight] = dict(weights or {})
        self._made = 0

    def __getitem__(self, name: str) -> Weight:
        return self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def copy(self) -> WeightStore:
        """A store that can grow apart from this one; the tensors themselves are shared."""
        return WeightStore(self._weights)

    def unique_name(self, name: str) -> str:
        """`name`, or `name.1`, `name.2`, ... if it is taken."""
        if name not in self._weights:
            return name
        number = 1
        while f"{name}.{number}" in self._weights:
            number += 1
        return f"{name}.{number}"

    def add(self, name: str, weight: Weight | np.ndarray[Any, Any]) -> str:
        """Add a tensor under `name` or the next free variant of it; returns the name it got."""
        if isinstance(weight, np.ndarray | np.generic):
            weight = np.asarray(weight)  # arithmetic on arrays of rank 0 gives NumPy scalars
            array = np.ascontiguousarray(weight).reshape(weight.shape)
            if array is weight or array.base is weight:
                array = array.view()
            array.flags.writeable = False
            weight = Weight.of(array)
        name = self.unique_name(name)
        self._weights[name] = weight
        if isinstance(weight.data, np.ndarray):
            self._made += weight.nbytes
            if self._made >= _RELEASE:
                self._made = 0
                self.release()
        return name

    def release(self) -> None:
        """Let go of the pages of mapped files: a pass that rewrites all weights would else hold them twice."""
        for file in {w.data.file for w in self._weights.values() if isinstance(w.data, FileSlice)}:
            file.release()

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The values of one weight, read-only."""
        return self._weights[name].array()


def write_weight(out: IO[bytes], weight: Weight) -> None:
    """Append the bytes of a weight to a file, streaming."""
    if isinstance(weight.data, FileSlice) and weight.data.file.is_current():
        # Read through a descriptor, not the mapping: touched pages of a mapping count as resident memory.
        with open(weight.data.file.path, "rb") as source:
            source.seek(weight.data.offset)
            left = weight.data.nbytes
            while left:
                chunk = source.read(min(left, _CHUNK))
                if not chunk:
                    raise weight.data.file.shorter()
                out.write(chunk)
                left -= len(chunk)
        return
    out.write(np.ascontiguousarray(weight.array()).reshape(-1).view(np.uint8).data)


def save_safetensors(path: Path, store: Mapping[str, Weight], names: Iterable[str] | None = None) -> None:
    """Write weights as a `.safetensors` file, streaming; the same weights always give the same bytes."""
    chosen = sorted(set(store if names is None else names), key=lambda n: (-store[n].dtype.itemsize, n))
    header: dict[str, Any] = {"__metadata__": {"format": "npuc"}}
    offset = 0
    for name in chosen:
        weight = store[name]
        if not weight.dtype.storage:
            raise WeightFileError(f"weight '{name}' has type {weight.dtype.name}, which cannot be stored")
        end = offset + weight.nbytes
        header[name] = {
            "dtype": weight.dtype.storage,
            "shape": list(weight.shape),
            "data_offsets": [offset, end],
        }
        if dtype_of_storage(weight.dtype.storage) != weight.dtype:
            header["__metadata__"][f"dtype:{name}"] = weight.dtype.name
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with write_atomically(path) as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for name in chosen:
            write_weight(out, store[name])


def dtype_of_storage(code: str) -> DType | None:
    """The element type that a safetensors code stands for by itself."""
    plain = {"U8": "ui8", "I8": "i8"}
    if code in plain:
        return dtype_of(plain[code])
    return next((dtype for dtype in DTYPES if dtype.storage == code), None)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, in which every key is there once."""
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("an entry is there twice")
    return unique


def load_safetensors(path: Path) -> WeightStore:
    """Map a `.safetensors` file; every offset in it is checked, nothing is copied."""

    def bad(reason: str) -> WeightFileError:
        return WeightFileError(reason, where=str(path), fix="Write it again with 'npuc import'")

    file = MappedFile(path)
    if file.size < 8:
        raise bad("is too short to be a safetensors file")
    length = int.from_bytes(file.buffer[:8], "little")
    if length > min(_MAX_HEADER, file.size - 8):
        raise bad(f"claims a header of {length} bytes in a file of {file.size}")
    text = bytes(file.buffer[8 : 8 + length])
    # Python's objects are far larger than their text.
    if sum(text.count(mark) for mark in b"[{,") > _MAX_ITEMS:
        raise bad(f"has a header of {length} bytes, more than any network needs")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_once)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise bad(f"has a header that is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise bad("has a header that is not a JSON object")
    metadata = header.pop("__metadata__", {})
    store: dict[str, Weight] = {}
    for name, entry in header.items():
        try:
            begin, end = entry["data_offsets"]
            shape = tuple(entry["shape"])
            whole = all(type(x) is int for x in (begin, end, *shape)) and len(shape) <= _MAX_RANK
            dtype = dtype_of_storage(str(entry["dtype"]))
            logical = metadata.get(f"dtype:{name}") if isinstance(metadata, dict) else None
            dtype = dtype_of(str(logical)) if logical else dtype
        except (KeyError, TypeError, ValueError) as error:
            raise bad(f"has a malformed entry for tensor '{name}'") from error
        fits = whole and 0 <= begin <= end and min(shape, default=0) >= 0
        if dtype is None or not dtype.storage or not fits:
            raise bad(f"has a malformed entry for tensor '{name}'")
        store[name] = Weight(dtype, shape, FileSlice(file, 8 + length + begin, end - begin))
    return WeightStore(store)
