"""ELF64, as much as a `.npu` file needs: named sections in a row, load segments, symbols, checksums at the end.

The writer lays a file out as header, program headers, sections in the order given, section headers, and last of all one
section with the checksums of everything before it. The reader accepts that order only: each section starts where the one
before it has ended or later, so no two share a byte. Whatever a header claims is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.errors import FileFormatError, InvalidModelError
from npuc.program import checksums
from npuc.program.checksums import Checksums
from npuc.program.isa import Field
from npuc.program.records import Record

MACHINE = 0x6E70
"""Our number of a machine ("np"), which no registered one has."""
IDENT = bytes((0x7F, *b"ELF", 2, 1, 1)) + bytes(9)
"""64 bits, little-endian, version 1, no system's ABI."""
TYPE = 3
"""ET_DYN: a loader may put the segments anywhere."""
PROGBITS, SYMTAB, STRTAB, NOBITS = 1, 2, 3, 8
LOAD = 1
ALLOC, EXECUTE = 2, 4
"""Flags of a section."""
MOST_SECTIONS = 0xFF00
"""Section numbers from here on mean something else in ELF."""
DIGEST = ".npu.sha256"

HEADER = Record(
    "elf_header",
    "The first bytes of the file.",
    (
        Field("ident", "u1", "magic number, class, byte order, version", 16),
        Field("type", "u2", "ET_DYN"),
        Field("machine", "u2", "NPUC_ELF_MACHINE"),
        Field("version", "u4", "1"),
        Field("entry", "u8", "0"),
        Field("program_headers", "u8", "where they are"),
        Field("section_headers", "u8", "where they are"),
        Field("flags", "u4", "0"),
        Field("header_size", "u2", ""),
        Field("program_header_size", "u2", ""),
        Field("program_header_count", "u2", ""),
        Field("section_header_size", "u2", ""),
        Field("section_count", "u2", "with the empty section 0"),
        Field("names", "u2", "the section that holds the names of sections"),
    ),
)
SECTION = Record(
    "elf_section",
    "A section header.",
    (
        Field("name", "u4", "byte in the section of names"),
        Field("type", "u4", ""),
        Field("flags", "u8", ""),
        Field("address", "u8", ""),
        Field("offset", "u8", "first byte in the file"),
        Field("size", "u8", "bytes"),
        Field("link", "u4", ""),
        Field("info", "u4", ""),
        Field("alignment", "u8", ""),
        Field("entry_size", "u8", "bytes of a record of a table"),
    ),
)
PROGRAM = Record(
    "elf_program",
    "A program header: a segment of DRAM.",
    (
        Field("type", "u4", "PT_LOAD"),
        Field("flags", "u4", "4 read, 2 write"),
        Field("offset", "u8", "first byte in the file"),
        Field("address", "u8", "base address; 0: the loader decides"),
        Field("physical_address", "u8", "the same"),
        Field("file_size", "u8", "bytes in the file"),
        Field("memory_size", "u8", "bytes in memory"),
        Field("alignment", "u8", ""),
    ),
)
SYMBOL = Record(
    "elf_symbol",
    "A symbol.",
    (
        Field("name", "u4", ""),
        Field("info", "u1", "16 * binding + type"),
        Field("other", "u1", ""),
        Field("section", "u2", ""),
        Field("value", "u8", ""),
        Field("size", "u8", ""),
    ),
)


@dataclass(frozen=True)
class Section:
    """A section and its bytes."""

    name: str
    data: Array
    """Of any type; its bytes are what the file holds."""
    type: int = PROGBITS
    flags: int = 0
    alignment: int = 8
    entry_size: int = 0
    link: str = ""
    """The name of the section that this one refers to."""
    info: int = 0
    address: int = 0


@dataclass(frozen=True)
class Load:
    """A segment: what a program header says. `section` holds its bytes; without one there are none in the file."""

    size: int
    address: int
    alignment: int
    writable: bool
    section: str = ""


