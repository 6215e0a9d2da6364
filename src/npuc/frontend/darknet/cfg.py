"""Darknet's `.cfg`: sections in brackets, each with `key = value` lines; comments after # and ; are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from npuc.errors import FileFormatError, InvalidModelError, ResourceLimitError

_MAX_BYTES = 4 << 20
Integers = tuple[int, ...]
Numbers = tuple[float, ...]
_MAX_SECTIONS = 1 << 13
_MEND = "Mend that line, or download the file again"


@dataclass(frozen=True)
class Section:
    """One section: its name, and values by key. `label` is how errors speak of it."""

    kind: str
    values: Mapping[str, str]
    label: str

    def _bad(self, key: str, what: str) -> InvalidModelError:
        return InvalidModelError(f"{self.label}: {key}={self.values[key][:60]} is not {what}")

    def has(self, key: str) -> bool:
        """True if a key is given."""
        return key in self.values

    def int(self, key: str, default: int = 0, least: int = -(1 << 31), most: int = 1 << 30) -> int:
        """An integer within limits."""
        if key not in self.values:
            return default
        try:
            value = int(float(self.values[key]))
        except (ValueError, OverflowError) as error:
            raise self._bad(key, "an integer") from error
        if not least <= value <= most:
            raise self._bad(key, f"between {least} and {most}")
        return value

    def float(self, key: str, default: float = 0.0) -> float:
        """A number."""
        return self.floats(key)[0] if self.has(key) else default

    def floats(self, key: str) -> Numbers:
        """Numbers with commas between."""
        try:
            numbers = tuple(float(part) for part in self.values.get(key, "").split(",") if part.strip())
        except ValueError as error:
            raise self._bad(key, "a list of numbers") from error
        if (self.has(key) and not numbers) or not all(map(isfinite, numbers)):
            raise self._bad(key, "a list of numbers")
        return numbers

    def ints(self, key: str) -> Integers:
        """Integers with commas between."""
        numbers = self.floats(key)
        if any(abs(value) > 1 << 30 for value in numbers):
            raise self._bad(key, "a list of integers")
        return tuple(int(value) for value in numbers)

    def text(self, key: str, default: str) -> str:
        """A word."""
        return self.values.get(key, default)


def parse_file(path: Path) -> tuple[Section, list[Section]]:
    """The section [net] of a file, and the layers."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ResourceLimitError(f"a .cfg of {size} bytes", where=str(path))
    return parse(path.read_bytes())


def parse(data: bytes) -> tuple[Section, list[Section]]:
    """The section [net], and the layers."""
    sections: list[tuple[str, dict[str, str]]] = []
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        line = line.split("#")[0].split(";")[0].strip()
        if not line:
            continue
        if line.startswith("["):
            if not line.endswith("]"):
                raise FileFormatError(
                    f"is not a valid .cfg: line {number}: '{line[:60]}' has no ']' at its end", fix=_MEND
                )
            if len(sections) >= _MAX_SECTIONS:
                raise ResourceLimitError(f"the .cfg has more than {_MAX_SECTIONS} sections")
            sections.append((line[1:-1].strip().lower(), {}))
        elif "=" in line and sections:
            key, _, value = line.partition("=")
            # Of a key that is given twice, Darknet takes the first.
            sections[-1][1].setdefault(key.strip(), value.strip())
        else:
            raise FileFormatError(
                f"is not a valid .cfg: line {number}: '{line[:60]}' is not key=value",
                fix=_MEND,
            )
    if not sections or sections[0][0] not in ("net", "network"):
        raise FileFormatError("is not a valid .cfg: it does not begin with [net]")
    net = Section("net", sections[0][1], "the section [net]")
    return net, [
        Section(kind, values, f"layer {index} [{kind}]") for index, (kind, values) in enumerate(sections[1:])
    ]
