"""Softmax, norms, reductions and comparisons of bf16, f16 and f32: every step one IEEE operation in float32, sums in order.

The arithmetic is docs/arithmetic-float.md. Comparisons are those of IEEE's total order: -0 is below +0, and the NaN that npuc
stores is above all numbers.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np

from npuc.arrays import Array
from npuc.kernels import reduction
from npuc.kernels.calls import call, contiguous, empty
from npuc.kernels.floats import binary, float_code
from npuc.kernels.reduction import Axes, middle
from npuc.kernels.tape import do


class RawFloatNorm(ctypes.Structure):
    """`npuc_float_norm` of native/include/npuc/float.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("dtype", "center", "mean")),
        ("epsilon", ctypes.c_float),
        *(
            (name, ctypes.c_int64)
            for name in ("rows", "width", "row_modulus", "row_factor", "column_divisor")
        ),
    )


def softmax(x: Array, axis: int = -1, *, threads: int = 1) -> Array:
    """e^(x - largest) over the sum of all, along an axis.

    >>> softmax(np.float16([[1, 1, 1, 1]])).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    moved = contiguous(np.moveaxis(x, axis, -1))
    width = moved.shape[-1]
    y = empty(moved.shape, x.dtype)
    rows = moved.size // width if width else 0
    call("npuc_float_softmax", "pillpi", moved, float_code(x.dtype), rows, width, y, threads)
    return np.moveaxis(y, -1, axis)


def layer_norm(
    x: Array,
    gain: Array,
    bias: Array,
    *,
    axis: int = -1,
    center: bool = True,
    epsilon: float = 0.0,
    threads: int = 1,
) -> Array:
    """Over all axes from `axis` on, less the mean unless `center` is false; `gain` and `bias` have an entry for each element
    of a row, or one."""
    width = math.prod(x.shape[axis % x.ndim :])
    layout = (1, 0, 1) if gain.size > 1 else (1, 0, max(width, 1))
    return _normalize(x, gain, bias, width, layout, center, True, epsilon, threads)


def l2_norm(x: Array, *, axis: int = -1, epsilon: float = 0.0, threads: int = 1) -> Array:
    """x / max(sqrt(sum of squares), epsilon) along an axis; zeros stay zeros.

    >>> l2_norm(np.float32([[3, 4], [0, 0]])).tolist() == np.float32([[0.6, 0.8], [0, 0]]).tolist()
    True
    """
    moved = np.moveaxis(x, axis, -1)
    width = moved.shape[-1]
    unit, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    y = _normalize(moved, unit, zero, width, (1, 0, max(width, 1)), False, False, epsilon, threads)
    return np.moveaxis(y, -1, axis)


def group_norm(
    x: Array, gain: Array, bias: Array, *, groups: int, epsilon: float = 0.0, threads: int = 1
) -> Array:
    """Over the pixels of the channels of each group of an N x C x H x W tensor, channel by channel."""
    _, c, h, w = x.shape
    each = c // groups
    layout = (groups, each, h * w) if gain.size > 1 else (1, 0, each * h * w)
    return _normalize(x, gain, bias, each * h * w, layout, True, True, epsilon, threads)


def reduce_sum(
    x: Array, axes: Axes = None, *, mean: bool = False, keepdims: bool = False, threads: int = 1
) -> Array:
    """The sum over axes, or the mean: a sum in the order of the elements, then one division.

    >>> reduce_sum(np.float16([[1, 2], [3, 6]]), 1, mean=True).tolist()
    [1.5, 4.5]
    """
    moved, sizes, shape = middle(x, axes, keepdims)
    y = empty(shape, x.dtype)
    call("npuc_float_reduce_sum", "pilllipi", moved, float_code(x.dtype), *sizes, mean, y, threads)
    return y


def extreme(x: Array, axes: Axes = None, *, larger: bool, keepdims: bool = False, threads: int = 1) -> Array:
    """The largest or the smallest element over axes."""
    moved, sizes, shape = middle(x, axes, keepdims)
    y = empty(shape, x.dtype)
    call("npuc_float_reduce_extreme", "pilllipi", moved, float_code(x.dtype), *sizes, larger, y, threads)
    return y


def place_of_extreme(
    x: Array, axis: int, *, larger: bool, keepdims: bool = False, last: bool = False, threads: int = 1
) -> Array:
    """Where the largest or the smallest element of bf16 or f16 along an axis is, as int64."""
    run = reduction.argmax if larger else reduction.argmin
    return run(_keys(x), axis, keepdims=keepdims, last=last, threads=threads)


def choose(a: Array, b: Array, *, larger: bool, threads: int = 1) -> Array:
    """The larger or the smaller of two operands, broadcast.

    >>> choose(np.float16([1, -2]), np.float16([0, -3]), larger=False).tolist()
    [0.0, -3.0]
    """
    return binary("max" if larger else "min", a, b, threads=threads)


def _normalize(
    x: Array,
    gain: Array,
    bias: Array,
    width: int,
    layout: tuple[int, int, int],
    center: bool,
    mean: bool,
    epsilon: float,
    threads: int,
) -> Array:
    x = contiguous(x)
    y = empty(x.shape, x.dtype)
    rows = x.size // width if width else 0
    raw = RawFloatNorm(float_code(x.dtype), center, mean, epsilon, rows, width, *layout)
    gain, bias = (np.ascontiguousarray(array.reshape(-1), np.float32) for array in (gain, bias))
    call("npuc_float_normalize", "pppplpi", raw, x, gain, bias, gain.size, y, threads)
    return y


def _keys(x: Array) -> Array:
    x = contiguous(x)
    keys = empty(x.shape, np.int16)
    do(_ordered, x.view(np.int16), keys)
    return keys


def _ordered(x: Array, out: Array) -> None:
    """Bits of floats as integers of the same order."""
    np.bitwise_xor(x, (x >> 15) & 0x7FFF, out=out)
