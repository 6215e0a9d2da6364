"""The calibration table: a text file with one line per tensor, which can be read, edited, compared and loaded again.

    # npuc calibration table, version 1
    # name      threshold  min     max    method
    input       2.64       -2.118  2.64   max
    "a tensor"  6.0        0.0     6.0    kl

`threshold` is for symmetric schemes, `min` and `max` are for affine ones. Numbers are written so that they read back as
the same floats. The method column is optional, so tables of other tools with name, threshold, min and max can be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from npuc.calib.collection import observed_tensors
from npuc.errors import FileFormatError, UnknownTensorError
from npuc.files import read_short, write_atomically
from npuc.format_versions import CALIBRATION_TABLE
from npuc.ir import Graph

_HEADER = "# npuc calibration table, version "
_COLUMNS = ("# name", "threshold", "min", "max", "method")
_NAME_WIDTH, _NUMBER_WIDTH = 56, 14
_MAX_FILE = 256 << 20
GIVEN = "given"
"""The method of a line that has none."""


@dataclass(frozen=True)
class Entry:
    """The range of one tensor."""

    name: str
    threshold: float
    """For symmetric schemes: the range is (-threshold, threshold)."""
    min: float
    """For affine schemes; at most 0."""
    max: float
    """For affine schemes; at least 0."""
    method: str = GIVEN

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.threshold, self.min, self.max))):
            raise ValueError("a number is not finite")
        if self.threshold < 0:
            raise ValueError(f"the threshold {self.threshold} is below 0")
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")


@dataclass(frozen=True)
class CalibrationTable(Mapping[str, Entry]):
    """The ranges of the tensors of a network, by name, in the order of the program."""

    entries: Mapping[str, Entry]
    comments: tuple[str, ...] = ()
    """The settings that produced the table; written at its top."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Notes of the run for the user; not written to the file."""

    @staticmethod
    def of(entries: Iterable[Entry], comments: Iterable[str] = ()) -> CalibrationTable:
        """A table of entries."""
        return CalibrationTable({entry.name: entry for entry in entries}, tuple(comments))

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def check(self, graph: Graph) -> list[str]:
        """The tensors of a network that have no entry; an entry that names no tensor of the network is an error."""
        known = observed_tensors(graph)
        unknown = [name for name in self if name not in set(known) and graph.find(name) is None]
        if unknown:
            near = get_close_matches(unknown[0], known, n=3, cutoff=0.5)
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            raise UnknownTensorError(
                f"the calibration table has '{unknown[0]}'{more}, which is no tensor of the network",
                fix=f"The nearest names are: {', '.join(near)}"
                if near
                else "Is the table of another network?",
            )
        return [name for name in known if name not in self]


def format_table(table: CalibrationTable) -> str:
    """A table as text.

    >>> print(format_table(CalibrationTable.of([Entry("x", 1.0, -1.0, 0.5, "max")])).splitlines()[-1].split())
    ['x', '1.0', '-1.0', '0.5', 'max']
    """
    lines = [
        f"{_HEADER}{CALIBRATION_TABLE.version}",
        *(f"# {comment}" for comment in table.comments),
        _line(_COLUMNS),
    ]
    for entry in table.values():
        numbers = (repr(float(value)) for value in (entry.threshold, entry.min, entry.max))
        lines.append(_line((_quoted(entry.name), *numbers, entry.method)))
    return "\n".join(lines) + "\n"


def parse_table(text: str, where: str = "calibration table") -> CalibrationTable:
    """Read a table; `FileFormatError` names the line."""
    entries: dict[str, Entry] = {}
    comments: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("#"):
            if stripped.startswith(_HEADER):
                _check_version(stripped.removeprefix(_HEADER), where)
            elif not entries and stripped.split()[:2] != _COLUMNS[0].split():
                comments.append(stripped[1:].strip())
            continue
        if not stripped:
            continue
        try:
            entry = _parse_line(stripped)
            if entry.name in entries:
                raise ValueError(f"tensor '{entry.name}' is there twice")
        except ValueError as error:
            raise FileFormatError(
                str(error), where=f"{where}, line {number}", fix="A line is: name threshold min max [method]"
            ) from error
        entries[entry.name] = entry
    return CalibrationTable(entries, tuple(comments))


def save_table(table: CalibrationTable, path: Path | str) -> None:
    """Write a table to a file."""
    with write_atomically(path) as out:
        out.write(format_table(table).encode())


def load_table(path: Path | str) -> CalibrationTable:
    """Read a table from a file."""
    data = read_short(path, _MAX_FILE, "a calibration table", FileFormatError)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FileFormatError("is not a text file", where=str(path)) from error
    table = parse_table(text, str(path))
    if not table:
        raise FileFormatError(
            "has no line with a range", where=str(path), fix="Write it with 'npuc calibrate'"
        )
    return table


def _check_version(text: str, where: str) -> None:
    """Refuse a table of a later npuc; a table of another tool states no version."""
    CALIBRATION_TABLE.check(int(text) if text.isascii() and text.isdigit() else text, where)


def _parse_line(line: str) -> Entry:
    if line.startswith('"'):
        try:
            name, end = json.JSONDecoder().raw_decode(line)
        except ValueError as error:
            raise ValueError("the quoted name does not end") from error
        words = [name, *line[end:].split()]
    else:
        words = line.split()
    if not 4 <= len(words) <= 5:
        raise ValueError(f"{len(words)} columns in place of 4 or 5")
    numbers = []
    for label, word in zip(("threshold", "min", "max"), words[1:4], strict=True):
        try:
            numbers.append(float(word))
        except ValueError as error:
            raise ValueError(f"{label} '{word}' is not a number") from error
    threshold, low, high = numbers
    return Entry(str(words[0]), threshold, low, high, words[4] if len(words) == 5 else GIVEN)


def _quoted(name: str) -> str:
    plain = name and name.isprintable() and not any(c.isspace() for c in name) and name[0] not in '#"'
    return name if plain else json.dumps(name)


def _line(words: Iterable[str]) -> str:
    name, threshold, low, high, method = words
    numbers = "  ".join(word.ljust(_NUMBER_WIDTH) for word in (threshold, low, high))
    return f"{name.ljust(_NAME_WIDTH)}  {numbers}  {method}".rstrip()
