"""FakeQuant nodes, which training with quantization leaves in a graph: each is quantize and dequantize in one.

TensorFlow moves the range a little, so that zero is one of the steps. On an activation the node becomes quantize and
dequantize, on a constant the integers of a weight and a dequantize: the quantization of the network is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule
from npuc.ir import Value, dtype_of, top


@dataclass(frozen=True)
class _Grid:
    """The steps of a FakeQuant node: real = (q - zero_point) * scale, per tensor or per channel; q is signed."""

    scale: Array
    zero_point: Array
    low: int
    high: int
    dtype: str


@rule("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quant(ctx: TensorflowContext) -> Outcome:
    """2 to 16 bits; constant ranges, per tensor or per channel; halves are rounded to even."""
    x, grid = ctx.x(), _grid(ctx)
    if grid.scale.size > 1 and (not x.rank or x.shape[-1] != grid.scale.size):
        raise ctx.wrong(f"it has {grid.scale.size} ranges for a tensor of shape {list(x.shape)}")
    array = x.array
    if array is not None:
        if array.dtype != np.float32:
            raise ctx.wrong(f"it quantizes {array.dtype}")
        steps = np.rint(array / grid.scale) + grid.zero_point
        integers = np.clip(steps, grid.low, grid.high).astype(dtype_of(grid.dtype).numpy)
        value = ctx.c.value(ctx.c.constant(integers, f"{ctx.node.name}/integers"))
        return LayoutTensor(_dequantized(ctx, value, grid, max(0, x.rank - 1)))
    second = x.is_turned
    axis = 1 if second else max(0, x.rank - 1)
    real = ctx.c.value(x, second)
    if (grid.low, grid.high) != dtype_of(grid.dtype).limits:
        if grid.scale.size > 1:
            raise ctx.refuse("its range is narrow and per channel")
        bounds = ((np.array([grid.low, grid.high]) - grid.zero_point) * grid.scale).tolist()
        real = ctx.c.emit(top.Clip, real, min=bounds[0], max=bounds[1]).y
    scale, zero = _parameters(ctx, grid)
    quantized = ctx.c.emit(top.Quantize, real, scale, zero, axis=axis, to=grid.dtype).y
    return LayoutTensor(_dequantized(ctx, quantized, grid, axis), second)


def _parameters(ctx: TensorflowContext, grid: _Grid) -> tuple[Value, Value]:
    name = ctx.node.name
    return (
        ctx.c.value(ctx.c.constant(grid.scale, f"{name}/scale")),
        ctx.c.value(ctx.c.constant(grid.zero_point.astype(dtype_of(grid.dtype).numpy), f"{name}/zero_point")),
    )


def _dequantized(ctx: TensorflowContext, value: Value, grid: _Grid, axis: int) -> Value:
    return ctx.c.emit(top.Dequantize, value, *_parameters(ctx, grid), axis=axis).y


def _grid(ctx: TensorflowContext) -> _Grid:
    node = ctx.node
    bits = node.integer("num_bits", 8)
    if not 2 <= bits <= 16:
        raise ctx.refuse(f"it has {bits} bits")
    ends: list[Array]
    if node.op.endswith("Args"):
        ends = [np.array(node.real(name, default)) for name, default in (("min", -6.0), ("max", 6.0))]
    else:
        ends = [ctx.known(index, "range") for index in (1, 2)]
    low, high = (np.asarray(end, np.float32) for end in ends)
    if (
        low.shape != high.shape
        or low.ndim > 1
        or not (np.isfinite(low) & np.isfinite(high) & (low < high)).all()
    ):
        raise ctx.wrong("its range makes no sense")
    offset = 1 << (bits - 1)
    first, last = int(node.flag("narrow_range")), (1 << bits) - 1
    scale = np.asarray((high - low) / np.float32(last - first), np.float32)
    exact = np.float32(first) - low / scale
    zero = np.floor(np.clip(exact, first, last) + np.float32(0.5)).astype(np.int64)
    return _Grid(scale, np.asarray(zero - offset), first - offset, last - offset, f"i{max(bits, 8)}")
