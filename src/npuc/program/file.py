"""A compiled model as a `.npu` file: ELF64 with tables that C reads, JSON that tools read, and checksums of it all.

`save_compiled` writes the same bytes for the same model; `load_compiled` gives the model back, its weights and streams as
views of the mapped file. A program may have several entries: `load_entries` gives a model for each, over one set of weights.
A reader trusts nothing: what a file says is checked before it is used, here and in C (native/src/file.c).
docs/file-format.md has the whole format.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError, InternalError, UsageError, WrongTargetError
from npuc.files import existing_file, map_file, write_atomically
from npuc.program import elf, layout
from npuc.program.file_reader import Reader
from npuc.program.file_writer import make_sections
from npuc.program.model import CompiledModel
from npuc.program.signature import check_signature, public_key, sign, signer_of


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


def save_compiled(program: CompiledModel | Mapping[str, CompiledModel], path: Path | str) -> None:
    """Write a compiled model; the file appears whole or not at all, and only if it can be read again.

    Several models, by name, that `npuc.program.combine` gave common weights are the entries of one program.
    """
    try:
        sections, loads = make_sections(program)
        with write_atomically(path) as out:
            elf.write(out, sections, loads)
            out.flush()
            written = mmap.mmap(out.fileno(), 0, access=mmap.ACCESS_READ)
            parse_compiled(np.frombuffer(written, np.uint8), str(path))
    except (ValueError, OverflowError, KeyError, FileFormatError) as error:
        words = error.message if isinstance(error, FileFormatError) else str(error)
        raise InternalError(f"the compiled model cannot be written: {words}", where=str(path)) from error


def compiled_bytes(program: CompiledModel | Mapping[str, CompiledModel]) -> bytes:
    """The bytes that `save_compiled` writes."""
    out = io.BytesIO()
    elf.write(out, *make_sections(program))
    return out.getvalue()


def load_compiled(
    path: Path | str,
    target: Identified | None = None,
    *,
    verify: bool = True,
    entry: str = "",
    key: Path | str | bytes | None = None,
) -> CompiledModel:
    """Read a compiled model; with `target`, only one that was compiled for that machine.

    Of a program with several entries, this is the one that `entry` names, or the first. `verify` false leaves out the
    checksum, and with it the reading of every byte; all else is checked as always. With `key`, a public key or its file,
    only a file that it signed is read.
    """
    return named_entry(load_entries(path, target, verify=verify, key=key), entry, str(path))


def load_entries(
    path: Path | str,
    target: Identified | None = None,
    *,
    verify: bool = True,
    key: Path | str | bytes | None = None,
) -> dict[str, CompiledModel]:
    """The entries of a program by name, in their order; one that was not combined has one, of the model's name."""
    if key is not None and not verify:
        raise UsageError(
            "a signature is of the checksums, and those are left out", fix="Leave out verify=False"
        )
    return _parse(_mapped(path), str(path), target, verify, key=key)[0]


def open_entries(
    path: Path | str, key: Path | str | bytes | None = None
) -> tuple[dict[str, CompiledModel], Callable[[], None]]:
    """The entries in a time that does not grow with their weights, and what has to be called before those are used.

    All checks are made but the comparison of the weights with their checksums: that is what the function does, and it
    raises `FileFormatError` if they are damaged. With `key`, only a file that it signed is opened; the signature is of the
    checksums of the weights, too.
    """
    where = str(path)
    entries, parsed = _parse(_mapped(path), where, None, verify=True, later=layout.WEIGHTS, key=key)

    def prove() -> None:
        if not parsed.checksums.are_right(parsed.unproven):
            raise FileFormatError("is damaged: its checksum is wrong", where=where, fix=_FIX)

    return entries, prove


def open_compiled(path: Path | str, entry: str = "") -> tuple[CompiledModel, Callable[[], None]]:
    """One entry of a program, the first unless it is named, as `open_entries` opens it."""
    entries, prove = open_entries(path)
    return named_entry(entries, entry, str(path)), prove


def named_entry(entries: Mapping[str, CompiledModel], name: str, where: str) -> CompiledModel:
    """An entry by its name; the first if there is none."""
    if name and name not in entries:
        raise UsageError(
            f"the program has no entry '{name}'", where=where, fix=f"It has: {', '.join(entries)}"
        )
    return entries[name] if name else next(iter(entries.values()))


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
    """A compiled model (the first entry) from the bytes of a file, which it keeps views of."""
    return next(iter(_parse(data, where, target, verify)[0].values()))


def _parse(
    data: Array,
    where: str,
    target: Identified | None,
    verify: bool,
    later: str = "",
    key: Path | str | bytes | None = None,
) -> tuple[dict[str, CompiledModel], elf.Elf]:
    try:
        parsed = elf.read(data, where, verify, later)
        if key is not None:
            check_signature(parsed, public_key(key), where)
        reader = Reader(parsed, where)
        if target is not None and reader.fingerprint != target.fingerprint:
            raise WrongTargetError(
                f"was compiled for {reader.target_name} (fingerprint 0x{reader.fingerprint:016x}), "
                f"not for {target.name} ({target.fingerprint_text})",
                where=where,
                fix=f"Compile the model with --target {target.name}, or run it on {reader.target_name}",
            )
        names = reader.entries()
        others = [Reader(parsed, where, reader, number) for number in range(1, len(names))]
        models = [entry.model() for entry in (reader, *others)]
        return dict(zip(names or [models[0].name], models, strict=True)), parsed
    except ValueError as error:
        raise FileFormatError(f"is damaged: {error}", where=where, fix=_FIX) from error


def sign_compiled(path: Path | str, private_key: Path | str, to: Path | str) -> bytes:
    """Write a compiled model again with a signature; returns the public key that belongs to it."""
    return sign(make_sections(load_entries(path)), private_key, to)


def signer(path: Path | str) -> bytes | None:
    """The public key that a sound file says it is signed with, None if it is not; `load_entries(key=...)` verifies it."""
    return signer_of(elf.read(_mapped(path), str(path)), str(path))


def section_list(path: Path | str) -> list[tuple[str, int, int]]:
    """The sections of a file: name, first byte, bytes."""
    parsed = elf.read(_mapped(path), str(path))
    return [(section.name, section.offset, section.data.size) for section in parsed.sections[1:]]
