"""A compiled model as a `.npu` file: ELF64 with tables that C reads, JSON that tools read, and checksums of it all.

`save_compiled` writes the same bytes for the same model; `load_compiled` gives the model back, its weights and streams as
views of the mapped file. A reader trusts nothing: what a file says is checked before it is used, here and in C
(native/src/file.c). docs/file-format.md has the whole format.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError, InternalError, WrongTargetError
from npuc.files import existing_file, map_file, write_atomically
from npuc.program import elf, layout
from npuc.program.file_reader import Reader
from npuc.program.file_writer import make_sections
from npuc.program.model import CompiledModel


class Identified(Protocol):
    """A target, by what a file is compared with."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def fingerprint(self) -> int:
        """64 bits that change with anything that can change a compiled program."""

    @property
    def fingerprint_text(self) -> str:
        """The fingerprint as users see it."""


_FIX = "Compile the model again, or copy the file again"


def save_compiled(model: CompiledModel, path: Path | str) -> None:
    """Write a compiled model; the file appears whole or not at all, and only if it can be read again."""
    try:
        sections, loads = make_sections(model)
        with write_atomically(path) as out:
            elf.write(out, sections, loads)
            out.flush()
            written = mmap.mmap(out.fileno(), 0, access=mmap.ACCESS_READ)
            parse_compiled(np.frombuffer(written, np.uint8), str(path))
    except (ValueError, OverflowError, KeyError, FileFormatError) as error:
        words = error.message if isinstance(error, FileFormatError) else str(error)
        raise InternalError(f"the compiled model cannot be written: {words}", where=str(path)) from error


def load_compiled(
    path: Path | str, target: Identified | None = None, *, verify: bool = True
) -> CompiledModel:
    """Read a compiled model; with `target`, only one that was compiled for that machine.

    `verify` false leaves out the checksum, and with it the reading of every byte; all else is checked as always.
    """
    return parse_compiled(_mapped(path), str(path), target, verify=verify)


def open_compiled(path: Path | str) -> tuple[CompiledModel, Callable[[], None]]:
    """A compiled model in a time that does not grow with its weights, and what has to be called before they are used.

    All checks are made but the comparison of the weights with their checksums: that is what the function does, and it
    raises `FileFormatError` if they are damaged.
    """
    where = str(path)
    model, parsed = _parse(_mapped(path), where, None, verify=True, later=layout.WEIGHTS)

    def prove() -> None:
        if not parsed.checksums.are_right(parsed.unproven):
            raise FileFormatError("is damaged: its checksum is wrong", where=where, fix=_FIX)

    return model, prove


def _mapped(path: Path | str) -> Array:
    path = existing_file(path)
    with open(path, "rb") as handle:
        mapped = map_file(handle)
    if not mapped:
        raise FileFormatError("is not a .npu file: it is empty", where=str(path))
    return np.frombuffer(mapped, np.uint8)


def parse_compiled(
    data: Array, where: str, target: Identified | None = None, *, verify: bool = True
) -> CompiledModel:
    """A compiled model from the bytes of a file, which it keeps views of."""
    return _parse(data, where, target, verify)[0]


def _parse(
    data: Array, where: str, target: Identified | None, verify: bool, later: str = ""
) -> tuple[CompiledModel, elf.Elf]:
    try:
        parsed = elf.read(data, where, verify, later)
        reader = Reader(parsed, where)
        if target is not None and reader.fingerprint != target.fingerprint:
            raise WrongTargetError(
                f"was compiled for {reader.target_name} (fingerprint 0x{reader.fingerprint:016x}), "
                f"not for {target.name} ({target.fingerprint_text})",
                where=where,
                fix=f"Compile the model with --target {target.name}, or run it on {reader.target_name}",
            )
        return reader.model(), parsed
    except ValueError as error:
        raise FileFormatError(f"is damaged: {error}", where=where, fix=_FIX) from error


def section_list(path: Path | str) -> list[tuple[str, int, int]]:
    """The sections of a file: name, first byte, bytes."""
    parsed = elf.read(_mapped(path), str(path))
    return [(section.name, section.offset, section.data.size) for section in parsed.sections[1:]]
