"""Damaged and crafted files: both readers refuse them in words, or accept the same ones, and nothing crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.errors import FileFormatError
from npuc.program import checksums, elf, layout
from npuc.program.model import State, Tensor
from support.programs.files import (
    TENSORS,
    as_bytes,
    good,
    good_entries,
    parse,
    random_model,
    read_in_c,
    sealed,
)

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
def regions(data: bytes) -> list[tuple[int, int]]:
    """The parts of a file in which mutations mean most: ELF's headers, the tables, strings, instructions, JSON."""
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


def mutate(rng: np.random.Generator, sound: bytes) -> bytes:
    """One damaged file: flipped bits, other fields, moved bytes, or a piece cut off."""
    data = bytearray(sound)
    kind = rng.integers(10)
    low, high = regions(sound)[int(rng.integers(len(regions(sound))))]
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
        good_entries(),
        as_bytes(random_model(1, cores=1, target="edge-1t")),
        as_bytes(random_model(2, count=300)),
    ]
    assert read_in_c(driver, files) == ["ok"] * 4
    assert [read_in_python(data) for data in files] == ["ok"] * 4


def test_mutations_are_refused_by_both_readers_alike(driver: Path) -> None:
    rng = np.random.default_rng(5)
    files = []
    for number in range(MUTATIONS):
        # Every fourth file has several entries; numbers modulo 8 give both kinds with and without right checksums.
        data = mutate(rng, good_entries() if number % 8 in (6, 7) else good())
        files.append(sealed(data) if number % 2 and len(data) > 2 * checksums.BYTES else data)
    python = [read_in_python(data) for data in files]
    c = read_in_c(driver, files)
    assert len(c) == len(files)
    for data, here, there in zip(files, python, c, strict=True):
        # What the checks do not see must not matter: a file without its checksum repaired is refused always.
        if data not in (good(), good_entries()) and sealed(data) != data:
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows["name"].__setitem__(1, rows["name"][0]), "two entries have one name"),
        (lambda rows: rows["name"].__setitem__(1, 0), "one has none"),
        (lambda rows: rows["name"].__setitem__(1, 1 << 31), "no string begins"),
        (lambda rows: rows["reserved"].__setitem__(2, 1), "the table of entries is damaged"),
    ],
)
def test_tables_of_entries_that_lie(change: Callable[[Any], None], words: str, driver: Path) -> None:
    data = bytearray(good_entries())
    parsed = elf.read(np.frombuffer(bytes(data), np.uint8), "")
    table = next(section for section in parsed.sections if section.name == layout.ENTRIES)
    rows = table.data.copy().view(layout.ENTRY.dtype)
    change(rows)
    data[table.offset : table.offset + rows.nbytes] = rows.tobytes()
    assert words in read_in_python(sealed(data))
    assert read_in_c(driver, [sealed(data)]) != ["ok"]


def test_an_entry_for_another_machine_is_refused(driver: Path) -> None:
    for field in ("fingerprint", "cores", "local_bytes", "shared_bytes"):
        data = bytearray(good_entries())
        parsed = elf.read(np.frombuffer(bytes(data), np.uint8), "")
        (header,) = (s for s in parsed.sections if s.name == layout.section_of(".npu.header", 2))
        rows = header.data.copy().view(layout.HEADER.dtype)
        rows[field] += 1
        data[header.offset : header.offset + rows.nbytes] = rows.tobytes()
        assert "its entries are for different machines" in read_in_python(sealed(data))
        assert read_in_c(driver, [sealed(data)]) == ["its entries are for different machines"]


def model_with_states(states: int, others: int = 0) -> bytes:
    """The file of a model whose inputs are all states but `others`, which the graph does not use."""
    before, after, unused = (
        [f"{name}{k}" for k in range(n)] for name, n in (("x", states), ("y", states), ("z", others))
    )
    tensors = (Tensor(name, (1,), (0,), "f32", 0.0, 0, 1, 0, 4) for name in (*before, *after, *unused))
    return as_bytes(
        random_model(
            count=20,
            tensors=(*TENSORS, *tensors),
            inputs=("image", *before, *unused),
            outputs=("scores", *after),
            states=tuple(map(State, before, after)),
        )
    )


def test_states_are_bounded_so_that_no_file_is_slow_to_open(driver: Path) -> None:
    # A reader that has no memory of its own compares every state with every input, output and other state.
    most = layout.MOST_STATES
    cases = {
        "at most 4096": model_with_states(most + 1),
        "at most 65536": model_with_states(1, layout.MOST_STREAM_TENSORS),
    }
    refused = [
        "there are more states than a model may have",
        "a model with states has more inputs and outputs than it may have",
    ]
    assert read_in_c(driver, [model_with_states(most), *cases.values()]) == ["ok", *refused]
    assert read_in_python(model_with_states(most)) == "ok"
    for words, data in cases.items():
        assert words in read_in_python(data)
