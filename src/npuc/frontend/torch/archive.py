"""Archives of torch, read without trust in them.

torch writes zip files whose records lie under one folder: tensors as they are, code compressed. A file is read once,
every record is checked against its checksum, and what is handed to torch is an archive written anew from those records:
torch sees nothing that was not looked at.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from npuc.archives import open_zip, read_member
from npuc.errors import FileFormatError

_MAX_RECORDS = 1 << 14
_MAX_CODE = 64 << 20
"""Bytes of all compressed records together."""


@dataclass(frozen=True)
class Archive:
    """The records of a file by their names below its top folder."""

    folder: str
    records: dict[str, bytes]

    def packed(self) -> io.BytesIO:
        """The same records as a new archive."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for name, data in self.records.items():
                archive.writestr(zipfile.ZipInfo(f"{self.folder}/{name}"), data)
        out.seek(0)
        return out


def read_archive(path: Path) -> Archive:
    """Read all records of a torch file."""

    def bad(why: str) -> FileFormatError:
        return FileFormatError(f"is not an archive that torch writes: {why}", where=str(path))

    try:
        size = path.stat().st_size
        with open_zip(path, _MAX_RECORDS) as archive:
            entries = archive.infolist()
            plain, packed = (
                sum(e.file_size for e in entries if (e.compress_type == zipfile.ZIP_STORED) is stored)
                for stored in (True, False)
            )
            if plain > size or packed > _MAX_CODE:
                raise bad(f"its records claim {plain + packed} bytes, and the file has {size}")
            records: dict[str, bytes] = {}
            folders: set[str] = set()
            for entry in entries:
                folder, _, name = entry.filename.partition("/")
                folders.add(folder)
                clean = not {"", ".", ".."} & set(name.split("/")) and "\\" not in name
                if entry.flag_bits & 1:
                    raise bad(f"the record '{entry.filename[:80]}' is encrypted")
                if not clean or not folder or name in records:
                    raise bad(f"the record '{entry.filename[:80]}' has a name that no archive of torch has")
                records[name] = read_member(archive, entry)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError, zlib.error) as error:
        raise bad(str(error)[:200]) from error
    if len(folders) != 1:
        raise bad("its records do not lie in one folder")
    return Archive(folders.pop(), records)
