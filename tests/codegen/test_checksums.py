"""Checksums of chunks: every byte counts, weights may be compared later, C and Python agree."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from npuc.errors import FileFormatError
from npuc.program import checksums, elf, layout
from npuc.program.checksums import BYTES, CHUNK
from npuc.program.file import load_compiled, open_compiled
from support.programs.files import as_bytes, build_driver, random_model, read_in_c


@cache
def large() -> bytes:
    """A file whose weights fill more than twenty chunks."""
    model = random_model(count=20)
    size = 21 * CHUNK + 12345 // 64 * 64
    weights = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    return as_bytes(
        replace(model, weights=weights, segments=(replace(model.segments[0], size=size), *model.segments[1:]))
    )


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


def weights_of(data: bytes) -> tuple[int, int]:
    parsed = elf.read(np.frombuffer(data, np.uint8), "")
    found = next(one for one in parsed.sections if one.name == layout.WEIGHTS)
    return found.offset, found.offset + found.data.size


def body_of(data: bytes) -> int:
    """Where the checksums begin."""
    return elf.read(np.frombuffer(data, np.uint8), "").checksums.body.size


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_the_digests_are_those_of_hashlib(size: int) -> None:
    body = np.random.default_rng(size).bytes(size)
    table = b"".join(hashlib.sha256(body[at : at + CHUNK]).digest() for at in range(0, size, CHUNK))
    pieces = [body[: size // 3], b"", body[size // 3 :]]
    assert checksums.seal(pieces) == table + hashlib.sha256(table).digest()
    assert checksums.size_for(size) == len(table) + BYTES


def test_every_part_of_a_file_is_covered(driver: Path, tmp_path: Path) -> None:
    data = large()
    first, end = weights_of(data)
    table = body_of(data)
    places = [0x30, first, first + CHUNK, (first + end) // 2, end - 1, end, table - 1, table, len(data) - 1]
    files = [data, *(flipped(data, at) for at in places)]
    verdicts = read_in_c(driver, files)
    assert verdicts[0] == "ok" and "ok" not in verdicts[1:]
    for bad in files[1:]:
        (tmp_path / "x.npu").write_bytes(bad)
        with pytest.raises(FileFormatError):
            load_compiled(tmp_path / "x.npu")


def test_portable_code_has_the_same_digests(tmp_path: Path) -> None:
    """The form without a heap has no instructions of one CPU."""
    portable = build_driver(tmp_path, "-DNPUC_NO_HEAP")
    good = [as_bytes(random_model(count=20, metadata={"pad": "x" * length})) for length in range(0, 70, 9)]
    assert read_in_c(portable, [*good, large(), flipped(large(), len(large()) // 2)]) == [
        *["ok"] * (len(good) + 1),
        "its checksum is wrong",
    ]


def test_weights_are_compared_when_they_are_needed(tmp_path: Path) -> None:
    data, path = large(), tmp_path / "x.npu"
    first, end = weights_of(data)
    path.write_bytes(data)
    model, prove = open_compiled(path)
    prove()
    assert model.weights.tobytes() == load_compiled(path).weights.tobytes()
    for at in (first + CHUNK, (first + end) // 2, end - 2 * CHUNK):
        path.write_bytes(flipped(data, at))
        _, prove = open_compiled(path)
        with pytest.raises(FileFormatError, match="its checksum is wrong"):
            prove()
    for at in (first - 1, first, end - 1, end):
        path.write_bytes(flipped(data, at))
        with pytest.raises(FileFormatError, match="damaged"):
            open_compiled(path)


def test_a_table_of_digests_for_other_weights_is_refused(tmp_path: Path) -> None:
    """One who changes a chunk and its digest, but not the digest of all, is noticed at once."""
    data = bytearray(large())
    first, _ = weights_of(large())
    chunk = first // CHUNK + 2
    data[chunk * CHUNK] ^= 1
    at = body_of(large()) + chunk * BYTES
    data[at : at + BYTES] = hashlib.sha256(bytes(data[chunk * CHUNK : (chunk + 1) * CHUNK])).digest()
    (tmp_path / "x.npu").write_bytes(data)
    with pytest.raises(FileFormatError, match="its checksum is wrong"):
        open_compiled(tmp_path / "x.npu")
