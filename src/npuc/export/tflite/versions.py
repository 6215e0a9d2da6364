"""Versions of operators: the first one that knows the element types an operator is given.

An interpreter that does not know a version says so when it loads the file, before it runs anything.
"""

from __future__ import annotations

_VERSIONS: dict[str, dict[str, int]] = {
    "ABS": {"i8": 2, "i16": 3},
    "ADD": {"i8": 2, "ui8": 1, "i16": 3},
    "ARG_MAX": {"i8": 2, "ui8": 2},
    "ARG_MIN": {"i8": 2, "ui8": 2},
    "AVERAGE_POOL_2D": {"i8": 2, "i16": 3},
    "BATCH_MATMUL": {"i8": 2, "i16": 3},
    "BROADCAST_TO": {"": 2, "i16": 3},
    "CONCATENATION": {"i8": 2, "i16": 3},
    "CONV_2D": {"i8": 3, "i16": 4},
    "DEPTHWISE_CONV_2D": {"": 2, "i8": 3, "i16": 5},
    "DEQUANTIZE": {"i8": 2, "i16": 3},
    "EXP": {"i8": 2, "i16": 2},
    "FULLY_CONNECTED": {"": 6, "i8": 6, "i16": 7},
    "GATHER": {"i8": 2, "i16": 4},
    "GELU": {"i8": 2},
    "L2_NORMALIZATION": {"i8": 2},
    "LEAKY_RELU": {"i8": 2, "i16": 2},
    "LOG": {"i8": 2, "i16": 2},
    "LOGISTIC": {"i8": 2, "i16": 3},
    "MAXIMUM": {"i8": 2, "i16": 4},
    "MAX_POOL_2D": {"i8": 2, "i16": 3},
    "MEAN": {"i8": 2, "i16": 3},
    "MINIMUM": {"i8": 2, "i16": 4},
    "MIRROR_PAD": {"i8": 2, "i16": 3},
    "MUL": {"i8": 2, "i16": 4},
    "PAD": {"i8": 2, "i16": 4},
    "PADV2": {"i8": 2, "i16": 4},
    "QUANTIZE": {"f32": 1, "i8": 2, "ui8": 2, "i16": 2},
    "REDUCE_MAX": {"i8": 2, "i16": 3},
    "REDUCE_MIN": {"i8": 2, "i16": 3},
    "RELU": {"i8": 2, "ui8": 2, "i16": 3},
    "RELU6": {"i8": 2, "ui8": 2, "i16": 3},
    "RESIZE_BILINEAR": {"": 3, "i16": 4},
    "RESIZE_NEAREST_NEIGHBOR": {"": 3, "i16": 4},
    "RSQRT": {"i8": 2, "i16": 3},
    "SLICE": {"i8": 2, "i16": 4},
    "SOFTMAX": {"i8": 2, "i16": 3},
    "SPACE_TO_DEPTH": {"i8": 2},
    "SPLIT_V": {"i8": 2},
    "STRIDED_SLICE": {"i8": 2, "i16": 4, "i1": 3},
    "SUB": {"i8": 2, "i16": 5},
    "SUM": {"i8": 2, "i16": 2},
    "TANH": {"i8": 2, "i16": 3},
    "TILE": {"i8": 2},
    "TRANSPOSE": {"i8": 2, "i16": 4},
    "TRANSPOSE_CONV": {"": 3, "i16": 4},
}


def version(code: str, dtype: str) -> int:
    """The version of an operator whose first operand has an element type.

    >>> version("CONV_2D", "i8"), version("CONV_2D", "f32")
    (3, 1)
    """
    known = _VERSIONS.get(code, {})
    return known.get(dtype, known.get("", 1))
