"""Read a YAML file that may come from anyone into plain data, with the line of every value.

Only the plain core of YAML is read: groups, lists, text, numbers, true, false, null. Tags, anchors and aliases are
refused (so nothing can be expanded beyond the file's own size), as are duplicate keys, deep nesting and large files.
`yes`, `on`, `010` and `1:30` mean what they look like: text, text, ten, text.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml

from npuc.errors import FileMissingError, TargetError
from npuc.target.problems import Origin, Path

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_VALUES = 20_000

_FAST: Any = getattr(yaml, "CBaseLoader", None)
"""The parser in C, where PyYAML has it."""
_INTEGER = re.compile(r"[-+]?\d{1,18}", re.ASCII)
_FLOAT = re.compile(r"[-+]?\d{1,18}\.\d{0,18}(?:[eE][-+]?\d{1,3})?", re.ASCII)
_WORDS: dict[str, bool | None] = {
    "null": None,
    "~": None,
    "": None,
    "true": True,
    "True": True,
    "false": False,
    "False": False,
}


@dataclass
class Document:
    """The data of a file and where each value of it stands."""

    data: dict[str, Any]
    origins: dict[Path, Origin]


@dataclass
class _Level:
    """An open group or list while reading."""

    value: Any
    path: Path
    key: str | None = None
    keys: dict[str, int] = field(default_factory=dict)


def read_document(file: FilePath, shown: str | None = None) -> Document:
    """Read a file; errors name it and the line."""
    name = shown or str(file)
    try:
        with open(file, "rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileMissingError(f"cannot be read: {error.strerror or error}", where=name) from error
    if len(raw) > MAX_BYTES:
        raise TargetError(f"has more than {MAX_BYTES // 1024} KiB, which no target file needs", where=name)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TargetError("is not UTF-8 text", where=f"{name}:{line}") from error
    return parse_document(text, name)


def parse_document(text: str, name: str) -> Document:
    """Parse the text of a file whose name is `name`.

    >>> parse_document("a: {b: [1, x]}", "t.yaml").data
    {'a': {'b': [1, 'x']}}
    """
    if _FAST is not None:
        with suppress(yaml.YAMLError):
            return _build(text, name, _FAST)
    # The parser that is written in Python is slower by ten times, and its words are the same in every version.
    try:
        return _build(text, name, yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        words = " ".join(str(error.problem or error.context or "syntax error").split())
        raise TargetError(f"is not YAML: {words}", where=place) from error
    except yaml.YAMLError as error:
        words = " ".join(str(error).split())
        raise TargetError(f"is not YAML: {words[:200]}", where=name) from error


def _build(text: str, name: str, loader: Any) -> Document:
    origins: dict[Path, Origin] = {}
    stack: list[_Level] = []
    root: Any = None
    documents = values = 0
    for event in yaml.parse(text, Loader=loader):
        line = event.start_mark.line + 1 if event.start_mark else 1

        def refuse(words: str, line: int = line) -> TargetError:
            return TargetError(words, where=f"{name}:{line}")

        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise refuse(
                "anchors (&) and aliases (*) are not allowed; write the value again, or use 'extends'"
            )
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise refuse("a target file has one document, and here a second one begins")
            continue
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            stack.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        if getattr(event, "tag", None) not in (None, "!"):
            raise refuse(f"the tag '{str(event.tag)[:40]}' is not allowed")  # type: ignore[attr-defined]
        values += 1
        if values > MAX_VALUES or len(stack) >= MAX_DEPTH:
            raise refuse(f"has more than {MAX_VALUES} values, or nests deeper than {MAX_DEPTH}")
        top = stack[-1] if stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            top.key = _key(event, top, refuse, line)
            continue
        path: Path = ()
        if top is not None:
            path = (*top.path, top.key if top.key is not None else str(len(top.value)))
        value: Any = _scalar(event) if isinstance(event, yaml.ScalarEvent) else None
        if isinstance(event, yaml.MappingStartEvent):
            value = {}
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
        origins[path] = Origin(name, top.keys[top.key] if top is not None and top.key is not None else line)
        if top is None:
            root = value
        elif top.key is not None:
            top.value[top.key] = value
            top.key = None
        else:
            top.value.append(value)
        if isinstance(value, dict | list):
            stack.append(_Level(value, path))
    if not isinstance(root, dict):
        raise TargetError("is not a group of fields, as a target file has to be", where=name)
    return Document(root, origins)


def _key(event: Any, top: _Level, refuse: Any, line: int) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise refuse("a field's name has to be plain text")
    key = str(event.value)
    if key in top.keys:
        raise refuse(f"'{key[:60]}' is there twice; it was first given in line {top.keys[key]}")
    top.keys[key] = line
    return key


def _scalar(event: Any) -> Any:
    text = str(event.value)
    if event.style:  # plain text has none, or an empty one
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
