"""Damaged and crafted files: both readers refuse them in words, or accept the same ones, and nothing crashes."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from npuc.errors import FileFormatError
from npuc.program import checksums, elf, layout
from support.programs.files import as_bytes, good, parse, random_model, read_in_c, sealed

MUTATIONS = 5000
INTERESTING = (
    0,
    1,
    2,
    3,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    256,
    4096,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
)
WIDE = (*INTERESTING, 1 << 32, 1 << 48, (1 << 48) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 64, (1 << 64) - 1)
PYTHON_ONLY = ("JSON", "are called")
"""What only Python looks at: JSON, and names of tensors that are there twice."""


def read_in_python(data: bytes) -> str:
    """The same of Python's."""
    try:
        parse(data)
    except FileFormatError as error:
        return error.message
    return "ok"


@cache
def regions() -> list[tuple[int, int]]:
    """The parts of the file in which mutations mean most: ELF's headers, the tables, strings, instructions, JSON."""
    data = good()
    header = np.frombuffer(data, elf.HEADER.dtype, 1)[0]
    table = int(header["section_headers"])
    count = int(header["section_count"])
    found = [(0, elf.HEADER.size), (table, table + count * elf.SECTION.size)]
    found.append((elf.HEADER.size, elf.HEADER.size + 4 * elf.PROGRAM.size))
    parsed = elf.read(np.frombuffer(data, np.uint8), "")
    for section in parsed.sections[1:]:
        if section.name != layout.WEIGHTS and section.data.size:
            found.append((section.offset, section.offset + section.data.size))
    return found


def mutate(rng: np.random.Generator) -> bytes:
    """One damaged file: flipped bits, other fields, moved bytes, or a piece cut off."""
    data = bytearray(good())
    kind = rng.integers(10)
    low, high = regions()[int(rng.integers(len(regions())))]
    if kind == 0:
        return bytes(data[: int(rng.integers(len(data)))])
    if kind == 1:
        cut = int(rng.integers(len(data)))
        return bytes(data[:cut] + data[cut + int(rng.integers(1, 200)) :])
    for _ in range(int(rng.integers(1, 4))):
        if kind < 5:
            data[int(rng.integers(low, high))] ^= 1 << int(rng.integers(8))
        elif kind < 9:
            width = int(rng.choice([1, 2, 4, 8]))
            at = low + int(rng.integers(max(1, (high - low) // width))) * width
            if at + width <= len(data):
                chosen = WIDE if width == 8 else INTERESTING
                value = chosen[int(rng.integers(len(chosen)))] & ((1 << 8 * width) - 1)
                data[at : at + width] = value.to_bytes(width, "little")
        else:
            length = int(rng.integers(1, 65))
            source = int(rng.integers(len(data) - length))
            at = int(rng.integers(low, high))
            data[at : at + length] = data[source : source + length]
    return bytes(data)


def test_the_good_file_is_read_by_both(driver: Path) -> None:
    files = [
        good(),
        as_bytes(random_model(1, cores=1, target="edge-1t")),
        as_bytes(random_model(2, count=300)),
    ]
    assert read_in_c(driver, files) == ["ok"] * 3
    assert [read_in_python(data) for data in files] == ["ok"] * 3


def test_mutations_are_refused_by_both_readers_alike(driver: Path) -> None:
    rng = np.random.default_rng(5)
    files = []
    for number in range(MUTATIONS):
        data = mutate(rng)
        files.append(sealed(data) if number % 2 and len(data) > 2 * checksums.BYTES else data)
    python = [read_in_python(data) for data in files]
    c = read_in_c(driver, files)
    assert len(c) == len(files)
    for data, here, there in zip(files, python, c, strict=True):
        # What the checks do not see must not matter: a file without its checksum repaired is refused always.
        if data != good() and sealed(data) != data:
            assert here != "ok" and there != "ok"
        if any(words in here for words in PYTHON_ONLY):
            continue
        assert (here == "ok") == (there == "ok"), (here, there)
    counts = Counter(c)
    # The checks behind the checksum are reached, not only the checksum.
    assert len(counts) > 30, counts
    assert counts["its checksum is wrong"] < MUTATIONS / 2


@pytest.mark.parametrize("at", range(0, 64, 4))
def test_every_length_near_a_boundary_is_refused(driver: Path, at: int) -> None:
    data = good()
    lengths = sorted({0, at, 64 + at, len(data) // 2 + at, len(data) - 1 - at})
    files = [data[:length] for length in lengths]
    assert "ok" not in read_in_c(driver, files)
    assert "ok" not in [read_in_python(part) for part in files]


def test_the_checksum_in_c_is_that_of_hashlib(driver: Path) -> None:
    # Files of all lengths modulo the block of the hash, sealed by hashlib.
    files = [as_bytes(random_model(count=20, metadata={"pad": "x" * length})) for length in range(0, 70, 3)]
    assert read_in_c(driver, files) == ["ok"] * len(files)
