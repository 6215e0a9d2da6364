"""Layer names with wildcards, as in configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from npuc.ir import layer_name, result_names


def layer_names(op: Any, aliases: Mapping[str, Sequence[str]] | None = None) -> tuple[str, ...]:
    """All names of a layer: its own, those of its results and, by `Graph.layer_aliases`, those of the original nodes that
    were merged into it."""
    own = result_names(op)
    return (layer_name(op), *own, *(name for tensor in own for name in (aliases or {}).get(tensor, ())))


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Whether one of the names equals or matches the pattern; `*` and `?` match any characters.

    >>> matches("head.*", ["head.conv"]), matches("a[1]", ["a[1]"])
    (True, True)
    """
    return any(name == pattern or fnmatchcase(name, pattern) for name in names)
