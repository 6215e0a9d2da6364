"""Any function of one input as a table: 256 entries for 8 bits, 513 with linear interpolation for 16.

Tables are computed offline in float64 by the builders here and looked up by the native core. Entries are in ascending
order of the input's value. The arithmetic is docs/arithmetic-tables.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.kernels.calls import call, check_zero_point, code, contiguous, empty

Function = Callable[[Array], Array]


def lookup8(x: Array, table: Array, *, threads: int = 1) -> Array:
    """table[x], the table in ascending order of x; the output has the table's type.

    >>> table = table8(np.tanh, 1 / 16, 0, 1 / 128, 0, np.int8)
    >>> lookup8(np.int8([-128, 0, 16]), table).tolist()
    [-128, 0, 97]
    """
    code_x = code(x.dtype, "x", ("int8", "uint8"))
    code_y = code(table.dtype, "the table")
    if table.shape != (256,):
        raise ValueError(f"a table of 8 bits has 256 entries, not the shape {table.shape}")
    x, table = contiguous(x), contiguous(table)
    y = empty(x.shape, table.dtype)
    call("npuc_table8", "pilpipi", x, code_x, x.size, table, code_y, y, threads)
    return y


def lookup8_by_channel(x: Array, tables: Array, axis: int, *, threads: int = 1) -> Array:
    """tables[c][x] for x of channel c along `axis`: a table for each channel.

    >>> tables = np.stack([np.arange(256), 255 - np.arange(256)]).astype(np.uint8)
    >>> lookup8_by_channel(np.uint8([[3, 3]]), tables, 1).tolist()
    [[3, 252]]
    """
    code_x = code(x.dtype, "x", ("int8", "uint8"))
    code_y = code(tables.dtype, "the tables")
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"there is no axis {axis} in a tensor of {x.ndim} dimensions")
    axis %= x.ndim
    if tables.shape != (x.shape[axis], 256):
        raise ValueError(f"{x.shape[axis]} tables of 256 entries are needed, not the shape {tables.shape}")
    x, tables = contiguous(x), contiguous(tables)
    y = empty(x.shape, tables.dtype)
    sizes = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    call("npuc_channel_table8", "pilllpipi", x, code_x, *sizes, tables, code_y, y, threads)
    return y


def lookup16(x: Array, table: Array, *, threads: int = 1) -> Array:
    """A 16-bit table: entry (x + 32768) >> 7 and the next, linear between them, rounding half up.

    >>> lookup16(np.int16([-32768, 0, 64]), np.arange(513, dtype=np.int16)).tolist()
    [0, 256, 257]
    """
    if x.dtype != np.int16 or table.dtype != np.int16:
        raise ValueError(f"x and the table must be int16, not {x.dtype.name} and {table.dtype.name}")
    if table.shape != (513,):
        raise ValueError(f"a table of 16 bits has 513 entries, not the shape {table.shape}")
    x, table = contiguous(x), contiguous(table)
    y = empty(x.shape, np.int16)
    call("npuc_table16", "plppi", x, x.size, table, y, threads)
    return y


def lookup(x: Array, table: Array, *, threads: int = 1) -> Array:
    """A table of any size for x of 8 or 16 bits: 256 entries for 8 bits are looked up, 2^k + 1 are interpolated between.

    >>> lookup(np.int8([-128, -127, -126, 127]), np.int8([0, 4, 8, 12, 20])).tolist()
    [0, 0, 0, 20]
    """
    bits = 8 * x.dtype.itemsize
    if (bits, table.shape) == (8, (256,)):
        return lookup8(x, table, threads=threads)
    if (bits, table.shape) == (16, (513,)):
        return lookup16(x, table, threads=threads)
    segments = table.size.bit_length() - 1
    if table.ndim != 1 or table.size != (1 << segments) + 1 or not 0 < segments < bits:
        raise ValueError(f"a table of {bits} bits has no shape {table.shape}")
    codes = code(x.dtype, "x", ("int8", "uint8", "int16")), code(table.dtype, "the table")
    x, table = contiguous(x), contiguous(table)
    y = empty(x.shape, table.dtype)
    call("npuc_table_between", "pilpiipi", x, codes[0], x.size, table, codes[1], segments, y, threads)
    return y


def table8(f: Function, sx: float, zx: int, sy: float, zy: int, dtype: Any, x_dtype: Any = None) -> Array:
    """The 256 entries sat(round_away(f(sx * (q - zx)) / sy) + zy) of type `dtype`, q ascending over `x_dtype`.

    `x_dtype` is the output's type unless stated. A value that is not a number becomes the zero point.

    >>> table8(np.abs, 0.5, 0, 0.5, 0, np.int8)[[0, 127, 128, 255]].tolist()
    [127, 1, 0, 127]
    """
    source = np.dtype(dtype if x_dtype is None else x_dtype)
    code(source, "the input", ("int8", "uint8"))
    check_zero_point(zx, source, "the input")
    low = int(np.iinfo(source).min)
    return _entries(f, np.arange(low, low + 256, dtype=np.float64), sx, zx, sy, zy, dtype)


def table16(f: Function, sx: float, zx: int, sy: float, zy: int) -> Array:
    """The 513 entries for q = -32768, -32640, ... 32768: sat(round_away(f(sx * (q - zx)) / sy) + zy).

    >>> table16(np.tanh, 2.0**-13, 0, 2.0**-15, 0)[[0, 256, 512]].tolist()
    [-32746, 0, 32746]
    """
    check_zero_point(zx, np.int16, "the input")
    return _entries(f, np.arange(513, dtype=np.float64) * 128 - 32768, sx, zx, sy, zy, np.int16)


def _entries(f: Function, q: Array, sx: float, zx: int, sy: float, zy: int, dtype: Any) -> Array:
    code(dtype, "the output")
    check_zero_point(zy, dtype, "the output")
    for name, scale in (("input", sx), ("output", sy)):
        if not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"the scale of the {name} is {scale!r}; it must be a positive number")
    with np.errstate(all="ignore"):
        real = np.asarray(f(sx * (q - zx)), np.float64) / sy
    if real.shape != q.shape:
        raise ValueError(f"the function gave the shape {real.shape} for {q.shape}")
    real = np.nan_to_num(real, nan=0.0, posinf=1e9, neginf=-1e9).clip(-1e9, 1e9)
    whole = np.trunc(real)
    steps = whole + np.where(np.abs(real - whole) >= 0.5, np.copysign(1.0, real), 0.0) + zy
    limits = np.iinfo(np.dtype(dtype))
    return steps.clip(limits.min, limits.max).astype(dtype)
