"""Quantize and dequantize of PT2E, the quantization of torch and torchao: the network keeps its integers and scales.

`convert_pt2e` leaves integer weights and these ops between the layers of a float program. A layer of fewer bits states them as
`quant_min` and `quant_max` of an 8- or 16-bit type.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from npuc.arrays import Array
from npuc.frontend.quantization import quantized_in
from npuc.frontend.torch.convert import dtype_from
from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import DType, top

_SHORT = (-8, 7)
"""Integers of 4 bits."""


@rule(
    "quantized_decomposed.quantize_per_tensor",
    "quantized_decomposed.quantize_per_channel",
    limits="scales that are known; activations of fewer bits than their type per tensor",
)
def quantize(ctx: TorchContext) -> Outcome:
    """The real numbers of a layer as integers."""
    to = _integers(ctx)
    scale, zero = _parameters(ctx, to)
    x, steps = ctx.value("input"), (ctx.literal(scale, "scale"), ctx.literal(zero, "zero_point"))
    low, high = (int(ctx.number(name)) for name in ("quant_min", "quant_max"))
    if (low, high) == to.limits:
        return ctx.emit(top.Quantize, x, *steps, axis=_axis(ctx), to=to.name).y
    if scale.size > 1:
        raise NoTopForm(f"its integers from {low} to {high} are a part of {to.name}, per channel")
    ends = (float((end - int(zero)) * scale) for end in (low, high))
    return quantized_in(ctx, x, steps, to.name, (next(ends), next(ends)))


@rule(
    "quantized_decomposed.dequantize_per_tensor",
    "quantized_decomposed.dequantize_per_channel",
    limits="scales that are known; weights of up to 4 bits are stored as such",
)
def dequantize(ctx: TorchContext) -> Outcome:
    """Integers as the real numbers that they stand for."""
    to = _integers(ctx)
    scale, zero = _parameters(ctx, to)
    x = ctx.value("input")
    if ctx.is_constant("input") and not zero.any():
        integers = ctx.known("input")
        low, high = (int(ctx.number(name)) for name in ("quant_min", "quant_max"))
        if _SHORT[0] <= low and high <= _SHORT[1] and np.array_equal(np.clip(integers, *_SHORT), integers):
            x, zero = ctx.literal(integers.astype(ml_dtypes.int4), "integers"), zero.astype(ml_dtypes.int4)
    steps = ctx.literal(scale, "scale"), ctx.literal(zero, "zero_point")
    return ctx.emit(top.Dequantize, x, *steps, axis=_axis(ctx)).y


def _integers(ctx: TorchContext) -> DType:
    """The integer type that is quantized to, or from."""
    kind = dtype_from(ctx.args["dtype"])
    if kind is None or kind.name not in ("i8", "ui8", "i16", "i32"):
        raise NoTopForm(f"its integers are {ctx.args['dtype']}")
    return kind


def _axis(ctx: TorchContext) -> int:
    return ctx.axis("axis", ctx.rank("input")) if ctx.has("axis") else 1


def _parameters(ctx: TorchContext, to: DType) -> tuple[Array, Array]:
    """Scales and zero points: scalars, or one for each channel."""
    per_channel = "axis" in ctx.args
    scale = np.asarray(ctx.known("scales" if per_channel else "scale", "scale"), np.float32)
    points = "zero_points" if per_channel else "zero_point"
    zero = ctx.known(points, "zero point") if ctx.has(points) else np.zeros(scale.shape)
    scale, zero = (part.reshape(-1 if per_channel else ()) for part in (scale, np.asarray(zero)))
    if scale.shape != zero.shape or not (np.isfinite(scale).all() and (scale > 0).all()):
        raise NoTopForm("its scales are not positive, or its zero points are not as many")
    if (zero != np.rint(zero)).any() or zero.min() < to.limits[0] or zero.max() > to.limits[1]:
        raise NoTopForm(f"its zero points are no integers of {to.name}")
    return scale, zero.astype(to.numpy)
