"""Steps of a formula of reals, one operator each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.model import TFLiteTensor
from npuc.ir import Value

OPTIONS = {
    "ABS": "AbsOptions",
    "COS": "CosOptions",
    "EXP": "ExpOptions",
    "GELU": "GeluOptions",
    "HARD_SWISH": "HardSwishOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "LOGICAL_NOT": "LogicalNotOptions",
    "NEG": "NegOptions",
}
"""The schema's table of each function that has one."""
_FUSED = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}


def binary(
    emit: TFLiteEmitter,
    value: Value,
    code: str,
    a: TFLiteTensor,
    b: TFLiteTensor | float,
    out: TFLiteTensor | None = None,
) -> TFLiteTensor:
    """A step on the way to a value: the shape is that of `a`, the element type that of the value."""
    y = emit.like(value, a.shape, code.lower()) if out is None else out
    other = emit.constant(np.array([b], np.float32)) if isinstance(b, float) else b
    emit.operator(code, [a, other], [y], _FUSED[code], FusedActivationFunction=0)
    return y


def unary(emit: TFLiteEmitter, value: Value, code: str, a: TFLiteTensor) -> TFLiteTensor:
    """A step of one operand."""
    y = emit.like(value, a.shape, code.lower())
    emit.operator(code, [a], [y], OPTIONS.get(code, ""))
    return y


def mean(emit: TFLiteEmitter, value: Value, a: TFLiteTensor, axes: Sequence[int]) -> TFLiteTensor:
    """The mean over axes, which stay with one element."""
    shape = [1 if i in axes else n for i, n in enumerate(a.shape)]
    y = emit.like(value, shape, "mean")
    emit.operator("MEAN", [a, emit.integers(sorted(axes))], [y], "ReducerOptions", KeepDims=True)
    return y
