"""Normalization and bilinear resize: docs/arithmetic-norm.md and arithmetic-resize.md."""

from __future__ import annotations

from math import prod

import numpy as np

from npuc.arithmetic.kinds import Kind, Rounding
from npuc.arrays import Array
from npuc.export.exact.algebra import Algebra, T, int64
from npuc.export.exact.registry import Exact, computes, type_of
from npuc.export.exact.rounding import NoExactForm, half_away, half_even, half_up
from npuc.export.exact.rules.softmax import bits_of
from npuc.ir import npu, shape_of
from npuc.ir.definition import normal_axis
from npuc.kernels.resampling import interpolation

_EVEN_POWERS = int64([1 << (2 * half) for half in range(31)])
_POWERS = int64([1 << bits for bits in range(63)])
_FRACTION = 18


@computes(npu.Norm)
def norm(op: npu.Norm, exact: Exact) -> list[T]:
    """One algorithm over rows; which elements make a row depends on the mode."""
    a, x, kind = exact.algebra, exact.integers(op.x), type_of(op.y)
    if op.mode == "l2" and op.kind is Kind.DOUBLE_ROUNDING and x.high - x.low == 255:
        raise NoExactForm(
            "TFLite's 8-bit L2 norm is not written; another arithmetic than `tflite` has one that is"
        )
    shape = shape_of(op.x)
    d = exact.steps(op.x)
    gain, bias = (exact.array(value).astype(np.int64) for value in (op.gain, op.bias))
    order = list(range(len(shape)))
    laid: tuple[int, ...]
    entries: tuple[int, ...]
    if op.mode in ("instance", "group"):
        laid = (shape[0], op.groups, shape[1] // op.groups, prod(shape[2:]))
        axes, entries = [2, 3], (op.groups, shape[1] // op.groups, 1)
    elif op.mode == "l2":
        axis = normal_axis(op.axis, len(shape))
        order = [*(i for i in order if i != axis), axis]
        d = a.transpose(d, order)
        laid, axes, entries = tuple(shape[i] for i in order), [len(shape) - 1], (-1,)
    else:
        axis = normal_axis(op.axis, len(shape))
        laid, axes, entries = (prod(shape[:axis]), prod(shape[axis:])), [1], (-1,)
    gain, bias = (entry.reshape(()) if entry.size == 1 else entry.reshape(entries) for entry in (gain, bias))
    y = _rows(op, exact, a.reshape(d, laid), axes, gain, bias)
    y = a.clip(a.add(y, int64(kind.zero_point)), int64(op.lo), int64(op.hi))
    y = a.reshape(exact.stored(y, kind), [shape[i] for i in order])
    return [y if order == sorted(order) else a.transpose(y, [int(i) for i in np.argsort(order)])]


def _rows(op: npu.Norm, exact: Exact, d: T, axes: list[int], gain: Array, bias: Array) -> T:
    a = exact.algebra
    shift, epsilon, width = op.parameters
    center = op.mode in ("layer", "instance", "group")
    low, high = type_of(op.x).dtype.carrier.limits
    reach = exact.reach(op.x)
    if (width * reach) ** 2 + epsilon >= 1 << 60:
        raise NoExactForm(f"the variances of its rows of {width} elements have more than 60 bits")
    total = a.reduce("sum", d, axes)
    spread = a.add(a.mul(a.reduce("sum", a.mul(d, d), axes), int64(width)), int64(epsilon))
    if center:
        spread = a.sub(spread, a.mul(total, total))
    # `pairs` is u / 2: the most pairs of bits by which the variance can go up and stay below 2^64.
    pairs = a.floor_div(a.sub(int64(64), bits_of(a, spread)), int64(2))
    pairs = a.apply("minimum", pairs, int64(31))
    root = _root(a, a.mul(spread, a.take(_EVEN_POWERS, a.sub(pairs, int64(1)))))
    inverse = a.floor_div(
        a.add(a.floor_div(root, int64(2)), int64(1 << 62)), a.apply("maximum", root, int64(1))
    )
    inverse = a.mul(inverse, a.cast(a.apply("less", int64(0), spread), "i64"))
    spare = max((width * (high - low if center else reach)).bit_length() - 31, 0)
    deviation = a.mul(d, int64(width))
    deviation = half_up(a, a.sub(deviation, total) if center else deviation, spare)
    places = a.sub(int64(44 - spare), pairs)
    whole = a.take(_POWERS, places)
    unit = a.floor_div(a.add(a.mul(deviation, inverse), a.floor_div(whole, int64(2))), whole)
    rounded = half_even if op.kind.row_rounding is Rounding.HALF_EVEN else half_up
    return rounded(a, a.add(a.mul(unit, gain), bias), shift)


def _root(a: Algebra, quarter: T) -> T:
    """floor(sqrt(4 * quarter)) of integers below 2^62, from a float64 root that is off by one at most."""
    root = a.cast(a.apply("floor", a.apply("sqrt", a.cast(quarter, "f64"))), "i64")
    root = a.sub(root, a.cast(a.apply("less", quarter, a.mul(root, root)), "i64"))
    following = a.add(root, int64(1))
    root = a.add(root, a.sub(int64(1), a.cast(a.apply("less", quarter, a.mul(following, following)), "i64")))
    odd = a.cast(a.apply("less", a.add(a.mul(root, root), root), quarter), "i64")
    return a.add(a.mul(root, int64(2)), odd)


@computes(npu.ResizeBilinear)
def resize(op: npu.ResizeBilinear, exact: Exact) -> list[T]:
    """Four neighbours, weighted by rows and columns, one rounding."""
    a, shape = exact.algebra, shape_of(op.x)
    value = exact.integers(op.x).tensor
    bits = 0
    for axis in (2, 3):
        places = interpolation(
            op.kind, shape[axis], op.sizes[axis], op.coordinates, op.scales[axis] if op.scales else None
        )
        bits += places.bits
        weight = int64(places.weight).reshape([-1 if i == axis else 1 for i in range(4)])
        low, high = (a.take(value, int64(index), axis) for index in (places.low, places.high))
        value = a.add(a.mul(low, (1 << places.bits) - weight), a.mul(high, weight))
    rounding = op.kind.shift_rounding
    if rounding is Rounding.HALF_AWAY:
        y = half_away(a, value, bits)
    else:
        y = (half_even if rounding is Rounding.HALF_EVEN else half_up)(a, value, bits)
    return [exact.stored(y, type_of(op.y))]
