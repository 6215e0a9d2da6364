"""Names for data sets and metrics: a decorator puts one in, the command line finds it.

Plugins and programs bring more by using the decorators. Worker processes load the modules that a run needs by `Origin`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Generic, TypeVar

from npuc.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Origin:
    """The module that registers something, and its file if it may not be found by name."""

    module: str
    file: str | None


class Registry(Generic[T]):
    """Things by name; those of npuc itself are loaded at first use."""

    def __init__(self, what: str, builtin: str) -> None:
        self._what, self._builtin = what, builtin
        self._things: dict[str, T] = {}
        self._modules: dict[str, str] = {}

    def add(self, name: str, thing: T, module: str) -> None:
        """Register; a name that is there already stands for the new one."""
        if not name or any(sign in name for sign in ",:= "):
            raise UsageError(f"'{name}' cannot be the name of a {self._what}: use letters, digits and dashes")
        self._things[name] = thing
        self._modules[name] = module

    def names(self) -> list[str]:
        """All that can be asked for."""
        importlib.import_module(self._builtin)
        return sorted(self._things)

    def items(self) -> list[tuple[str, T]]:
        """What is registered, in order."""
        importlib.import_module(self._builtin)
        return list(self._things.items())

    def get(self, name: str) -> T:
        """A thing by its name; `UsageError` has the nearest ones."""
        importlib.import_module(self._builtin)
        if name not in self._things:
            near = get_close_matches(name, self.names(), n=1)
            fix = f"Did you mean '{near[0]}'? " if near else ""
            raise UsageError(
                f"there is no {self._what} '{name}'", fix=f"{fix}There are: {', '.join(self.names())}"
            )
        return self._things[name]

    def origin(self, name: str) -> Origin:
        """Where a thing was registered."""
        self.get(name)
        module = self._modules[name]
        return Origin(module, getattr(sys.modules.get(module), "__file__", None))


def load_origins(origins: Iterable[Origin]) -> None:
    """Load the modules that register something, in a process that may not have them yet."""
    for origin in origins:
        if origin.module in sys.modules or origin.module == "__main__":
            continue
        try:
            importlib.import_module(origin.module)
        except ImportError:
            if origin.file is None:
                raise
            spec = importlib.util.spec_from_file_location(origin.module, origin.file)
            if spec is None or spec.loader is None:
                raise
            module = importlib.util.module_from_spec(spec)
            sys.modules[origin.module] = module
            spec.loader.exec_module(module)
