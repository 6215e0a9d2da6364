"""Zip archives, opened without trust in them.

Python's reader parses the whole directory of an archive before anybody can ask how long it is, and unfolds a member to
whatever its bytes make of it. So the directory is found and its members are counted first, and a member is read to the
size that the directory states and no further.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import IO

from npuc.errors import FileFormatError, ResourceLimitError

_END, _END_SIZE = b"PK\x05\x06", 22
_LOCATOR, _LOCATOR_SIZE = b"PK\x06\x07", 20
_END_64, _END_64_SIZE = b"PK\x06\x06", 56
_ENTRY, _ENTRY_SIZE = b"PK\x01\x02", 46
_MAX_COMMENT = 1 << 16
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""LZMA would take as much memory as a member asks for, and has errors of its own."""
_MAX_DIRECTORY = 32 << 20
"""Bytes of a directory, names and all."""

AGAIN_FIX = "Save or download it again"


def open_zip(path: Path, members: int) -> zipfile.ZipFile:
    """Open an archive of no more than so many members; `FileFormatError` for a damaged one."""
    try:
        with open(path, "rb") as handle:
            begin, size = _directory(handle)
            if size > _MAX_DIRECTORY or size > members * (_ENTRY_SIZE + 3 * 0xFFFF):
                raise _too_long(path, f"a directory of {size} bytes")
            handle.seek(begin)
            count = _count(handle.read(size), members)
        if count > members:
            raise _too_long(path, f"more than {members} members")
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        raise FileFormatError(
            f"is a damaged zip archive ({error})", where=str(path), fix=AGAIN_FIX
        ) from error
    strange = next((info for info in archive.infolist() if info.compress_type not in _METHODS), None)
    if strange is not None:
        archive.close()
        raise FileFormatError(
            f"{strange.filename[:80]!r} in this zip archive is compressed in a way that no framework writes",
            where=str(path),
            fix=AGAIN_FIX,
        )
    return archive


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A member, to the byte as long as the directory says; what the caller allows of that size is its own business."""
    with archive.open(info) as member:
        # One more byte, so that the checksum is compared; without a size, all that it unfolds to would be made first.
        data = member.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise zipfile.BadZipFile(f"{info.filename[:80]!r} has another size than the archive says")
    return data


def _too_long(path: Path, what: str) -> ResourceLimitError:
    return ResourceLimitError(f"the zip archive has {what}", where=str(path), fix=AGAIN_FIX)


def _directory(handle: IO[bytes]) -> tuple[int, int]:
    """Where the directory begins and how long it is, found in the way of Python's reader: from the end of the file."""
    size = handle.seek(0, 2)
    begin = max(0, size - _END_SIZE - _MAX_COMMENT)
    handle.seek(begin)
    tail = handle.read()
    at = len(tail) - _END_SIZE
    if at < 0 or tail[at : at + 4] != _END or tail[-2:] != b"\0\0":
        at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        raise zipfile.BadZipFile("it has no directory")
    (length,) = struct.unpack_from("<I", tail, at + 12)
    end = begin + at
    before = _END_64_SIZE + _LOCATOR_SIZE
    if end >= before:
        handle.seek(end - before)
        record = handle.read(before)
        if record[:4] == _END_64 and record[_END_64_SIZE:][:4] == _LOCATOR:
            end -= before
            (length,) = struct.unpack_from("<Q", record, 40)
    if length > end:
        raise zipfile.BadZipFile(f"its directory of {length} bytes does not lie in the file")
    return end - length, length


def _count(directory: bytes, most: int) -> int:
    """The members of a directory, or one more than `most`."""
    at = count = 0
    while at < len(directory) and count <= most:
        if directory[at : at + 4] != _ENTRY or len(directory) - at < _ENTRY_SIZE:
            raise zipfile.BadZipFile("its directory is damaged")
        at += _ENTRY_SIZE + sum(struct.unpack_from("<HHH", directory, at + 28))
        count += 1
    return count
