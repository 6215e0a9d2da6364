"""Old names of modules: an import of one gives the module by its new name, and a warning that tells it.

`npuc/__init__.py` has the table. A name stays in it for one release after the move.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Alias(Loader):
    """Loads the module of another name."""

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


class Aliases(MetaPathFinder):
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
                return ModuleSpec(fullname, _Alias(self._table[head] + tail))
            head, _, last = head.rpartition(".")
            tail = f".{last}{tail}"
        return None


def install(table: Mapping[str, str]) -> None:
    """Let old names of modules, each with its new one, be imported. Real modules come first."""
    sys.meta_path.append(Aliases(table))
