"""From what pydantic found to what a user can mend: the field, its value, and what is allowed there.

An unknown field is shown with the nearest known one. With the origins that the loader keeps, a problem also has the
file and the line that the value came from, through any number of `extends`.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from npuc.errors import TargetError
from npuc.target.vocabulary import nearest

Path = tuple[str, ...]

_EMPTY = "the list is empty"


@dataclass(frozen=True)
class Origin:
    """Where a value was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a target."""

    path: Path
    message: str
    origin: Origin | None = None

    @property
    def field(self) -> str:
        """The path with dots."""
        return ".".join(self.path)

    def __str__(self) -> str:
        place = f"{self.origin}: " if self.origin else ""
        return f"{place}{self.field}: {self.message}" if self.path else f"{place}{self.message}"

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        entry: dict[str, Any] = {"field": self.field, "message": self.message}
        return entry | ({"file": self.origin.file, "line": self.origin.line} if self.origin else {})


def problems_of(
    error: ValidationError, data: Mapping[str, Any], origins: Mapping[Path, Origin] | None = None
) -> list[Problem]:
    """Every problem that pydantic found, in words."""
    problems: list[Problem] = []
    for entry in error.errors(include_url=False):
        if entry["type"] == "contradiction":
            problems.extend(entry["ctx"]["contradictions"])
            continue
        path = _path(entry["loc"], data)
        problems.append(Problem(path, _message(entry, path)))
    # A list whose only entry is wrong is not also empty.
    around = {problem.path[:-1] for problem in problems}
    unique = dict.fromkeys(p for p in problems if not (p.message == _EMPTY and p.path in around))
    return [Problem(p.path, p.message, _origin(p.path, origins or {})) for p in unique]


def target_error(problems: Sequence[Problem], where: str | None) -> TargetError:
    """One error for all problems; its message is the first."""
    first = problems[0]
    more = len(problems) - 1
    fix = None
    if more:
        plural = "s" if more > 1 else ""
        fix = f"There {'are' if more > 1 else 'is'} {more} more problem{plural}; 'npuc targets check' lists them all"
    place = str(first.origin) if first.origin else where
    message = f"{first.field}: {first.message}" if first.path else first.message
    return TargetError(message, where=place, fix=fix, problems=problems)


def _path(location: Sequence[int | str], data: Any) -> Path:
    """The location in the file: without the names that pydantic adds for keys and for the members of a union."""
    path: list[str] = []
    at = data
    for part in location:
        if part == "[key]":
            continue
        if isinstance(at, Mapping):
            path.append(str(part))
            at = at.get(part)
        elif isinstance(at, list | tuple) and isinstance(part, int):
            path.append(str(part))
            at = at[part] if part < len(at) else None
        elif at is None and isinstance(part, str) and not path:
            path.append(part)
    return tuple(path)


def _message(entry: Any, path: Path) -> str:
    kind, value, context = entry["type"], entry["input"], entry.get("ctx", {})
    shown = _shown(value)
    match kind:
        case "extra_forbidden":
            known = known_fields(path[:-1])
            hint = nearest(path[-1], known)
            return f"there is no such field{hint or '; known here: ' + ', '.join(known)}"
        case "missing":
            return "is missing"
        case "value_error":
            return str(context["error"]).rstrip(".")
        case "literal_error":
            expected = str(context["expected"]).replace(" or ", ", ").replace("'", "")
            words = [word.strip() for word in expected.split(",")]
            return f"{shown} is none of {', '.join(words)}{nearest(str(value), words)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return (
                f"{shown} is not a group of fields; known here: {', '.join(known_fields(path)) or 'any name'}"
            )
        case "int_type" | "int_parsing" | "int_from_float":
            return f"{shown} is not a whole number"
        case "string_type":
            return f"{shown} is not text"
        case "tuple_type" | "list_type":
            return f"{shown} is not a list"
        case "greater_than_equal":
            return f"{shown} is below the least allowed, {context['ge']}"
        case "less_than_equal":
            return f"{shown} is above the most allowed, {context['le']}"
        case "string_pattern_mismatch":
            return f"{shown} is not a name of letters, digits and '_' that begins with a letter"
        case "string_too_short":
            return f"{shown} is too short"
        case "string_too_long":
            return f"the text is longer than {context['max_length']} characters"
        case "too_short":
            return _EMPTY
    return f"{shown}: {entry['msg']}"


def known_fields(path: Path) -> list[str]:
    """The fields that a group in a target file may have; none where any name goes."""
    from npuc.target.model import Target

    kind: Any = Target
    for part in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            info = kind.model_fields.get(part)
            kind = _group(info.annotation) if info else None
        elif typing.get_origin(kind) is dict:
            kind = _group(typing.get_args(kind)[1])
        else:
            return []
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def _group(annotation: Any) -> Any:
    """The model or dict in an annotation, whatever is around it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) is dict:
        return annotation
    for argument in typing.get_args(annotation):
        group = _group(argument)
        if group is not None:
            return group
    return None


def _origin(path: Path, origins: Mapping[Path, Origin]) -> Origin | None:
    """The line of the value, or of the nearest group around it."""
    for length in range(len(path), -1, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return None


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a group of fields"
    if value is None:
        return "nothing"
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."
