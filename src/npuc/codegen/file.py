"""A compiled model as a `.npu` file: ELF64 with tables that C reads, JSON that tools read, and a SHA-256 of it all.

`save_compiled` writes the same bytes for the same model; `load_compiled` gives the model back, its weights and streams as
views of the mapped file. A reader trusts nothing: what a file says is checked before it is used, here and in C
(native/src/file.c). docs/file-format.md has the whole format.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from npuc.codegen import elf
from npuc.codegen.file_reader import Reader
from npuc.codegen.file_writer import make_sections
from npuc.codegen.program import CompiledModel
from npuc.errors import FileFormatError, InternalError, WrongTargetError
from npuc.files import existing_file, write_atomically
from npuc.target.model import Target

Array = np.ndarray[Any, Any]


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


def load_compiled(path: Path | str, target: Target | None = None, *, verify: bool = True) -> CompiledModel:
    """Read a compiled model; with `target`, only one that was compiled for that machine.

    `verify` false leaves out the checksum, and with it the reading of every byte; all else is checked as always.
    """
    return parse_compiled(_mapped(path), str(path), target, verify=verify)


def _mapped(path: Path | str) -> Array:
    path = existing_file(path)
    if path.stat().st_size == 0:
        raise FileFormatError("is not a .npu file: it is empty", where=str(path))
    mapped: Array = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    return mapped


def parse_compiled(
    data: Array, where: str, target: Target | None = None, *, verify: bool = True
) -> CompiledModel:
    """A compiled model from the bytes of a file, which it keeps views of."""
    try:
        parsed = elf.read(data, where, verify)
        reader = Reader(parsed)
        if target is not None and reader.fingerprint != target.fingerprint:
            raise WrongTargetError(
                f"was compiled for {reader.target_name} (fingerprint 0x{reader.fingerprint:016x}), "
                f"not for {target.name} ({target.fingerprint_text})",
                where=where,
                fix=f"Compile the model with --target {target.name}, or run it on {reader.target_name}",
            )
        return reader.model()
    except ValueError as error:
        fix = "Compile the model again, or copy the file again"
        raise FileFormatError(f"is damaged: {error}", where=where, fix=fix) from error


def section_list(path: Path | str) -> list[tuple[str, int, int]]:
    """The sections of a file: name, first byte, bytes."""
    parsed = elf.read(_mapped(path), str(path))
    return [(section.name, section.offset, section.data.size) for section in parsed.sections[1:]]
