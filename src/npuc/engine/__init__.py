"""Engines: what runs a program. The float engine runs Top IR through ONNX Runtime, the integer engine Npu IR."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.engine.compute_device import computing_on, float_engine
    from npuc.engine.floating import ALL_TENSORS, FloatEngine, session_options
    from npuc.engine.integer import IntegerEngine

_HOMES = {
    "ALL_TENSORS": "npuc.engine.floating",
    "FloatEngine": "npuc.engine.floating",
    "IntegerEngine": "npuc.engine.integer",
    "computing_on": "npuc.engine.compute_device",
    "float_engine": "npuc.engine.compute_device",
    "session_options": "npuc.engine.floating",
}
"""What is loaded at first use: the integer engine needs no ONNX Runtime."""

__all__ = [
    "ALL_TENSORS",
    "FloatEngine",
    "IntegerEngine",
    "computing_on",
    "float_engine",
    "session_options",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'npuc.engine' has no attribute '{name}'")
