"""Engines: what runs a program. The float engine runs Top IR through ONNX Runtime, the integer engine Npu IR."""

from npuc.engine.floating import ALL_TENSORS, FloatEngine, session_options
from npuc.engine.integer import IntegerEngine

__all__ = ["ALL_TENSORS", "FloatEngine", "IntegerEngine", "session_options"]
