"""cfg files: ini files whose sections are Common, Parser, Optimizer and GBuilder.

Values are texts; an empty one means that the key is not given. A key that the tool does not have is a warning, as in the tools
themselves, and an error under NPUC_COMPAT_STRICT=1.
"""

from __future__ import annotations

import configparser
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from npuc.compat.arguments import is_strict
from npuc.compat.compass.logger import say
from npuc.errors import FileFormatError, UsageError
from npuc.files import existing_file, read_short

_LARGEST = 1 << 20
_TRUTH = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
SECTIONS = ("Common", "Parser", "Optimizer", "GBuilder")


@dataclass(frozen=True)
class CfgSection:
    """The keys of a section that have a value."""

    name: str
    values: Mapping[str, str]
    path: str = "the cfg file"

    def wrong(self, key: str, words: str) -> UsageError:
        """The error for a value that cannot be."""
        return UsageError(f"[{self.name}] {key} = {self.values.get(key, '')} {words}", where=self.path)

    def text(self, key: str, default: str = "") -> str:
        """A text; `default` if the key is not given."""
        return self.values.get(key, default)

    def required(self, key: str) -> str:
        """A text that has to be there."""
        if key not in self.values:
            raise UsageError(f"[{self.name}] has no {key}", where=self.path, fix=f"Add {key} = ...")
        return self.values[key]

    def integer(self, key: str, default: int, least: int = 0, most: int = 1 << 31) -> int:
        """An integer in a range."""
        if key not in self.values:
            return default
        try:
            number = int(self.values[key])
        except ValueError:
            raise self.wrong(key, "is no integer") from None
        if not least <= number <= most:
            raise self.wrong(key, f"is not from {least} to {most}")
        return number

    def number(self, key: str, default: float, least: float = 0.0, most: float = 1e30) -> float:
        """A number in a range."""
        if key not in self.values:
            return default
        try:
            number = float(self.values[key])
        except ValueError:
            raise self.wrong(key, "is no number") from None
        if not least <= number <= most:
            raise self.wrong(key, f"is not from {least:g} to {most:g}")
        return number

    def flag(self, key: str, default: bool = False) -> bool:
        """A truth value."""
        if key not in self.values:
            return default
        word = self.values[key].lower()
        if word not in _TRUTH:
            raise self.wrong(key, "is neither true nor false")
        return _TRUTH[word]

    def choice(self, key: str, names: Collection[str], default: str = "") -> str:
        """One of some words, whatever its capitals, as the tool's document spells it."""
        word = self.values.get(key, default)
        by_lower = {name.lower(): name for name in names}
        if word.lower() not in by_lower and word:
            raise self.wrong(key, f"is none of {', '.join(names)}")
        return by_lower.get(word.lower(), word)

    def names(self, key: str) -> list[str]:
        """Words with commas between."""
        return [word for part in self.values.get(key, "").split(",") if (word := part.strip())]

    def check_known(self, known: Collection[str], ignored: Mapping[str, str]) -> None:
        """A word about each key that is passed over."""
        for key in self.values:
            if key in ignored:
                say("W", f"{key} has no effect here: {ignored[key]}", self.name)
            elif key not in known:
                near = get_close_matches(key, [*known, *ignored], 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                words = f"[{self.name}] has no key '{key}'{hint}"
                if is_strict():
                    raise UsageError(words, where=self.path, fix="Leave it out, or unset NPUC_COMPAT_STRICT")
                say("W", f"{words}: it is passed over", self.name)


def read_cfg(path: Path | str) -> dict[str, CfgSection]:
    """The sections of a cfg file by name; keys without a value are left out."""
    place = existing_file(path)
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    try:
        parser.read_string(read_short(place, _LARGEST, "a cfg file", FileFormatError).decode(), str(place))
    except UnicodeDecodeError as error:
        raise FileFormatError("is not a text file", where=str(place)) from error
    except configparser.Error as error:
        words = " ".join(str(error).split())
        raise FileFormatError(
            f"is not a cfg file: {words}", where=str(place), fix="It begins with [Common]"
        ) from error
    by_lower = {name.lower(): name for name in SECTIONS}
    sections = {}
    for title in parser.sections():
        name = by_lower.get(title.lower())
        if name is None:
            raise FileFormatError(
                f"has a section [{title}]", where=str(place), fix=f"The sections are {', '.join(SECTIONS)}"
            )
        values = {key: value.strip() for key, value in parser.items(title) if value.strip()}
        sections[name] = CfgSection(name, values, str(place))
    if not sections:
        raise FileFormatError("has no section", where=str(place), fix="It begins with [Common]")
    return sections


def only_section(path: Path | str, tool: str) -> CfgSection:
    """The section of a cfg file of one tool, which is Common; a section of the tool's own name adds to it."""
    sections = read_cfg(path)
    merged = {**dict(sections["Common"].values if "Common" in sections else {})}
    merged |= sections[tool].values if tool in sections else {}
    if "Common" not in sections and tool not in sections:
        raise FileFormatError("has no section [Common]", where=str(path))
    return CfgSection(tool, merged, str(path))
