"""Modules under vendors' names: what `npuc compat install` writes shows the names of an adapter module."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

_EXTRAS = {"torch": "npuc[torch]", "tensorflow": "npuc[tensorflow]", "h5py": "npuc[keras]"}
"""What to install for a package that npuc itself does not need."""


def _adapter(name: str, adapter: str) -> ModuleType:
    """An adapter module; an error that names what `name` needs if a package of others is missing."""
    try:
        return import_module(adapter)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "npuc"):
            raise
        raise ModuleNotFoundError(
            f"'{name}' needs {package}, which is not installed: pip install '{_EXTRAS.get(package, package)}'",
            name=error.name,
        ) from None


def publish(name: str, adapter: str) -> None:
    """Give the module `name`, which is being imported, the public names of an adapter module."""
    source = _adapter(name, adapter)
    own = sys.modules[name]
    own.__doc__ = source.__doc__
    public = getattr(source, "__all__", None) or [key for key in vars(source) if not key.startswith("_")]
    for key in public:
        setattr(own, key, getattr(source, key))
    own.__dict__["__getattr__"] = lambda key: getattr(source, key)


def extend(name: str, file: str, adapter: str) -> None:
    """Import the package that `file` hides on the path, in its place, and let an adapter add to it what a vendor's build has.

    Whoever imports the package gets the installed one: its own modules are found as ever.
    """
    own = Path(file).resolve().parents[1]
    places = [place for place in sys.path if Path(place or ".").resolve() != own]
    spec = PathFinder.find_spec(name, places)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    real = module_from_spec(spec)
    hiding = sys.modules[name]
    sys.modules[name] = real
    try:
        spec.loader.exec_module(real)
    except BaseException:
        sys.modules[name] = hiding
        raise
    _adapter(name, adapter).extend(real)


def provide(modules: Mapping[str, str]) -> None:
    """Make modules importable in this process under a vendor's names, as an installed folder on PYTHONPATH would."""
    names = {".".join(name.split(".")[:end]) for name in modules for end in range(1, name.count(".") + 1)}
    for name in sorted({*modules, *names}):
        if name not in sys.modules:
            module = ModuleType(name)
            module.__path__ = []
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)
            if modules.get(name):
                publish(name, modules[name])
