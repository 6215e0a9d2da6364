"""Resizing of NHWC tensors: bilinear with fixed-point weights, and nearest, which moves bytes.

The coordinate convention lives in tables, one entry an output row or column, computed here; the kernel only blends. The
arithmetic is docs/arithmetic-resize.md.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np

from npuc.arithmetic.kinds import Kind, kind_named
from npuc.arrays import Array
from npuc.kernels.calls import call, code, contiguous, empty

MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
"""ONNX's coordinate transformations."""
BITS = 11
"""Bits of a weight of the clean algorithm; TFLite's has 10."""


class RawResize(ctypes.Structure):
    """`npuc_resize` of native/include/npuc/vector.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("n", "h", "w", "c", "out_h", "out_w")),
        *((f"row_{name}", ctypes.c_void_p) for name in ("low", "high", "weight")),
        *((f"column_{name}", ctypes.c_void_p) for name in ("low", "high", "weight")),
        ("bits", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


@dataclass(frozen=True, eq=False)
class Interpolation:
    """Where outputs along one axis lie: `weight / 2**bits` of the way from `low` to `high`."""

    low: Array
    high: Array
    weight: Array
    bits: int


def interpolation(
    kind: str, size: int, out: int, mode: str = "half_pixel", scale: float | None = None
) -> Interpolation:
    """The table of an axis of `size` elements resized to `out`.

    `scale` is the factor of enlargement where it is not out / size. Under `double_rounding` the coordinates are TFLite's.

    >>> interpolation("single_rounding", 2, 4).weight.tolist()
    [0, 512, 1536, 0]
    """
    _check_axis(size, out, mode)
    if kind_named(kind) is Kind.DOUBLE_ROUNDING:
        return _tflite(size, out, mode, scale)
    low, high, weight = [], [], []
    for i in range(out):
        at = min(max(_coordinate(i, size, out, mode, scale), Fraction(0)), Fraction(size - 1))
        left = floor(at)
        steps = floor((at - left) * 2**BITS + Fraction(1, 2))
        # A whole step belongs to the next element.
        left, steps = (left + 1, 0) if steps == 2**BITS else (left, steps)
        low.append(left)
        high.append(left if steps == 0 else left + 1)
        weight.append(steps)
    return Interpolation(np.array(low, np.int64), np.array(high, np.int64), np.array(weight, np.int32), BITS)


def resize_bilinear(
    x: Array,
    rows: Interpolation,
    columns: Interpolation,
    kind: str = Kind.SINGLE_ROUNDING,
    *,
    threads: int = 1,
) -> Array:
    """Blend the four neighbours of each output; ties as `Kind.shift_rounding` has them.

    >>> axis, one = interpolation("single_rounding", 2, 4), interpolation("single_rounding", 1, 1)
    >>> resize_bilinear(np.int8([0, 8]).reshape(1, 1, 2, 1), one, axis).ravel().tolist()
    [0, 2, 6, 8]
    """
    _check_rank(x)
    if rows.bits != columns.bits:
        raise ValueError(f"rows have weights of {rows.bits} bits and columns of {columns.bits}")
    for name, table, size in (("row", rows, x.shape[1]), ("column", columns, x.shape[2])):
        if table.low.size and max(table.low.max(), table.high.max()) >= size:
            raise ValueError(f"the {name} table reaches {table.high.max()}, beyond the input's {size}")
    x = contiguous(x)
    n, h, w, c = x.shape
    out_h, out_w = rows.low.size, columns.low.size
    y = empty((n, out_h, out_w, c), x.dtype)
    pointers = [array.ctypes.data for t in (rows, columns) for array in (t.low, t.high, t.weight)]
    rounding = kind_named(kind).shift_rounding.code
    raw = RawResize(n, h, w, c, out_h, out_w, *pointers, rows.bits, rounding, code(x.dtype, "x"))
    raw.keep = (rows, columns)  # the memory behind the pointers lives as long as they do
    call("npuc_resize_bilinear", "pppi", raw, x, y, threads)
    return y


def _coordinate(i: int, size: int, out: int, mode: str, scale: float | None) -> Fraction:
    """Where output i lies among the input's elements, exactly."""
    step = Fraction(size, out) if scale is None else 1 / Fraction(scale)
    if mode == "align_corners":
        return Fraction(0) if out == 1 else Fraction(i * (size - 1), out - 1)
    if mode == "asymmetric":
        return i * step
    if mode == "pytorch_half_pixel" and out == 1:
        return Fraction(0)
    return (i + Fraction(1, 2)) * step - Fraction(1, 2)


def _tflite(size: int, out: int, mode: str, scale: float | None) -> Interpolation:
    if mode == "pytorch_half_pixel" or (scale is not None and Fraction(scale) != Fraction(out, size)):
        raise ValueError(
            "TFLite has half_pixel, align_corners and asymmetric coordinates, and scales of out / size only"
        )
    step = (1024 * size + out // 2) // out
    if mode == "align_corners" and out > 1:
        step = (1024 * (size - 1) + (out - 1) // 2) // (out - 1)
    low, high, weight = [], [], []
    for i in range(out):
        at = i * step + (step // 2 - 512 if mode == "half_pixel" else 0)
        left = max(int(at / 1024), 0)
        right = min(int((at + 1023) / 1024), size - 1)
        # Both neighbours are the same at the edges: the weights then add up to one whatever they are.
        low.append(min(left, size - 1))
        high.append(max(right, 0))
        weight.append(0 if low[-1] == high[-1] else at - 1024 * left)
    return Interpolation(np.array(low, np.int64), np.array(high, np.int64), np.array(weight, np.int32), 10)


def _check_axis(size: int, out: int, mode: str) -> None:
    if size < 1 or out < 1:
        raise ValueError(f"an axis of {size} elements cannot be resized to {out}")
    if mode not in MODES:
        raise ValueError(f"there is no coordinate mode {mode!r}; there are {', '.join(MODES)}")


def _check_rank(x: Array) -> None:
    if x.ndim != 4:
        raise ValueError(f"a resize needs an NHWC tensor of four dimensions, not {x.ndim}")
