"""What importers of all formats share: errors that say where, asked names, names in messages, and what nothing uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from npuc.errors import (
    FileFormatError,
    InvalidModelError,
    NpucError,
    ResourceLimitError,
    UnknownTensorError,
    VerificationError,
)
from npuc.ir import Graph
from npuc.origins import Origins, nearest

MAX_ELEMENTS = 1 << 36
"""No tensor may have more."""
_MAX_JSON, _MAX_JSON_ITEMS = 64 << 20, 4 << 20


def guarded(path: Path | str | None, load: Callable[[], Graph]) -> Graph:
    """The graph that `load` makes, verified; whatever is wrong names the file and is one line."""
    where = None if path is None else str(path)
    try:
        graph = load()
        graph.verify()
        return graph
    except VerificationError as error:
        raise InvalidModelError(one_line(error.message), where=where) from error
    except NpucError as error:
        error.where = error.where or where
        error.message = one_line(error.message)
        raise
    except RecursionError as error:
        raise InvalidModelError("it is nested too deeply", where=where) from error
    except MemoryError as error:
        raise ResourceLimitError("the model asks for more memory than there is", where=where) from error


def bounded_json(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object of a size that a description of a network may have; Python's objects are far larger than their text."""
    items = sum(data.count(mark) for mark in b"[{,")
    if len(data) > _MAX_JSON or items > _MAX_JSON_ITEMS:
        raise ResourceLimitError(f"{what} has {len(data)} bytes of JSON, more than any network needs")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{what} is not valid JSON", fix="Save or download the model again") from error
    if not isinstance(content, dict):
        raise FileFormatError(f"{what} is not a JSON object", fix="Save or download the model again")
    return content


def check_names(
    chosen: Iterable[str], known: Iterable[str], option: str, origins: Origins | None = None
) -> None:
    """Every chosen name exists; otherwise the nearest ones are shown: tensors, though a node's name may be nearer."""
    names = list(known)
    have = set(names)
    for name in chosen:
        if name not in have:
            near = nearest(name, names, origins or Origins())
            hint = (
                f"Did you mean {' or '.join(repr(n) for n in near)}?"
                if near
                else f"Its tensors are {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
            )
            raise UnknownTensorError(f"{option}: there is no tensor '{name}' in the model", fix=hint)


class Names:
    """Names that have been given, each once; the first asker gets a name as it is.

    >>> names = Names()
    >>> [names.unique("x") for _ in range(3)]
    ['x', 'x.1', 'x.2']
    """

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}
        """In the order in which they were given, each with the name that was asked for."""
        self._numbers: dict[str, int] = {}
        """The last number that a name got; all below it are taken."""

    def unique(self, name: str) -> str:
        """The name, or the name with the first number that is free."""
        base, number = name, self._numbers.get(name, 0)
        while name in self._taken:
            number += 1
            name = f"{base}.{number}"
        if number:
            self._numbers[base] = number
        self._taken[name] = base
        return name

    def mark(self) -> int:
        """A point to `rewind` to."""
        return len(self._taken)

    def rewind(self, mark: int, keep: Iterable[str] = ()) -> None:
        """Free the names that were given since `mark`, but for some."""
        while len(self._taken) > mark:
            _, base = self._taken.popitem()
            self._numbers.pop(base, None)
        for name in keep:
            self._taken.setdefault(name, name)


def one_line(text: str) -> str:
    """Names come from the file: line breaks in them are shown as such, and long ones are cut."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return line if len(line) <= 600 else f"{line[:400]} ... {line[-150:]}"


def erase_dead(graph: Graph) -> None:
    """Drop what nothing uses, from the end backwards."""
    op = graph.block.last_op
    op = op.prev_op if op is not None else None
    while op is not None:
        previous = op.prev_op
        if not any(result.first_use for result in op.results):
            graph.block.erase_op(op)
        op = previous
