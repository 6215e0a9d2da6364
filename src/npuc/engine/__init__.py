"""Engines: what runs a program. The float engine runs Top IR through ONNX Runtime."""

from npuc.engine.floating import ALL_TENSORS, FloatEngine, session_options

__all__ = ["ALL_TENSORS", "FloatEngine", "session_options"]
