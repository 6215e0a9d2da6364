"""Modules under vendors' names: what `npuc compat install` writes shows the names of an adapter module."""

from __future__ import annotations

import sys
from importlib import import_module


def publish(name: str, adapter: str) -> None:
    """Give the module `name`, which is being imported, the public names of an adapter module."""
    source = import_module(adapter)
    own = sys.modules[name]
    own.__doc__ = source.__doc__
    public = getattr(source, "__all__", None) or [key for key in vars(source) if not key.startswith("_")]
    for key in public:
        setattr(own, key, getattr(source, key))
    own.__dict__["__getattr__"] = lambda key: getattr(source, key)
