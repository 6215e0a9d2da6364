"""The form of a file: its places and their types as lines of text, without the values that one network or another puts there.

    groups[].tiles: int          a field of YAML or JSON; [] stands for all items of a list
    array meta: uint8, 1 axes    an array of an .npz file
    record file_tensor: dtype <u2 at 36

Two files of one format and version have the same form. `golden_files.py` keeps the forms of what npuc writes, so that a writer
cannot change while the version stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from npuc.program import host_ops, isa, layout
from npuc.program.file import section_list
from npuc.program.records import Record


def form(path: Path) -> list[str]:
    """The lines of a file, or of the index of a folder, by the ending of its name."""
    if path.is_dir():
        return form(path / "dump.json")
    found = _FORMS[path.suffix](path)
    return sorted({re.sub(r"\s+", " ", line) for line in found})


def fields(value: Any, place: str = "", words: bool = False) -> Iterator[str]:
    """A line for every field of a document; `words`: strings count with what they say, as those of enumerations do."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from fields(part, f"{place}.{name}" if place else str(name), words)
    elif isinstance(value, list):
        yield f"{place}: list"
        for part in value:
            yield from fields(part, f"{place}[]", words)
    else:
        said = f" {value}" if words and isinstance(value, str) else ""
        yield f"{place}: {type(value).__name__}{said}"


def _yaml(path: Path) -> Iterable[str]:
    return fields(yaml.safe_load(path.read_text()), words=True)


def _json(path: Path) -> Iterator[str]:
    """JSON, or JSON behind a line of its own (with a digest), or a JSON on every line."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        for line in text.splitlines():
            yield from fields(json.loads(line))
        return
    if not text.startswith("{"):
        head, _, text = text.partition("\n")
        yield "first line: " + re.sub(r"[0-9a-f]{64}", "DIGEST", head)
    yield from fields(json.loads(text))


def _npz(path: Path) -> Iterator[str]:
    """Arrays of all tensors together: a number at the end of a name is that of a tensor."""
    with np.load(path) as arrays:
        for name in arrays.files:
            kind = re.sub(r"\d+$", "N", name)
            yield f"array {kind}: {arrays[name].dtype}, {arrays[name].ndim} axes"
            if name == "meta":
                yield from fields(json.loads(arrays[name].tobytes()), "meta")


def _lines(path: Path) -> Iterator[str]:
    """Of each kind of line, the names that it gives values to."""
    text = path.read_text()
    yield f"first line: {text.partition(chr(10))[0]}"
    for line in text.splitlines()[1:]:
        word = re.match(r"\s*([a-z_]*)", line)
        for name in re.findall(r"\b([a-z_]+)[=>]", line):
            yield f"{word and word[1]} {name}"


def _columns(path: Path) -> Iterator[str]:
    """What a table says about itself, and how many columns a row has."""
    for line in path.read_text().splitlines():
        columns = len(re.sub('".*?"', "NAME", line).split())
        yield line if line.startswith("#") else f"{columns} columns"


def _program(path: Path) -> Iterator[str]:
    """Ops with the names of their properties, and attributes of the module."""
    for line in path.read_text().splitlines():
        op = re.search(r'"([a-z]+\.[a-z_0-9]+)"\(', line)
        name = op[1] if op else line.split()[0] if line.split() else ""
        for attribute in re.findall(r"[<{,] ?([\w.]+) = ", line):
            yield f"{name} {attribute}"


def _sections(path: Path) -> Iterator[str]:
    """Sections, and the fields of those that are JSON."""
    data = path.read_bytes()
    for name, first, size in section_list(path):
        yield f"section {name}"
        if name in (layout.META, layout.DEBUG):
            document = json.loads(data[first : first + size])
            document.pop("metadata", None)  # notes of the compiler, which a file may do without
            yield from fields(document, name)


def file_tables() -> list[str]:
    """Records, codes and limits of a `.npu` file and of its instructions."""
    records = {value.name: value for value in vars(layout).values() if isinstance(value, Record)}
    lines = [line for record in records.values() for line in _record(record.name, record.dtype)]
    for name in ("SEGMENT_KINDS", "SUBGRAPH_KINDS", "TENSOR_DTYPES"):
        lines += _codes(name, getattr(layout, name))
    for name in ("QUEUES", "DTYPES", "KINDS", "ROUNDINGS"):
        lines += _codes(name, getattr(isa, name))
    lines += [f"{name}: {getattr(layout, name)}" for name in ("ALIGNMENT", "PAGE", "MOST_AXES")]
    lines += [f"instruction {one.name}: opcode {one.opcode}, queue {one.queue}" for one in isa.INSTRUCTIONS]
    for one in isa.INSTRUCTIONS:
        lines += _record(one.name, one.dtype)
    return sorted({*lines, f"version of the instructions: {isa.VERSION}"})


def host_tables() -> list[str]:
    """Records and codes of the section of host operators."""
    records = {value.name: value for value in vars(host_ops).values() if isinstance(value, Record)}
    lines = [line for record in records.values() for line in _record(record.name, record.dtype)]
    lines += _codes("PLACES", host_ops.PLACES)
    lines += _codes("operator", (one.name for one in host_ops.HOST_OPERATORS))
    for name, words in host_ops.HOST_KINDS.items():
        lines += _codes(name, words)
    return sorted(lines)


def _record(name: str, dtype: np.dtype[Any]) -> Iterator[str]:
    yield f"record {name}: {dtype.itemsize} bytes"
    for field, place in (dtype.fields or {}).items():
        yield f"record {name}: {field} {place[0].base.str}{list(place[0].shape) or ''} at {place[1]}"


def _codes(name: str, words: Iterable[str]) -> list[str]:
    return [f"{name} {code}: {word}" for code, word in enumerate(words)]


_FORMS = {
    ".yaml": _yaml,
    ".json": _json,
    ".jsonl": _json,
    ".npz": _npz,
    ".txt": _lines,
    ".cali": _columns,
    ".mlir": _program,
    ".npu": _sections,
}
