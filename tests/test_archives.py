"""Zip archives are counted before they are parsed, and unfold to what their directory says and no further."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest

from npuc.archives import open_zip, read_member
from npuc.errors import FileFormatError, ResourceLimitError
from npuc.frontend.sniff import describe_content


def _written(path: Path, members: int, comment: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(members):
            archive.writestr(f"{number}", b"abc")
        archive.comment = comment
    return path


def _directory(entries: int, claimed: int | None = None, *, wide: bool = False) -> bytes:
    """An archive that is nothing but a directory; `wide` is one of zip64."""
    entry = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, *(0,) * 7, 1, *(0,) * 6) + b"a"
    directory = entry * entries
    size = len(directory) if claimed is None else claimed
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, 1 if wide else min(size, 0xFFFFFFFF), 0, 0)
    if wide:
        end = (
            struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, entries, entries, size, 0)
            + struct.pack("<IIQI", 0x07064B50, 0, len(directory), 1)
            + end
        )
    return directory + end


@pytest.mark.parametrize("comment", [b"", b"a comment", b"PK\x05\x06 in a comment", bytes(65_000)])
def test_an_archive_is_opened(tmp_path: Path, comment: bytes) -> None:
    if b"PK" in comment:
        with pytest.raises(FileFormatError, match="damaged zip"):
            open_zip(_written(tmp_path / "x.zip", 3, comment), 3)
        return
    with open_zip(_written(tmp_path / "x.zip", 3, comment), 3) as archive:
        assert [read_member(archive, info) for info in archive.infolist()] == [b"abc"] * 3


def test_members_are_counted_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path / "x.zip", 4)
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("it is parsed"))
    with pytest.raises(ResourceLimitError, match="more than 3 members") as caught:
        open_zip(path, 3)
    assert caught.value.where == str(path) and caught.value.fix


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("entries", "claimed", "error"),
    [
        (5, None, "more than 3 members"),
        (0, 1 << 31, "does not lie in the file"),
        (2, 90, "directory is damaged"),
    ],
)
def test_what_a_directory_claims_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int, claimed: int | None, error: str, wide: bool
) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(_directory(entries, claimed, wide=wide))
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("it is parsed"))
    with pytest.raises((ResourceLimitError, FileFormatError), match=error):
        open_zip(path, 3)


def test_a_long_directory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with open(path, "wb") as out:
        out.truncate(40 << 20)  # a hole
        out.seek(0, 2)
        out.write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, 40 << 20, 0, 0))
    with pytest.raises(ResourceLimitError, match="directory of 41943040 bytes"):
        open_zip(path, 1 << 20)


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"PK\x05\x06" + b"\xff" * 18]
)
def test_damaged_archives_are_refused_or_empty(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    try:
        assert not open_zip(path, 3).namelist()
    except FileFormatError as error:
        assert "damaged zip archive" in str(error)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_are_stored_or_deflated(tmp_path: Path, method: int) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"abc", zipfile.ZIP_DEFLATED)
        archive.writestr("b", b"abc", method)
    with pytest.raises(FileFormatError, match="'b' in this zip archive is compressed in a way"):
        open_zip(path, 3)


def test_a_member_unfolds_to_its_stated_size_only(tmp_path: Path) -> None:
    """The directory says 1000 bytes; the stream would make 64 MiB."""
    maker = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = maker.compress(bytes(64 << 20)) + maker.flush()
    local = (
        struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 8, 0, 33, 0, len(stream), 1000, 1, 0) + b"a" + stream
    )
    entry = struct.pack(
        "<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 8, 0, 33, 0, len(stream), 1000, 1, 0, 0, 0, 0, 0, 0
    )
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(entry) + 1, len(local), 0)
    path = tmp_path / "x.zip"
    path.write_bytes(local + entry + b"a" + end)
    with open_zip(path, 3) as archive:
        tracemalloc.start()
        try:
            with pytest.raises(zipfile.BadZipFile):
                read_member(archive, archive.infolist()[0])
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


def test_the_kind_of_an_archive_of_many_members_is_not_looked_for(tmp_path: Path) -> None:
    out = io.BytesIO(_directory(1 << 15))
    path = tmp_path / "x.keras"
    path.write_bytes(b"PK\x03\x04" + out.getvalue())
    with pytest.raises(ResourceLimitError, match="more than 16384 members"):
        describe_content(path)
