"""Sums, products, changes of scale, averages: docs/arithmetic-eltwise.md, arithmetic-pooling.md and arithmetic-reduce.md."""

from __future__ import annotations

from math import prod

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.export.exact.algebra import Integers, T, int64
from npuc.export.exact.registry import Exact, computes, type_of
from npuc.export.exact.rounding import (
    Stage,
    doubled,
    half_even,
    half_up,
    limited,
    power,
    requantized,
    whole,
)
from npuc.export.exact.rules.linear import window_sums
from npuc.export.exact.stage import flat_stage
from npuc.ir import npu, shape_of
from npuc.ir.definition import normal_axis


@computes(npu.Add, npu.Sub)
def add(op: npu.Add | npu.Sub, exact: Exact) -> list[T]:
    """One rounding, or TFLite's three."""
    a, kind = exact.algebra, type_of(op.y)
    x, y = exact.steps(op.a), exact.steps(op.b)
    left, m_a, s_a, m_b, s_b, m, s = (int64(number) for number in op.parameters)
    join = "sub" if isinstance(op, npu.Sub) else "add"
    match op.kind:
        case Kind.FLOAT_SCALE:
            factors = np.asarray(op.factors, np.float32)
            parts = [a.mul(a.cast(d, "f32"), np.asarray(f)) for d, f in zip((x, y), factors, strict=True)]
            value = whole(a, a.apply("round_even", a.apply(join, *parts)))
        case Kind.DOUBLE_ROUNDING:
            parts = [doubled(a, a.mul(d, power(left)), *n) for d, n in ((x, (m_a, s_a)), (y, (m_b, s_b)))]
            value = doubled(a, a.apply(join, *parts), m, s)
        case Kind.POW2:
            total = a.apply(join, a.mul(x, power(s_a)), a.mul(y, power(s_b)))
            value = half_up(a, a.mul(total, power(max(-int(s), 0))), max(int(s), 0))
        case _:
            total = a.apply(join, a.mul(x, m_a), a.mul(y, m_b))
            value = (half_even if op.kind is Kind.SINGLE_EVEN else half_up)(a, total, s)
    none = np.zeros(1, np.int64)
    stage = Stage(op.kind, none, none, none, kind.zero_point, op.lo, op.hi)
    return [exact.stored(limited(a, value, stage), kind)]


@computes(npu.Mul)
def mul(op: npu.Mul, exact: Exact) -> list[T]:
    """The product of integers, through the output stage."""
    acc = exact.algebra.mul(exact.steps(op.a), exact.steps(op.b))
    reach = exact.reach(op.a) * exact.reach(op.b)
    return [exact.stored(requantized(exact.algebra, acc, flat_stage(op), reach), type_of(op.y))]


@computes(npu.Requant)
def requant(op: npu.Requant, exact: Exact) -> list[T]:
    """The integers, through the output stage."""
    y = requantized(exact.algebra, exact.steps(op.x), flat_stage(op), exact.reach(op.x))
    return [exact.stored(y, type_of(op.y))]


@computes(npu.ReduceSum)
def reduce_sum(op: npu.ReduceSum, exact: Exact) -> list[T]:
    """The sum over axes, through the output stage."""
    a, shape = exact.algebra, shape_of(op.x)
    axes = [normal_axis(axis, len(shape)) for axis in op.axes]
    acc = a.reduce("sum", exact.steps(op.x), axes)
    reach = exact.reach(op.x) * prod(shape[axis] for axis in axes)
    y = requantized(a, acc, flat_stage(op), reach)
    return [a.reshape(exact.stored(y, type_of(op.y)), shape_of(op.y))]


@computes(npu.AvgPool)
def average(op: npu.AvgPool, exact: Exact) -> list[T]:
    """The sum of each window by the multiplier of its count; TFLite divides the sum of the integers themselves."""
    a, kind, x = exact.algebra, type_of(op.y), exact.integers(op.x)
    if op.kind is not Kind.DOUBLE_ROUNDING:
        sums, counts = window_sums(exact, x, op)
        entries = len(op.factors) if op.kind.has_scale else len(op.parameters)
        single = entries <= (2 if op.kind.has_multiplier else 1)
        stage = flat_stage(op, 0 if single else counts - 1)
        return [exact.stored(requantized(a, sums, stage, x.reach * prod(op.kernel)), kind)]
    sums, counts = window_sums(exact, Integers(x.tensor, x.low, x.high, 0), op)
    # Truncation is a floor of the magnitude.
    size = a.floor_div(a.add(a.apply("abs", sums), counts // 2), counts)
    sign = a.sub(int64(1), a.mul(a.cast(a.apply("less", sums, int64(0)), "i64"), int64(2)))
    return [exact.stored(a.clip(a.mul(size, sign), int64(op.lo), int64(op.hi)), kind)]
