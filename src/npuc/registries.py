"""Tables that plugins add to: a name is taken once, and who comes second is told by whom.

A table of a low package is filled by packages above it, which it does not know: passes register in `npuc.ir.passes` when
`npuc.transform` is imported. `PROVIDERS` names those modules; `fill` imports them when the table is first read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib import import_module
from types import FunctionType
from typing import Any

from npuc.errors import PluginError

PROVIDERS: dict[str, tuple[str, ...]] = {}
"""Table to the modules that fill it when they are imported; `npuc/__init__.py`, which is above all packages, names them."""


def fill(table: str) -> None:
    """Import what fills a table; without effect from the second time on."""
    for module in PROVIDERS.get(table, ()):
        import_module(module)


def add_once(table: dict[Any, Any], keys: Iterable[Any], value: Any, what: str) -> None:
    """Put a value into a table under some keys, under all of them or none.

    >>> table = {"Conv": print}
    >>> add_once(table, ["Glu", "Conv"], len, "an import rule for")
    Traceback (most recent call last):
    npuc.errors.PluginError: [E602] there is an import rule for 'Conv' already. Leave one of the two out, or give yours a name \
of its own.
    >>> list(table)
    ['Conv']
    """
    keys = list(keys)
    for key in keys:
        if key in table:
            raise taken(f"{what} '{_words(key)}'", table[key])
    table.update(dict.fromkeys(keys, value))


def taken(what: str, before: object) -> PluginError:
    """The error for a name that stands for something already."""
    maker = f", of {before.__module__}" if isinstance(before, FunctionType | type) else ""
    return PluginError(
        f"there is {what} already{maker}", fix="Leave one of the two out, or give yours a name of its own"
    )


def _words(key: Any) -> str:
    if isinstance(key, type):
        return str(getattr(key, "name", key.__name__))
    return ":".join(filter(None, key)) if isinstance(key, tuple) else str(key)


def renamed(module: str, name: str, table: dict[str, Any]) -> Any:
    """What a module's old name stands for, with a warning that tells the new one; for the `__getattr__` of that module."""
    if name not in table:
        raise AttributeError(f"module '{module}' has no attribute '{name}'")
    found = table[name]
    warnings.warn(f"{module}.{name} is now {found.__name__}", FutureWarning, stacklevel=3)
    return found
