"""Tensor files: `.npz` and `.npy`, read without trust and written whole.

Nothing is unpickled, and a header is believed only as far as the bytes behind it go: a member of a zip must be as long
as its own header says, and a compressed one may not unfold to more than `MAX_UNPACKED`. Tensors are read one by one,
when they are asked for. Written files are the same for the same tensors, to the byte.
"""

from __future__ import annotations

import io
import re
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from npuc.archives import open_zip
from npuc.arrays import Array
from npuc.errors import (
    FileFormatError,
    OutputError,
    ResourceLimitError,
    UnknownTensorError,
    UnsupportedTypeError,
)
from npuc.files import existing_file, write_atomically

MAX_UNPACKED = 4 << 30
"""The most bytes that one compressed tensor may unfold to."""

_MAX_HEADER = 64 << 10
_MAX_TENSORS = 1 << 16
_KINDS = "biufcSU"
_OTHERS = {"O": "Python objects", "m": "times", "M": "times"}


@dataclass(frozen=True)
class Header:
    """What a `.npy` header states about a tensor."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """The bytes that follow the header."""
        count = 1
        for size in self.shape:
            count *= size
        return count * self.dtype.itemsize


class TensorFile(Mapping[str, Array]):
    """The tensors of an `.npz` or `.npy` file by name; each is read when it is asked for.

    The one tensor of an `.npy` file has the empty name.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = existing_file(path)
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._zip: zipfile.ZipFile | None = None
        with open(self.path, "rb") as handle:
            magic = handle.read(6)
        if magic[:4] == b"PK\x03\x04" or magic[:4] == b"PK\x05\x06":
            self._open_zip()
        elif magic != b"\x93NUMPY":
            raise FileFormatError(
                "is neither an .npz nor an .npy file",
                where=str(self.path),
                fix="Write it with numpy.savez or numpy.save",
            )

    def _open_zip(self) -> None:
        self._zip = open_zip(self.path, _MAX_TENSORS)
        for info in self._zip.infolist():
            if info.filename.endswith(".npy"):
                self._members[info.filename.removesuffix(".npy")] = info
        if not self._members:
            raise FileFormatError(
                "is a zip archive without tensors, not an .npz file",
                where=str(self.path),
                fix="Write it with numpy.savez",
            )

    def _bad(self, reason: str) -> FileFormatError:
        return FileFormatError(reason, where=str(self.path), fix="Write the file again")

    def header(self, name: str) -> Header:
        """Shape and type of a tensor, without reading it."""
        with self._stream(name) as stream:
            return self._header(stream, name)

    def _stream(self, name: str) -> IO[bytes]:
        if name not in self:
            raise UnknownTensorError(
                f"there is no tensor {name!r}",
                where=str(self.path),
                fix=f"It holds: {', '.join(list(self)[:20])}",
            )
        if self._zip is None:
            return open(self.path, "rb")
        try:
            return self._zip.open(self._members[name])
        except (
            zipfile.BadZipFile,
            OSError,
            NotImplementedError,
            RuntimeError,
            zlib.error,
            struct.error,
        ) as error:
            raise self._bad(f"tensor {name!r} cannot be unpacked ({error})") from error

    def _header(self, stream: IO[bytes], name: str) -> Header:
        label = f"tensor {name!r}" if name else "the tensor"
        try:
            # NumPy reads a header of any length before it looks at the length.
            begin = io.BytesIO(stream.read(_MAX_HEADER))
            version = np.lib.format.read_magic(begin)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = read(begin, max_header_size=_MAX_HEADER)
            offset = begin.tell()
            stream.seek(offset)
        except (
            ValueError,
            EOFError,
            OSError,
            zipfile.BadZipFile,
            zlib.error,
            SyntaxError,
            TypeError,
            RecursionError,
            MemoryError,
            tokenize.TokenError,
        ) as error:
            reason = (str(error).splitlines() or ["cut off"])[0][:200]
            raise self._bad(f"{label} has a damaged header ({reason})") from error
        if dtype.kind not in _KINDS or dtype.itemsize == 0:
            raise UnsupportedTypeError(
                f"{label} holds {_OTHERS.get(dtype.kind, 'records')}, not numbers",
                where=str(self.path),
                fix="npuc does not unpickle files; save plain arrays",
            )
        if any(size < 0 for size in shape):
            raise self._bad(f"{label} has a negative size")
        header = Header(tuple(int(size) for size in shape), dtype, bool(fortran), offset)
        info = self._members.get(name) if self._zip is not None else None
        length = info.file_size if info else self.path.stat().st_size
        if header.nbytes + offset != length:
            raise self._bad(
                f"{label} of shape {str(list(header.shape))[:200]} and type {dtype} needs another number of bytes than the "
                f"{max(0, length - offset)} that the file has"
            )
        if info and info.compress_type != zipfile.ZIP_STORED and header.nbytes > MAX_UNPACKED:
            raise ResourceLimitError(
                f"{label} would unfold to {header.nbytes} bytes; the limit for compressed tensors is {MAX_UNPACKED}",
                where=str(self.path),
                fix="Save it without compression, or in parts",
            )
        return header

    def __getitem__(self, name: str) -> Array:
        if name not in self:
            raise KeyError(name)
        with self._stream(name) as stream:
            header = self._header(stream, name)
            try:
                data = bytearray(header.nbytes)
                view, done = memoryview(data), 0
                while done < len(data):
                    chunk = stream.read(min(len(data) - done, 16 << 20))
                    if not chunk:
                        raise self._bad(f"tensor {name!r} is cut off")
                    view[done : done + len(chunk)] = chunk
                    done += len(chunk)
                stream.read(1)  # at the end of a zip member the checksum is compared
            except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
                raise self._bad(f"tensor {name!r} cannot be unpacked ({error})") from error
            except MemoryError as error:
                raise ResourceLimitError(
                    f"tensor {name!r} of {header.nbytes} bytes does not fit in memory", where=str(self.path)
                ) from error
        array = np.frombuffer(data, header.dtype)
        try:
            return array.reshape(header.shape[::-1]).T if header.fortran else array.reshape(header.shape)
        except ValueError as error:
            raise self._bad(f"tensor {name!r} has a shape that no tensor has ({error})") from error

    def row(self, name: str, index: int) -> Array:
        """`self[name][index : index + 1]`, reading no more than that where the file lies in plain rows."""
        info = self._members.get(name) if self._zip is not None else None
        with self._stream(name) as stream:
            header = self._header(stream, name)
        if header.fortran or not header.shape or (info and info.compress_type != zipfile.ZIP_STORED):
            return self[name][index : index + 1]
        if not 0 <= index < header.shape[0]:
            raise IndexError(index)
        size = header.nbytes // header.shape[0]
        try:
            with open(self.path, "rb") as handle:
                start = header.offset
                if info is not None:
                    # The local header repeats the name, and may have other extra fields than the directory.
                    handle.seek(info.header_offset + 26)
                    name_size, extra_size = struct.unpack("<HH", handle.read(4))
                    start += info.header_offset + 30 + name_size + extra_size
                handle.seek(start + index * size)
                data = handle.read(size)
        except (OSError, struct.error) as error:
            raise self._bad(f"tensor {name!r} cannot be read ({error})") from error
        if len(data) != size:
            raise self._bad(f"tensor {name!r} is cut off")
        return np.frombuffer(bytearray(data), header.dtype).reshape(1, *header.shape[1:])

    def __iter__(self) -> Iterator[str]:
        return iter(self._members) if self._zip is not None else iter(("",))

    def __len__(self) -> int:
        return len(self._members) if self._zip is not None else 1

    def __contains__(self, name: object) -> bool:
        return name in self._members if self._zip is not None else name == ""


