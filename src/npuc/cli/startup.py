"""A quicker start of the command: what Python does while modules are loaded, and a command does not need.

Half of the time of a small command is spent on loading. Some of that brings nothing: the collector of cycles looks
through everything that was just loaded again and again, though none of it is garbage; `dataclass` compiles methods that
nobody calls (`late_methods`); and pydantic asks every installed package for plugins of its own. So the collector waits for
more objects, methods come late, and pydantic has no plugins and does not load what it would look for them with.

Only the program does this, for its own process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from npuc.cli.late_methods import late_methods
from npuc.garbage import collected_seldom

_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"

_SELDOM_USED = "importlib.metadata"
"""What pydantic loads to look for plugins, with the package `email` and more."""


@contextmanager
def quick_start() -> Iterator[None]:
    """For the time of a command: collect seldom, methods of dataclasses come late, no pydantic plugins."""
    plugins = os.environ.get(_PLUGINS)
    os.environ.setdefault(_PLUGINS, "1")
    sys.meta_path.insert(0, _AtFirstUse)
    try:
        with collected_seldom(), late_methods():
            yield
    finally:
        sys.meta_path.remove(_AtFirstUse)
        if plugins is None:
            os.environ.pop(_PLUGINS, None)


class _AtFirstUse:
    """Finds a module that is seldom used, and loads it when something of it is asked for."""

    def __init__(self, loader: Any) -> None:
        """With what loads the module."""
        self._loader = loader

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module, which is not loaded yet; None for all others."""
        spec = PathFinder.find_spec(name, path, target) if name == _SELDOM_USED else None
        if spec is not None and spec.loader is not None:
            spec.loader = cls(spec.loader)  # type: ignore[assignment]  # (importlib.abc would load more than it spares)
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """An empty one, as ever."""

    def exec_module(self, module: Any) -> None:
        """What is in the module before anything is used: the one function that pydantic imports, and the rest on demand."""

        def load(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            del module.__getattr__
            self._loader.exec_module(module)
            return getattr(module, name)

        def entry_points(**params: Any) -> Any:
            return load("entry_points")(**params)

        module.entry_points, module.__getattr__ = entry_points, load
