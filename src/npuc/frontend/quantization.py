"""Integers of fewer bits than their type has, as quantization-aware networks of several formats state them."""

from __future__ import annotations

from npuc.frontend.builder import LayerBuilder
from npuc.ir import Value, top

Limits = tuple[float, float]


def quantized_in(
    ctx: LayerBuilder, x: Value, steps: tuple[Value, Value | None], to: str, limits: Limits
) -> Value:
    """A tensor, quantized per tensor, of which only some steps are used; `limits` are real, on steps.

    Limits of which one is zero are those of a ReLU and stand before. Others stand behind the full range, so that
    the layer before has a type: clip(quantize(x)) = quantize(clip(x)) for limits on steps.
    """
    low, high = limits
    if low != 0.0:
        x = ctx.emit(top.Dequantize, ctx.emit(top.Quantize, x, *steps, to=to).y, *steps).y
    return ctx.emit(top.Quantize, ctx.emit(top.Clip, x, min=low, max=high).y, *steps, to=to).y
