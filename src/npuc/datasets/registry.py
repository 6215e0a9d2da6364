"""Where data sets and metrics come from: worker processes load the modules that a run needs by `Origin`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from npuc.errors import UsageError
from npuc.registries import Registry


@dataclass(frozen=True)
class Origin:
    """The module that registers something, and its file if it may not be found by name."""

    module: str
    file: str | None


def check_name(name: str, what: str) -> None:
    """Refuse a name that a command line could not say, where options follow behind a colon."""
    if not name or any(sign in name for sign in ",:= "):
        raise UsageError(f"'{name}' cannot be the name of a {what}: use letters, digits and dashes")


def origin(registry: Registry[str, Any], name: str) -> Origin:
    """Where a data set or a metric was registered."""
    module = registry.owner(name)
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
