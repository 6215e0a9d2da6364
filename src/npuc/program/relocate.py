"""Base addresses of a compiled model, as an ini file: written, read, and given to the model.

Instructions name segments, not addresses, so that moving a model changes the table of segments and nothing else. An address
of 0 leaves the place to the loader.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from npuc.arrays import ceil_div
from npuc.errors import AddressError
from npuc.files import existing_file
from npuc.program.disassemble import printable
from npuc.program.file_reader import overlap
from npuc.program.layout import ALIGNMENT
from npuc.program.model import CompiledModel

_NOTE = """\
; Base addresses of the segments of a compiled model; `npuc relocate` gives them to it.
; address = 0 leaves the place to the loader. size and alignment are what the model needs; they cannot be changed.
"""
_KEYS = ("address", "size", "alignment")
_LARGEST_FILE = 1 << 20


def labels(model: CompiledModel) -> list[str]:
    """What the segments are called in an ini file: their names, as far as those are different and can be printed."""
    unique: list[str] = []
    for number, segment in enumerate(model.segments):
        label = printable(segment.name).strip()
        unique.append(label if label and label not in unique else f"{label}#{number}")
    return unique


def addresses_text(model: CompiledModel) -> str:
    """The ini file of a model as it is."""
    parts = [_NOTE]
    for label, segment in zip(labels(model), model.segments, strict=True):
        parts.append(
            f"[{label}]\naddress = 0x{segment.address:x}\nsize = {segment.size}\nalignment = {ALIGNMENT}\n"
        )
    return "\n".join(parts)


def read_addresses(path: Path | str, model: CompiledModel) -> dict[str, int]:
    """The addresses in an ini file, by the label of the segment; every statement about a segment has to be true of the model."""
    path = existing_file(path)
    if path.stat().st_size > _LARGEST_FILE:
        raise AddressError("is too large for a file of addresses", where=str(path))
    # A name that no section can have, so that there is no section of defaults.
    parser = configparser.ConfigParser(interpolation=None, default_section="\n")
    try:
        parser.read_string(path.read_bytes().decode("utf-8-sig"), source=path.name)
    except UnicodeDecodeError as error:
        raise AddressError("is not a text file", where=str(path)) from error
    except configparser.Error as error:
        words = " ".join(str(error).split())
        raise AddressError(f"is not an ini file: {words}", where=str(path)) from error
    sizes = {label: segment.size for label, segment in zip(labels(model), model.segments, strict=True)}
    addresses: dict[str, int] = {}
    for name in parser.sections():
        where = f"{path}, [{name}]"
        if name not in sizes:
            known = ", ".join(sizes)
            raise AddressError("the model has no segment of this name", where=where, fix=f"It has: {known}")
        section = parser[name]
        for key in section:
            if key not in _KEYS:
                raise AddressError(
                    f"there is no key '{key}'", where=where, fix=f"Keys are {', '.join(_KEYS)}"
                )
        for key, actual in (("size", sizes[name]), ("alignment", ALIGNMENT)):
            if key in section and _number(section[key], key, where) != actual:
                raise AddressError(
                    f"{key} is {section[key]}, but the model has {actual}",
                    where=where,
                    fix="The file belongs to another model; write a new one with --dump",
                )
        if "address" in section:
            addresses[name] = _number(section["address"], "address", where)
    return addresses


def _number(text: str, key: str, where: str) -> int:
    try:
        if len(text) > 40:
            raise ValueError
        return int(text, 0)
    except ValueError as error:
        fix = "Write a number such as 4096 or 0x1000"
        raise AddressError(f"{key} is no number: {text[:40]!r}", where=where, fix=fix) from error


def relocate(model: CompiledModel, addresses: Mapping[str, int]) -> CompiledModel:
    """The model with other base addresses, by the labels of segments; those that are not named keep theirs."""
    known = labels(model)
    for label in addresses:
        if label not in known:
            raise AddressError(f"the model has no segment '{label}'", fix=f"It has: {', '.join(known)}")
    segments = tuple(
        replace(segment, address=addresses.get(label, segment.address))
        for label, segment in zip(known, model.segments, strict=True)
    )
    for label, segment in zip(known, segments, strict=True):
        address = segment.address
        if address < 0 or address + segment.size > 1 << 64:
            raise AddressError(
                f"segment '{label}' of {segment.size} bytes at {address:#x} is outside 64 bits of addresses"
            )
        if address % ALIGNMENT:
            raise AddressError(
                f"segment '{label}' is at {address:#x}, which is not a multiple of {ALIGNMENT}",
                fix=f"{address // ALIGNMENT * ALIGNMENT:#x} and {ceil_div(address, ALIGNMENT) * ALIGNMENT:#x} are near",
            )
    problem = overlap(segments)
    if problem:
        raise AddressError(problem)
    return replace(model, segments=segments)


def relocate_entry(
    entries: Mapping[str, CompiledModel], name: str, addresses: Mapping[str, int]
) -> dict[str, CompiledModel]:
    """The entries of a program, one of them with other base addresses; that of the weights, which they share, is for all."""
    moved = relocate(entries[name], addresses)
    weights = moved.segments[0].address
    program: dict[str, CompiledModel] = {}
    for other, model in entries.items():
        try:
            program[other] = moved if other == name else relocate(model, {labels(model)[0]: weights})
        except AddressError as error:
            raise AddressError(error.message, where=f"entry '{other}'", fix=error.fix) from error
    return program