def bytes_of(array: Array) -> Array:
    """The bytes of an array, without a copy if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def write(out: IO[bytes], sections: Sequence[Section], loads: Sequence[Load]) -> None:
    """Write a file; the sections of names and of the checksums are added."""
    names = Strings()
    listed = [section.name for section in sections]
    numbers = {name: number for number, name in enumerate(listed, 1)}
    count = len(sections) + 3
    if count > MOST_SECTIONS:
        raise ValueError(f"{count} sections are too many for ELF")
    headers = np.zeros(count, SECTION.dtype)
    at = HEADER.size + PROGRAM.size * len(loads)
    # A name's place is known as soon as it is added, so the section of names can be laid out with the others.
    places = [names.add(name) for name in (*listed, ".shstrtab", DIGEST)]
    everything = [
        *sections,
        Section(".shstrtab", names.array(), STRTAB, alignment=1),
        Section(DIGEST, np.zeros(0, np.uint8), alignment=1),
    ]
    chunks: list[tuple[int, Array]] = []
    for number, (section, name) in enumerate(zip(everything, places, strict=True), 1):
        data = bytes_of(section.data)
        size = data.size
        if section.name == DIGEST:
            table = ceil_div(at, 8) * 8
            at = table + headers.nbytes
            size = checksums.size_for(at)
        at = ceil_div(at, section.alignment) * section.alignment
        headers[number] = (
            name, section.type, section.flags, section.address, at, size,
            numbers.get(section.link, 0), section.info, section.alignment, section.entry_size,
        )  # fmt: skip
        chunks.append((at, data))
        at += data.size
    programs = np.zeros(len(loads), PROGRAM.dtype)
    for number, load in enumerate(loads):
        held = headers[numbers[load.section]] if load.section else None
        offset, file_size = (int(held["offset"]), int(held["size"])) if held is not None else (0, 0)
        flags = 6 if load.writable else 4
        programs[number] = (
            LOAD,
            flags,
            offset,
            load.address,
            load.address,
            file_size,
            load.size,
            load.alignment,
        )
    header = HEADER.make(
        [
            (
                list(IDENT), TYPE, MACHINE, 1, 0, HEADER.size if loads else 0, table, 0, HEADER.size,
                PROGRAM.size, len(loads), SECTION.size, count, count - 2,
            )
        ]
    )  # fmt: skip
    pieces = [
        (0, bytes_of(header)),
        (HEADER.size, bytes_of(programs)),
        *chunks[:-1],
        (table, bytes_of(headers)),
    ]
    parts: list[memoryview | bytes] = []
    written = 0
    for place, data in pieces:
        parts += [bytes(place - written), data.data]
        written = place + data.size
    for part in parts:
        out.write(part)
    out.write(checksums.seal(parts))


@dataclass(frozen=True)
class SectionView:
    """A section of a file that was read."""

    name: str
    type: int
    data: Array
    """Its bytes in the file, not a copy."""
    entry_size: int
    offset: int
    address: int


@dataclass(frozen=True)
class Elf:
    """A file that was read: its sections, with the empty one at 0, its program headers and its checksums."""

    sections: tuple[SectionView, ...]
    programs: Array
    checksums: Checksums
    unproven: range
    """Chunks that have not been compared with their checksums."""


def read(data: Array, where: str, verify: bool = True, later: str = "") -> Elf:
    """Check a file and return its parts; `data` is the whole of it, as bytes. `verify`: also compare its checksums.

    `later` names a section whose bytes are left unproven, as far as they fill whole chunks.
    """

    def refuse(why: str) -> FileFormatError:
        return FileFormatError(why, where=where, fix="Compile the model again, or copy the file again")

    size = data.size
    if size < HEADER.size:
        raise refuse(f"is not a .npu file: it has only {size} bytes")
    header = data[: HEADER.size].view(HEADER.dtype)[0]
    if bytes(header["ident"])[:4] != IDENT[:4]:
        raise FileFormatError(
            "is not a compiled model (.npu)",
            where=where,
            fix="Compile a network with 'npuc compile', or copy the file again if it was one",
        )
    expected = {
        "type": TYPE, "machine": MACHINE, "version": 1, "entry": 0, "flags": 0, "header_size": HEADER.size,
        "program_header_size": PROGRAM.size, "section_header_size": SECTION.size,
    }  # fmt: skip
    if bytes(header["ident"]) != IDENT or any(int(header[name]) != value for name, value in expected.items()):
        raise refuse("is an ELF file, but not one for npuc")
    count, programs = int(header["section_count"]), int(header["program_header_count"])
    first, table = int(header["program_headers"]), int(header["section_headers"])
    names = int(header["names"])
    if first != (HEADER.size if programs else 0) or HEADER.size + programs * PROGRAM.size > size:
        raise refuse("is damaged: its program headers are not where they belong")
    if not 3 <= count < MOST_SECTIONS or table % 8 or table > size or count * SECTION.size > size - table:
        raise refuse("is damaged or cut off: its section headers are not inside the file")
    headers = data[table : table + count * SECTION.size].view(SECTION.dtype)
    if not 1 <= names < count or int(headers["type"][names]) != STRTAB:
        raise refuse("is damaged: the names of its sections are missing")
    body = table + count * SECTION.size
    if checksums.size_for(body) != size - body:
        raise refuse("is damaged or cut off: the checksum is not at its end")
    # Plain integers: sums of them cannot overflow.
    rows = headers.tolist()
    if any(rows[0]):
        raise refuse("is damaged: section 0 is not empty")
    end = HEADER.size + programs * PROGRAM.size
    for number, row in enumerate(rows[1:], 1):
        offset, length = row[4], row[5]
        if row[1] == NOBITS:
            raise refuse(f"is damaged: section {number} has no bytes in the file")
        limit = size if number == count - 1 else table
        if number == count - 1:
            end = body
        if offset < end or length > limit or offset > limit - length:
            raise refuse(f"is damaged: section {number} is not inside the file, or overlaps another")
        end = offset + length
    try:
        text = StringTable(data[rows[names][4] : rows[names][4] + rows[names][5]])
        titles = [text[row[0]] for row in rows]
    except ValueError as error:
        raise refuse(f"is damaged: the names of its sections: {error}") from error
    if rows[-1][4] != body or rows[-1][5] != size - body or titles[-1] != DIGEST:
        raise refuse("is damaged: the last section is not the checksum")
    sums = Checksums(data[:body], data[body:])
    unproven = range(0 if verify else sums.count)
    if verify and later in titles:
        held = rows[titles.index(later)]
        unproven = sums.inside(held[4], held[4] + held[5])
    proven = [chunk for chunk in range(sums.count) if chunk not in unproven]
    if verify and not (sums.table_is_right() and sums.are_right(proven)):
        raise refuse("is damaged: its checksum is wrong")
    sections = tuple(
        SectionView(title, row[1], data[row[4] : row[4] + row[5]], row[9], row[4], row[3])
        for title, row in zip(titles, rows, strict=True)
    )
    headed = data[HEADER.size : HEADER.size + programs * PROGRAM.size].view(PROGRAM.dtype)
    return Elf(sections, headed, sums, unproven)


class Strings:
    """A string table under construction: every string once, the empty one at 0."""

    def __init__(self) -> None:
        self._bytes = bytearray(1)
        self._places = {"": 0}

    def add(self, text: str) -> int:
        """The place of a string."""
        if text not in self._places:
            if "\0" in text:
                raise InvalidModelError(
                    f"the name {text[:100]!r} has a zero byte in it, which a compiled model cannot hold",
                    fix="Rename it in the model",
                )
            self._places[text] = len(self._bytes)
            self._bytes += text.encode() + b"\0"
        return self._places[text]

    def array(self) -> Array:
        """The table."""
        return np.frombuffer(bytes(self._bytes), np.uint8)


class StringTable:
    """A string table that was read: `table[place]` is a string, or a ValueError in words."""

    def __init__(self, data: Array) -> None:
        self._bytes = data.tobytes()
        self._known: dict[int, str] = {}
        if not self._bytes.startswith(b"\0") or not self._bytes.endswith(b"\0"):
            raise ValueError("the table of strings does not begin and end with a zero byte")
        try:
            self._bytes.decode()
        except UnicodeDecodeError as error:
            raise ValueError("the table of strings is not UTF-8") from error

    def __getitem__(self, place: int) -> str:
        known = self._known.get(place)
        if known is not None:
            return known
        # Only where a string begins: else a file could ask for the tail of one long string at each of its bytes.
        if place >= len(self._bytes) or (place and self._bytes[place - 1]):
            raise ValueError(f"no string begins at byte {place} of the table of strings")
        text = self._bytes[place : self._bytes.index(b"\0", place)].decode()
        self._known[place] = text
        return text
