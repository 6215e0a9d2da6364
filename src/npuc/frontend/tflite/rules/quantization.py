"""Quantize and dequantize as operators of a model."""

from __future__ import annotations

import numpy as np

from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.scope import TfliteContext
from npuc.ir import dtype_of, top


@rule("DEQUANTIZE")
def dequantize(ctx: TfliteContext) -> Outcome:
    """Integers or halves to float; of a constant, now."""
    array = ctx.real_array(0)
    if array is not None:
        return array.astype(np.float32)
    nchw = ctx.turned(0)
    x, given = ctx.value(0, nchw), ctx.tensor(0).quantization
    if dtype_of(x.type).is_float:
        return LayoutTensor(ctx.emit(top.Cast, x, to="f32").y, nchw)
    if given is None or not given.per_tensor:
        raise ctx.refuse("its input has no scale, or one a channel")
    return LayoutTensor(
        ctx.emit(top.Dequantize, x, *ctx.scope.parameters(given, dtype_of(x.type), ctx.first)).y, nchw
    )


@rule("QUANTIZE")
def quantize(ctx: TfliteContext) -> Outcome:
    """Reals, or integers of another scale; the importer quantizes what a rule returns."""
    nchw = ctx.turned(0)
    return LayoutTensor(ctx.real(0, nchw), nchw)


@rule("DENSIFY")
def densify(ctx: TfliteContext) -> Outcome:
    """Sparse constants are dense from the start."""
    return ctx.known(0, "value")
