"""`vai_q_onnx.operators.vai_ops.qdq_ops`: what a session registers before it loads a quantized model.

Models that npuc writes have operators of ONNX alone: the library registers none, and is there for programs that ask for it.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.integrations.onnxruntime import library_path

__all__ = ["_lib_path", "vai_dquantize", "vai_quantize"]


def _lib_path() -> str:
    """The library for `SessionOptions.register_custom_ops_library`."""
    return str(library_path())


def vai_quantize(x: Array, scale: float, zero_point: int = 0) -> Array:
    """Reals as 8-bit integers, halves rounded up as the DPU does."""
    return np.asarray(
        np.clip(np.floor(np.asarray(x, np.float64) / scale + 0.5) + zero_point, -128, 127), np.int8
    )


def vai_dquantize(x: Array, scale: float, zero_point: int = 0) -> Array:
    """Integers as the reals that they stand for."""
    return np.asarray((np.asarray(x, np.float64) - zero_point) * scale, np.float32)
