"""From real numbers to integers and back: docs/arithmetic-eltwise.md."""

from __future__ import annotations

import numpy as np

from npuc.export.exact.algebra import T, int64
from npuc.export.exact.registry import Exact, computes, type_of
from npuc.export.exact.rounding import whole
from npuc.ir import npu


@computes(npu.Quantize)
def quantize(op: npu.Quantize, exact: Exact) -> list[T]:
    """sat(round(x / scale) + zero_point), the division in float32; NaN becomes the zero point."""
    a, kind = exact.algebra, type_of(op.y)
    steps = a.apply("div", exact.raw(op.x), np.asarray(kind.scale, np.float32))
    steps = a.where(a.apply("is_nan", steps), np.asarray(0, np.float32), steps)
    if op.rounding == "half_even":
        rounded = whole(a, a.apply("round_even", steps))
    else:
        bound = np.float32(1 << 22)
        size = a.apply("minimum", a.apply("abs", steps), np.asarray(bound))
        down = a.apply("floor", size)
        up = a.cast(a.apply("less", a.apply("sub", size, down), np.asarray(0.5, np.float32)), "i64")
        away = a.add(a.cast(down, "i64"), a.sub(int64(1), up))
        sign = a.cast(a.apply("less", steps, np.asarray(0, np.float32)), "i64")
        rounded = a.mul(away, a.sub(int64(1), a.mul(sign, int64(2))))
    low, high = kind.dtype.carrier.limits
    y = a.clip(a.add(rounded, int64(kind.zero_point)), int64(low), int64(high))
    return [exact.stored(y, kind)]


@computes(npu.Dequantize)
def dequantize(op: npu.Dequantize, exact: Exact) -> list[T]:
    """float32(q - zero_point) * float32(scale)"""
    a, kind = exact.algebra, type_of(op.x)
    return [a.mul(a.cast(exact.steps(op.x), "f32"), np.asarray(kind.scale, np.float32))]


@computes(npu.Reinterpret)
def reinterpret(op: npu.Reinterpret, exact: Exact) -> list[T]:
    """The same integers."""
    return [exact.raw(op.x)]
