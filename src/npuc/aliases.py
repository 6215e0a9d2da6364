"""Old names that still work for one release, each with a warning that tells the new one.

Modules: `npuc/__init__.py` has the table, and an import of an old name gives the module by its new name. Arguments and
fields: `renamed_keywords` decorates the function or dataclass that has them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar, cast

Renamed = TypeVar("Renamed", bound=Callable[..., Any])


class _Alias:
    """Loads the module of another name. (The base class that `importlib.abc` has for it would cost 20 ms.)"""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, not a copy: what is registered through either name is one table."""
        warnings.warn(f"{spec.name} is now {self._name}", FutureWarning, stacklevel=2)
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It is executed already; the import system has given it the spec of its old name."""
        module.__spec__ = self._spec


class Aliases:
    """Finds modules by their old names."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = table

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a name of the table, or of a module below one; None for all others."""
        if not fullname.startswith("npuc."):
            return None
        head, tail = fullname, ""
        while head != "npuc":
            if head in self._table:
                return ModuleSpec(fullname, cast(Any, _Alias(self._table[head] + tail)))
            head, _, last = head.rpartition(".")
            tail = f".{last}{tail}"
        return None


def install(table: Mapping[str, str]) -> None:
    """Let old names of modules, each with its new one, be imported. Real modules come first."""
    sys.meta_path.append(Aliases(table))


def renamed_keywords(**new_names: str) -> Callable[[Renamed], Renamed]:
    """Decorate a function, or a dataclass, some of whose keyword arguments (fields) had another name.

    >>> @renamed_keywords(picture="image")
    ... def size(image): return len(image)
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     size(picture="four")
    4
    >>> str(told[0].message)
    "size: the argument 'picture' is now 'image'"
    """

    def decorate(thing: Any) -> Any:
        function = vars(thing)["__init__"] if isinstance(thing, type) else thing

        @wraps(function)
        def accepting(*arguments: Any, **keywords: Any) -> Any:
            for old, new in new_names.items():
                if old in keywords:
                    _warn(f"{thing.__name__}: the argument '{old}' is now '{new}'")
                    keywords[new] = keywords.pop(old)
            return function(*arguments, **keywords)

        if not isinstance(thing, type):
            return accepting
        setattr(thing, "__init__", accepting)  # noqa: B010 (mypy has no name for it)
        for old, new in new_names.items():
            setattr(thing, old, _old_field(thing.__name__, old, new))
        return thing

    return decorate


def _old_field(owner: str, old: str, new: str) -> property:
    def value(self: Any) -> Any:
        _warn(f"{owner}.{old} is now {owner}.{new}")
        return getattr(self, new)

    return property(value)


def _warn(text: str) -> None:
    warnings.warn(text, FutureWarning, stacklevel=3)
