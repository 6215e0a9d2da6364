"""Fused activations: a property of the ops that have one, else an op of its own."""

from __future__ import annotations

from typing import Any

from npuc.frontend.tflite.schema import ActivationFunctionType as Fused
from npuc.frontend.tflite.scope import TfliteContext
from npuc.frontend.tflite.view import FlatbufferView
from npuc.ir import Value, top

_RELU = {Fused.RELU: 0.0, Fused.RELU6: 6.0}


def fused_relu(options: FlatbufferView | None) -> dict[str, Any]:
    """The properties of an op with a fused relu; none for other activations."""
    code = _code(options)
    return {"relu": True, "relu_limit": _RELU[code]} if code in _RELU else {}


def _code(options: FlatbufferView | None) -> int:
    return int(options.number("FusedActivationFunction")) if options is not None else 0


def activated(
    ctx: TfliteContext, value: Value, options: FlatbufferView | None, *, fuses: bool = False
) -> Value:
    """The value behind its fused activation; `fuses` says that a relu is a property of the op already.

    An integer kernel clamps what it has quantized, so that the activation stands behind a quantize op of its own.
    """
    code = _code(options)
    if code == Fused.NONE or (fuses and code in _RELU):
        return value
    if code not in (*_RELU, Fused.RELU_N1_TO_1, Fused.TANH):
        raise ctx.refuse(f"it has the fused activation {code}")
    out = ctx.output()
    if out.is_quantized and out.quantization is not None:
        if code == Fused.TANH:
            raise ctx.refuse("TFLite has no integer kernel with a fused tanh")
        integers = ctx.quantized(value, out.quantization, out.dtype)
        value = ctx.scope.dequantized(integers, out.quantization, 0, out.name)
    if code == Fused.TANH:
        return ctx.emit(top.Tanh, value).y
    if code == Fused.RELU_N1_TO_1:
        return ctx.emit(top.Clip, value, min=-1.0, max=1.0).y
    return ctx.emit(top.Relu, value, limit=_RELU[code]).y
