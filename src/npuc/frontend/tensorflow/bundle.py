"""The variables of a SavedModel: a tensor bundle, an index file and data shards beside it.

The index is a LevelDB table: blocks of keys with shared prefixes, an index block, a footer of 48 bytes. A value says in
which shard, at which offset and in how many bytes a tensor lies. Every offset is checked, and every checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

from npuc.errors import FileMissingError, InvalidModelError, NpucError
from npuc.frontend.tensorflow.crc32c import crc32c, unmasked
from npuc.frontend.tensorflow.tensors import element_type, read_shape
from npuc.frontend.tensorflow.wire import Meter, WireMessage, bad, signed, varint
from npuc.ir import Weight
from npuc.ir.weights import FileSlice, MappedFile

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48


class Bundle:
    """The tensors of a checkpoint by key."""

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix
        index = prefix.with_name(f"{prefix.name}.index")
        if not index.is_file():
            raise FileMissingError(
                "the variables of the model are missing", where=str(index), fix="Copy the whole folder"
            )
        self._shards: dict[int, MappedFile] = {}
        try:
            file = MappedFile(index)
            entries = dict(_table(file))
        except NpucError as error:
            error.where = error.where or str(index)
            raise
        header = entries.pop(b"", None)
        if header is None or header.number(2):
            raise bad("its index of variables has no header, or is of a big-endian machine")
        self._count = max(1, header.number(1))
        if self._count > 1 << 12:
            raise bad(f"its variables are in {self._count} files")
        self._entries = {key.decode("utf-8", "replace"): value for key, value in entries.items()}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def keys(self) -> list[str]:
        """All keys."""
        return list(self._entries)

    def read(self, key: str) -> Weight:
        """A tensor; its bytes are compared with their checksum."""
        message = self._entries[key]
        if any(message.parts(7)):
            raise InvalidModelError(f"the variable '{key}' is stored in slices", where=str(self._prefix))
        dtype = element_type(message.number(1), f"the variable '{key}'")
        shape = read_shape(message.part(2)) or ()
        offset, size = signed(message.number(4)), signed(message.number(5))
        file = self._shard(message.number(3))
        if min(shape, default=0) < 0 or size != prod(shape) * dtype.itemsize:
            raise InvalidModelError(
                f"the variable '{key}' has {size} bytes for the shape {list(shape)}", where=str(self._prefix)
            )
        if offset < 0 or offset + size > file.size:
            raise InvalidModelError(
                f"the variable '{key}' lies at {offset} to {offset + size} of {file.size} bytes: the file is cut short",
                where=str(file.path),
                fix="Copy the whole folder again",
            )
        stored = message.number(6, -1)
        if stored >= 0 and crc32c(memoryview(file.buffer)[offset : offset + size]) != unmasked(stored):
            raise InvalidModelError(
                f"the variable '{key}' is damaged: its checksum does not match", where=str(file.path)
            )
        return Weight(dtype, shape, FileSlice(file, offset, size))

    def _shard(self, number: int) -> MappedFile:
        if not 0 <= number < self._count:
            raise InvalidModelError(f"there is no file {number} of {self._count}", where=str(self._prefix))
        if number not in self._shards:
            path = self._prefix.with_name(f"{self._prefix.name}.data-{number:05}-of-{self._count:05}")
            if not path.is_file():
                raise FileMissingError(
                    "the variables of the model are missing", where=str(path), fix="Copy the whole folder"
                )
            self._shards[number] = MappedFile(path)
        return self._shards[number]


def _table(file: MappedFile) -> Iterator[tuple[bytes, WireMessage]]:
    """Keys and values in order."""
    if file.size < _FOOTER or int.from_bytes(file.buffer[file.size - 8 :], "little") != _MAGIC:
        raise bad("its index of variables has no footer: it is cut short, or something else")
    at, end = file.size - _FOOTER, file.size - 8
    for _ in range(2):  # the index of metadata, which nobody needs
        _, at = varint(file.buffer, at, end)
    offset, at = varint(file.buffer, at, end)
    size, at = varint(file.buffer, at, end)
    reached, meter = 0, Meter()
    for _, handle in _block(file, offset, size, meter):
        inner, at = varint(file.buffer, handle.begin, handle.end)
        length, at = varint(file.buffer, at, handle.end)
        if inner < reached:
            raise bad("its index of variables has blocks that overlap")
        reached = inner + length
        yield from _block(file, inner, length, meter)


def _block(file: MappedFile, offset: int, size: int, meter: Meter) -> Iterator[tuple[bytes, WireMessage]]:
    """The entries of a block: keys share a prefix with the one before."""
    end = offset + size
    if size < 4 or end + 5 > file.size:
        raise bad("its index of variables has a block beyond its end")
    if file.buffer[end]:
        raise bad("its index of variables is compressed")
    stored = int.from_bytes(file.buffer[end + 1 : end + 5], "little")
    if crc32c(bytes(file.buffer[offset : end + 1])) != unmasked(stored):
        raise bad("its index of variables is damaged: a checksum does not match")
    restarts = int.from_bytes(file.buffer[end - 4 : end], "little")
    stop = end - 4 - 4 * restarts
    if stop < offset:
        raise bad("its index of variables has a block that is no block")
    at, key = offset, b""
    while at < stop:
        shared, at = varint(file.buffer, at, stop)
        more, at = varint(file.buffer, at, stop)
        length, at = varint(file.buffer, at, stop)
        if shared > len(key) or more + length > stop - at or shared + more > 1 << 16:
            raise bad("its index of variables has an entry that leaves its block")
        meter.spend(1 + (shared >> 6))
        key = key[:shared] + bytes(file.buffer[at : at + more])
        at += more
        yield key, WireMessage(file, at, at + length, meter)
        at += length
