"""The relu that several ops carry: max(x, 0), and at most a limit where that is positive."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from npuc.export.onnx.emitter import Emitter, Input
from npuc.ir import DType, Value, dtype_of

_NATIVE_RELU = ("f32", "f64", "f16", "bf16", "i8", "i32")


def emit_relu(emit: Emitter, x: Input, y: Value, limit: float) -> None:
    """y = relu(x), limited if `limit` is positive."""
    dtype = dtype_of(y.type)
    if limit > 0 and isfinite(limit):
        emit_clip(emit, x, y, 0.0, limit)
    elif dtype.name in _NATIVE_RELU:
        emit("Relu", x, to=y)
    else:
        emit("Max", x, emit.scalar(0, dtype), to=y)


def emit_clip(emit: Emitter, x: Input, y: Value, low: float, high: float) -> None:
    """y = x limited to [low, high]; a bound that the element type cannot exceed is left out."""
    dtype = dtype_of(y.type)
    bounds = [_bound(emit, dtype, low, upper=False), _bound(emit, dtype, high, upper=True)]
    if bounds == [None, None]:
        emit("Identity", x, to=y)
    else:
        emit("Clip", x, *bounds, to=y)


def _bound(emit: Emitter, dtype: DType, value: float, upper: bool) -> np.ndarray[Any, Any] | None:
    if dtype.is_float:
        bound = emit.scalar(value, dtype)
        useless = np.inf if upper else -np.inf
        return None if bound == useless else bound
    limits = np.iinfo(dtype.numpy)
    if upper:
        return None if value >= limits.max else np.array(max(np.floor(value), limits.min)).astype(dtype.numpy)
    return None if value <= limits.min else np.array(min(np.ceil(value), limits.max)).astype(dtype.numpy)


def unless_relu(op: Any) -> Value | None:
    """Where the node before the fused relu writes to: the op's own result if there is no relu."""
    return None if op.relu else op.y


def finish_relu(op: Any, emit: Emitter, raw: str) -> None:
    """Emit the fused relu of an op, if it has one."""
    if op.relu:
        emit_relu(emit, raw, op.y, op.relu_limit)
