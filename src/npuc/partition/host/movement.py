"""Ops that move integers: the export rules of `top` where ONNX Runtime has them for the type, or another way there."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.export.onnx.emitter import Emitter
from npuc.ir import Graph, dtype_of, npu, shape_of, top
from npuc.ir.dtypes import quant_of
from npuc.kernels.resampling import interpolation
from npuc.partition.host import on_host, same_on_host
from npuc.partition.host.numbers import F32, I64, number, rounded_shift

same_on_host(
    top.Reshape,
    top.Permute,
    top.Concat,
    top.Split,
    top.Slice,
    top.Expand,
    top.Tile,
    top.ShuffleChannel,
    top.Gather,
)


@on_host(top.Pad)
def pad(op: top.Pad, emit: Emitter) -> None:
    """Pad in float32; a constant border holds the integer that stands for the value."""
    kind = quant_of(op.x)
    assert kind is not None
    border = None
    if op.mode == "constant":
        least, most = kind.dtype.limits
        code = int(min(max(np.rint(op.value / kind.scale) + kind.zero_point, least), most))
        border = np.asarray(np.float32(code))
    y = emit("Pad", emit.cast(op.x, F32), emit.ints(*op.pads), border, mode=op.mode)
    emit.cast(y, dtype_of(op.y.type), to=op.y)


def _not_nearest(op: top.Resize, graph: Graph) -> str | None:
    return None if op.mode == "nearest" else f"{op.mode} interpolation has no integer form"


@on_host(top.Resize, objection=_not_nearest)
def nearest(op: top.Resize, emit: Emitter) -> None:
    """A gather along each axis that changes."""
    maps = [
        (axis, index)
        for axis, index in enumerate(op.nearest_maps())
        if index.tolist() != list(range(shape_of(op.x)[axis]))
    ]
    x: Any = op.x
    for axis, index in maps:
        x = emit("Gather", x, index, axis=axis)
    emit("Identity", x, to=op.y)


@on_host(top.Max, top.Min)
def choose(op: Any, emit: Emitter) -> None:
    """Through float32: ONNX Runtime compares few types of integers."""
    y = emit("Max" if isinstance(op, top.Max) else "Min", emit.cast(op.a, F32), emit.cast(op.b, F32))
    emit.cast(y, dtype_of(op.y.type), to=op.y)


@on_host(top.DepthToSpace, top.SpaceToDepth)
def blocks(op: Any, emit: Emitter) -> None:
    """Through float32: ONNX Runtime does not move 16-bit integers so."""
    mode = op.mode if isinstance(op, top.DepthToSpace) else None
    node = "DepthToSpace" if isinstance(op, top.DepthToSpace) else "SpaceToDepth"
    y = emit(node, emit.cast(op.x, F32), blocksize=op.block, mode=mode)
    emit.cast(y, dtype_of(op.y.type), to=op.y)


@on_host(npu.ResizeBilinear)
def bilinear(op: npu.ResizeBilinear, emit: Emitter) -> None:
    """Both neighbours of each row, then of each column, by their weights in int64, and one rounding."""
    shape = shape_of(op.x)
    x = emit.cast(op.x, I64)
    bits = 0
    for axis in (2, 3):
        table = interpolation(
            op.kind, shape[axis], op.sizes[axis], op.coordinates, op.scales[axis] if op.scales else None
        )
        weight = number(table.weight).reshape((-1, *(1,) * (3 - axis)))
        low, high = (emit("Gather", x, number(index), axis=axis) for index in (table.low, table.high))
        x = emit("Add", emit("Mul", low, (1 << table.bits) - weight), emit("Mul", high, weight))
        bits += table.bits
    x = rounded_shift(emit, x, number(bits), op.kind.shift_rounding)
    emit.cast(x, dtype_of(op.y.type), to=op.y)
