"""How an operator ends: a fused activation where TFLite has one, else limits as operators of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.export.tflite.arithmetic import NONE, RELU, RELU6, fused_activation
from npuc.export.tflite.emitter import TFLiteEmitter, quantization
from npuc.export.tflite.layout import Order, arranged
from npuc.export.tflite.model import TFLiteTensor
from npuc.ir import Value, dtype_of, npu, shape_of
from npuc.ir.dtypes import QuantType, quant_of

_OPTIONS = {"MAXIMUM": "MaximumMinimumOptions", "MINIMUM": "MaximumMinimumOptions"}


@dataclass(frozen=True)
class Ending:
    """Where an operator writes, the activation fused into it, and what has to be called after it."""

    out: TFLiteTensor
    activation: int
    finish: Callable[[], None]


def ending(emit: TFLiteEmitter, op: Any, order: Order, fuses: bool = True) -> Ending:
    """The ending of an op with a fused relu, or with an output stage; `fuses` if the operator can hold an activation."""
    value = op.results[0]
    kind = quant_of(value)
    if kind is None:
        return _real(emit, op, value, order, fuses)
    if not isinstance(op, npu.OutputStage):
        return Ending(emit.result(value, order), NONE, _nothing)
    activation = fused_activation(kind, op.lo, op.hi)
    least, most = kind.dtype.limits
    if activation is not None and (fuses or activation == NONE):
        return Ending(emit.result(value, order), activation, _nothing)
    limits: list[tuple[str, float]] = []
    if op.lo > least:
        limits.append(("MAXIMUM", op.lo))
    if op.hi < most:
        limits.append(("MINIMUM", op.hi))
    return _limited(emit, value, order, NONE, limits)


def _real(emit: TFLiteEmitter, op: Any, value: Value, order: Order, fuses: bool) -> Ending:
    relu, limit = getattr(op, "relu", False), getattr(op, "relu_limit", 0.0)
    if not relu:
        return Ending(emit.result(value, order), NONE, _nothing)
    if fuses and limit in (0.0, 6.0):
        return Ending(emit.result(value, order), RELU6 if limit else RELU, _nothing)
    limits = [("MAXIMUM", 0.0)] if not fuses else []
    if limit > 0:
        limits.append(("MINIMUM", limit))
    return _limited(emit, value, order, RELU if fuses else NONE, limits)


def _limited(
    emit: TFLiteEmitter, value: Value, order: Order, activation: int, limits: list[tuple[str, float]]
) -> Ending:
    first = emit.like(value, arranged(shape_of(value), order), "unlimited")
    return Ending(first, activation, lambda: limit(emit, first, value, order, limits))


def limit(
    emit: TFLiteEmitter, source: TFLiteTensor, value: Value, order: Order, limits: list[tuple[str, float]]
) -> None:
    """Bounds of elements, one operator each; the last one writes the value."""
    for index, (code, bound) in enumerate(limits):
        last = index == len(limits) - 1
        to = emit.result(value, order) if last else emit.like(value, source.shape, "limited")
        emit.operator(code, [source, scalar(emit, value, bound)], [to], _OPTIONS[code])
        source = to


def scalar(emit: TFLiteEmitter, value: Value, number: float) -> TFLiteTensor:
    """A constant of one element in a value's element type: for quantized ones the integer itself."""
    kind = quant_of(value)
    array = np.full((1,), number, dtype_of(value.type).numpy)
    return emit.constant(array, quantization(kind) if isinstance(kind, QuantType) else None, "limit")


def _nothing() -> None:
    pass
