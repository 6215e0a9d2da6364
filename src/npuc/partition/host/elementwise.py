"""Sums, products, changes of scale and tables of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.export.onnx.emitter import Emitter
from npuc.ir import dtype_of, npu, shape_of
from npuc.ir.dtypes import quant_of
from npuc.partition.host import on_host
from npuc.partition.host.numbers import (
    F32,
    I64,
    double,
    finished,
    floor_shift,
    half_up,
    integers,
    number,
    reach,
    rounded,
    rounded_shift,
    scaling_of,
    stored,
)


@on_host(npu.Requant)
def requant(op: npu.Requant, emit: Emitter) -> None:
    """Another scale or type."""
    finished(emit, integers(emit, op.x), op, scaling_of(op), reach(op.x))


@on_host(npu.Dequantize)
def dequantize(op: npu.Dequantize, emit: Emitter) -> None:
    """What integers stand for: the product with their scale in float32."""
    kind = quant_of(op.x)
    assert kind is not None
    emit("Mul", emit.cast(integers(emit, op.x), F32), np.asarray(np.float32(kind.scale)), to=op.y)


@on_host(npu.Mul)
def mul(op: npu.Mul, emit: Emitter) -> None:
    """The exact product through the output stage."""
    product = emit("Mul", integers(emit, op.a), integers(emit, op.b))
    finished(emit, product, op, scaling_of(op), reach(op.a) * reach(op.b))


@on_host(npu.Add, npu.Sub)
def add(op: Any, emit: Emitter) -> None:
    """The sum or difference, by the parameters of its kind."""
    together = "Sub" if isinstance(op, npu.Sub) else "Add"
    left, m_a, s_a, m_b, s_b, m, s = op.parameters
    a, b = integers(emit, op.a), integers(emit, op.b)
    if op.kind.has_scale:
        scales = [np.asarray(np.float32(factor)) for factor in op.factors]
        reals = [emit("Mul", emit.cast(x, F32), by) for x, by in zip((a, b), scales, strict=True)]
        y = rounded(emit, emit(together, *reals))
    elif op.kind is Kind.DOUBLE_ROUNDING:
        a, b = (emit("Mul", x, number(1 << left)) for x in (a, b))
        a = double(emit, a, number(m_a), number(s_a))
        b = double(emit, b, number(m_b), number(s_b))
        y = double(emit, emit(together, a, b), number(m), number(s))
    elif not op.kind.has_multiplier:
        total = emit(together, emit("Mul", a, number(1 << s_a)), emit("Mul", b, number(1 << s_b)))
        y = rounded_shift(emit, total, number(s), op.kind.rounding)
    else:
        total = emit(together, emit("Mul", a, number(m_a)), emit("Mul", b, number(m_b)))
        y = rounded_shift(emit, total, number(s), op.kind.rounding)
    stored(emit, y, op.y, op.lo, op.hi, op.to.zero_point)


@on_host(npu.Table)
def table(op: npu.Table, emit: Emitter) -> None:
    """A gather; of a table that is interpolated, of two neighbours, and a line between them."""
    least = dtype_of(op.x.type).limits[0]
    q = integers(emit, op.x, zero_point=False)
    place = emit("Sub", q, number(least)) if least else q
    if shape_of(op.table) == (256,):
        emit("Gather", op.table, place, to=op.y, axis=0)
        return
    shift = 8 * dtype_of(op.x.type).itemsize - (shape_of(op.table)[0].bit_length() - 1)
    index = floor_shift(emit, place, number(shift))
    rest = emit("Mod", place, number(1 << shift))
    entries = emit.cast(op.table, I64)
    low = emit("Gather", entries, index, axis=0)
    high = emit("Gather", entries, emit("Add", index, number(1)), axis=0)
    step = half_up(emit, emit("Mul", emit("Sub", high, low), rest), number(shift))
    emit.cast(emit("Add", low, step), dtype_of(op.y.type), to=op.y)


@on_host(npu.ChannelTable)
def channel_table(op: npu.ChannelTable, emit: Emitter) -> None:
    """A gather from all tables, one after the other."""
    shape = shape_of(op.x)
    least = dtype_of(op.x.type).limits[0]
    starts = np.arange(shape[1], dtype=np.int64) * 256 - least
    place = emit("Add", integers(emit, op.x, zero_point=False), starts.reshape(-1, *[1] * (len(shape) - 2)))
    emit("Gather", emit.shaped(op.table, (shape[1] * 256,)), place, to=op.y, axis=0)


@on_host(npu.Reinterpret)
def reinterpret(op: npu.Reinterpret, emit: Emitter) -> None:
    """The same integers."""
    emit("Identity", op.x, to=op.y)
