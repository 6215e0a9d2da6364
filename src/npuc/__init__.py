"""npuc: an open NPU compiler suite."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LAZY = ("evaluate", "plugins", "profile", "torch")
"""Packages that are there at first use: `import npuc` itself loads nothing."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return import_module(f"npuc.{name}")
    if name == "from_torch":
        return import_module("npuc.torch").from_torch
    raise AttributeError(f"module 'npuc' has no attribute '{name}'")