def write_npz(path: Path | str, tensors: Mapping[str, Array]) -> None:
    """Write tensors as an uncompressed `.npz` file."""
    with write_atomically(path) as out, zipfile.ZipFile(out, "w") as archive:
        for name, tensor in tensors.items():
            array = plain(tensor)
            with archive.open(_member(name), "w", force_zip64=True) as member:
                _write_header(member, array.shape, array.dtype)
                member.write(np.ascontiguousarray(array).tobytes())


def write_raw(path: Path | str, array: Array) -> None:
    """Write the elements alone, little-endian, in row-major order."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    with write_atomically(path) as out:
        out.write(np.ascontiguousarray(little).tobytes())


def file_names(names: Iterable[str]) -> dict[str, str]:
    """For each tensor name a file name of its own, with nothing in it that means something to a file system.

    >>> file_names(["/a/b", "a b", "a_b"])
    {'/a/b': 'a_b', 'a b': 'a_b.1', 'a_b': 'a_b.2'}
    """
    stems: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^\w.+=-]+", "_", name).strip("._")[:120] or "tensor"
        free, number = stem, 0
        # Some file systems take upper and lower case for the same.
        while free.lower() in taken:
            number += 1
            free = f"{stem}.{number}"
        taken.add(free.lower())
        stems[name] = free
    return stems


def plain(array: Array) -> Array:
    """The same values in a type that NumPy's files have: bfloat16 and float8 become float32, int4 becomes int8.

    >>> plain(np.zeros(1, np.float16)).dtype
    dtype('float16')
    """
    if array.dtype.isbuiltin == 1:
        return array
    name = array.dtype.name
    return array.astype(
        np.uint8 if name.startswith("uint") else np.int8 if name.startswith("int") else np.float32
    )


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))


def _write_header(out: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})


@dataclass
class _Spooled:
    file: Path
    dtype: np.dtype[Any]
    shapes: list[tuple[int, ...]]


class TensorSpool:
    """Collects the results of many batches on disk and writes them as one `.npz` file.

    Memory stays at one batch. Tensors whose first axis is the batch are joined along it; others get a new first axis.
    Tensors that change their shape from batch to batch become one entry a batch, `name[0]`, `name[1]`, ...

    >>> with TensorSpool("out.npz", batch=1) as spool:  # doctest: +SKIP
    ...     spool.append({"y": np.zeros((1, 10))})
    """

    def __init__(self, path: Path | str, batch: int | None) -> None:
        self.path = Path(path)
        self.batch = batch
        self._tensors: dict[str, _Spooled] = {}
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=f".{self.path.name}.", dir=self.path.parent)
        except OSError as error:
            raise OutputError(
                f"cannot be written: {error.strerror or error}",
                where=str(path),
                fix="Choose another path",
            ) from error

    def append(self, tensors: Mapping[str, Array], keep: int | None = None) -> None:
        """Add one batch; `keep` drops what was only padding at its end."""
        for name, array in tensors.items():
            array = plain(np.asarray(array))
            if keep is not None and self._joins(array.shape):
                array = array[:keep]
            entry = self._tensors.get(name)
            if entry is None:
                file = Path(self._folder.name) / str(len(self._tensors))
                entry = self._tensors[name] = _Spooled(file, array.dtype, [])
            entry.shapes.append(array.shape)
            try:
                with open(entry.file, "ab") as out:
                    out.write(np.ascontiguousarray(array).tobytes())
            except OSError as error:
                raise OutputError(f"cannot be written: {error.strerror}", where=str(self.path)) from error

    def _joins(self, shape: tuple[int, ...]) -> bool:
        return self.batch is not None and len(shape) > 0 and shape[0] == self.batch

    def _layout(self, name: str, entry: _Spooled) -> list[tuple[str, tuple[int, ...]]]:
        """The members that the spooled bytes of a tensor become, in order."""
        shapes = entry.shapes
        if len(shapes) == 1:
            return [(name, shapes[0])]
        body = shapes[0]
        if self._joins(body) and all(shape[1:] == body[1:] and len(shape) == len(body) for shape in shapes):
            return [(name, (sum(shape[0] for shape in shapes), *body[1:]))]
        if all(shape == body for shape in shapes):
            return [(name, (len(shapes), *body))]
        return [(f"{name}[{index}]", shape) for index, shape in enumerate(shapes)]

    def finish(self) -> dict[str, tuple[int, ...]]:
        """Write the file; returns the names and shapes in it."""
        members: dict[str, tuple[int, ...]] = {}
        with write_atomically(self.path) as out, zipfile.ZipFile(out, "w") as archive:
            for name, entry in self._tensors.items():
                with open(entry.file, "rb") as source:
                    for member_name, shape in self._layout(name, entry):
                        members[member_name] = shape
                        left = int(np.prod(shape, dtype=object)) * entry.dtype.itemsize
                        with archive.open(_member(member_name), "w", force_zip64=True) as member:
                            _write_header(member, shape, entry.dtype)
                            while left:
                                chunk = source.read(min(left, 8 << 20))
                                member.write(chunk)
                                left -= len(chunk)
        return members

    def __enter__(self) -> TensorSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()
