"""Engines: what runs a program. The float engine runs Top IR through ONNX Runtime, the integer engine Npu IR."""

from npuc.engine.compute_device import computing_on, float_engine
from npuc.engine.floating import ALL_TENSORS, FloatEngine, session_options
from npuc.engine.integer import IntegerEngine

__all__ = [
    "ALL_TENSORS",
    "FloatEngine",
    "IntegerEngine",
    "computing_on",
    "float_engine",
    "session_options",
]
