"""Elementwise kernels of one or two tensors: add, sub, mul, min, max, requant, quantize, dequantize.

Two-input kernels broadcast as NumPy does, through strides: nothing is copied. The arithmetic is
docs/arithmetic-eltwise.md; the parameters come from `npuc.arithmetic.requantization`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from npuc.arithmetic.kinds import Rounding, kind_named
from npuc.arrays import Array
from npuc.kernels.calls import (
    address,
    broadcast_views,
    call,
    check_status,
    check_zero_point,
    code,
    contiguous,
    declared,
    empty,
    raw_requant,
)
from npuc.kernels.requant import Requant

if TYPE_CHECKING:
    from npuc.arithmetic.requantization import AddScaling


_QUANTIZE, _DEQUANTIZE = "plfiiiiipi", "pilfipi"
"""The arguments of the core's functions, for `call`."""
_ROUNDINGS: dict[str, int] = {how: how.code for how in (Rounding.HALF_AWAY, Rounding.HALF_EVEN)}


class RawAdd(ctypes.Structure):
    """`npuc_add_parameters` of native/include/npuc/vector.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("subtract", ctypes.c_int32),
        ("left", ctypes.c_int32),
        ("multiplier_a", ctypes.c_int32),
        ("shift_a", ctypes.c_int32),
        ("multiplier_b", ctypes.c_int32),
        ("shift_b", ctypes.c_int32),
        ("multiplier", ctypes.c_int32),
        ("shift", ctypes.c_int32),
        ("scale_a", ctypes.c_float),
        ("scale_b", ctypes.c_float),
        ("zero_point", ctypes.c_int32),
        ("lo", ctypes.c_int32),
        ("hi", ctypes.c_int32),
    )


def add(
    a: Array,
    b: Array,
    parameters: AddScaling,
    *,
    zero_a: int = 0,
    zero_b: int = 0,
    zero_point: int = 0,
    lo: int | None = None,
    hi: int | None = None,
    dtype: Any = None,
    subtract: bool = False,
    threads: int = 1,
) -> Array:
    """a + b (or a - b) with the output's zero point, range and type; the type of `a` unless stated.

    >>> from npuc.arithmetic.requantization import add_parameters
    >>> add(np.int8([10, 20]), np.int8([4]), add_parameters("single_rounding", 0.5, 0.25, 1.0)).tolist()
    [6, 11]
    """
    out = np.dtype(a.dtype if dtype is None else dtype)
    code_y = code(out, "the output")
    low, high = _limits(out, lo, hi)
    check_zero_point(zero_point, out, "the output")
    shape, view_a, view_b, sizes = broadcast_views(a, b, zero_a, zero_b)
    p = parameters
    raw = RawAdd(
        kind_named(p.kind).code, subtract, p.left, p.multiplier_a, p.shift_a, p.multiplier_b, p.shift_b,
        p.multiplier, p.shift, p.scale_a, p.scale_b, zero_point, low, high,
    )  # fmt: skip
    y = empty(shape, out)
    call("npuc_add", "ppippipi", view_a, view_b, len(sizes), sizes, raw, code_y, y, threads)
    return y


def sub(a: Array, b: Array, parameters: AddScaling, **options: Any) -> Array:
    """a - b: `add` with `subtract`.

    >>> from npuc.arithmetic.requantization import add_parameters
    >>> sub(np.int8([10, 20]), np.int8([4]), add_parameters("single_rounding", 0.5, 0.25, 1.0)).tolist()
    [4, 9]
    """
    return add(a, b, parameters, subtract=True, **options)


def mul(
    a: Array,
    b: Array,
    rq: Requant,
    *,
    zero_a: int = 0,
    zero_b: int = 0,
    dtype: Any = None,
    threads: int = 1,
) -> Array:
    """a * b through the output stage `rq`."""
    out = np.dtype(a.dtype if dtype is None else dtype)
    code_y = code(out, "the output")
    shape, view_a, view_b, sizes = broadcast_views(a, b, zero_a, zero_b)
    y = empty(shape, out)
    raw = raw_requant(rq, out, 1)
    call("npuc_mul", "ppippipi", view_a, view_b, len(sizes), sizes, raw, code_y, y, threads)
    return y


def minimum(a: Array, b: Array, *, lo: int | None = None, hi: int | None = None, threads: int = 1) -> Array:
    """The smaller of two tensors of one type, scale and zero point.

    >>> minimum(np.int8([1, 5]), np.int8([3])).tolist()
    [1, 3]
    """
    return _choose(a, b, 0, lo, hi, threads)


def maximum(a: Array, b: Array, *, lo: int | None = None, hi: int | None = None, threads: int = 1) -> Array:
    """The larger of two tensors of one type, scale and zero point.

    >>> maximum(np.int8([1, 5]), np.int8([3])).tolist()
    [3, 5]
    """
    return _choose(a, b, 1, lo, hi, threads)


def requant(x: Array, rq: Requant, *, zero_point: int = 0, dtype: Any = None, threads: int = 1) -> Array:
    """A tensor (8- or 16-bit, or int32 accumulators) in another scale or type."""
    out = np.dtype(x.dtype if dtype is None else dtype)
    code_x = code(x.dtype, "x", ("int8", "uint8", "int16", "int32"))
    code_y = code(out, "the output")
    check_zero_point(zero_point, x.dtype, "x")
    if x.dtype == np.int32 and zero_point != 0:
        raise ValueError(f"int32 accumulators have no zero point, but {zero_point} was given")
    x = contiguous(x)
    y = empty(x.shape, out)
    raw = raw_requant(rq, out, 1)
    call("npuc_requant_tensor", "piilpipi", x, code_x, zero_point, x.size, raw, code_y, y, threads)
    return y


def quantize(
    x: Array,
    scale: float,
    zero_point: int,
    dtype: Any,
    *,
    rounding: str = "half_away",
    lo: int | None = None,
    hi: int | None = None,
    threads: int = 1,
) -> Array:
    """float32 to integers: sat(round(x / scale) + zero_point); NaN becomes the zero point.

    >>> quantize(np.float32([0.25, -1.0, np.nan, 1e9]), 0.5, 3, np.int8).tolist()
    [4, 1, 3, 127]
    """
    if x.dtype != np.float32:
        raise ValueError(f"x must be float32, not {x.dtype.name}")
    out = np.dtype(dtype)
    way, low, high, code_y = _quantization(scale, zero_point, out, rounding, lo, hi)
    x = contiguous(x)
    y = empty(x.shape, out)
    call("npuc_quantize", _QUANTIZE, x, x.size, scale, zero_point, way, low, high, code_y, y, threads)
    return y


def dequantize(x: Array, scale: float, zero_point: int = 0, *, threads: int = 1) -> Array:
    """Integers to float32: scale * (x - zero_point).

    >>> dequantize(np.int8([4, 1]), 0.5, 3).tolist()
    [0.5, -1.0]
    """
    code_x = _quantized(scale, zero_point, x.dtype)
    x = contiguous(x)
    y = empty(x.shape, np.float32)
    call("npuc_dequantize", _DEQUANTIZE, x, code_x, x.size, scale, zero_point, y, threads)
    return y


def quantizer(
    scale: float, zero_point: int, dtype: Any, rounding: str, threads: int
) -> Callable[[Array, Array], None]:
    """`quantize` for many calls, into memory of the caller: parameters are checked once.

    The arrays are dense and have the same size, the first in float32 and the second in `dtype`: the caller sees to that.
    """
    way, low, high, code_y = _quantization(scale, zero_point, np.dtype(dtype), rounding, None, None)
    function = declared("npuc_quantize", _QUANTIZE)

    def write(x: Array, y: Array) -> None:
        check_status(
            "npuc_quantize",
            function(address(x), x.size, scale, zero_point, way, low, high, code_y, address(y), threads),
        )

    return write


def dequantizer(scale: float, zero_point: int, dtype: Any, threads: int) -> Callable[[Array, Array], None]:
    """`dequantize` for many calls, into memory of the caller, as `quantizer`; `dtype` is that of the first array."""
    code_x = _quantized(scale, zero_point, np.dtype(dtype))
    function = declared("npuc_dequantize", _DEQUANTIZE)

    def write(x: Array, y: Array) -> None:
        check_status(
            "npuc_dequantize", function(address(x), code_x, x.size, scale, zero_point, address(y), threads)
        )

    return write


@lru_cache(maxsize=1024)
def _quantization(
    scale: float, zero_point: int, dtype: np.dtype[Any], rounding: str, lo: int | None, hi: int | None
) -> tuple[int, int, int, int]:
    """What the core takes for a quantization, checked: the rounding, the range, the element type."""
    if rounding not in _ROUNDINGS:
        raise ValueError(f"there is no rounding {rounding!r}; there are {', '.join(_ROUNDINGS)}")
    code_y = code(dtype, "the output")
    low, high = _limits(dtype, lo, hi)
    check_zero_point(zero_point, dtype, "the output")
    _check_scale(scale)
    return _ROUNDINGS[rounding], low, high, code_y


@lru_cache(maxsize=1024)
def _quantized(scale: float, zero_point: int, dtype: np.dtype[Any]) -> int:
    """The element type of integers with a scale, checked."""
    code_x = code(dtype, "x", ("int8", "uint8", "int16", "int32"))
    check_zero_point(zero_point, dtype, "x")
    _check_scale(scale)
    if dtype == np.int32 and zero_point != 0:
        raise ValueError(f"int32 accumulators have no zero point, but {zero_point} was given")
    return code_x


def _choose(a: Array, b: Array, larger: int, lo: int | None, hi: int | None, threads: int) -> Array:
    if a.dtype != b.dtype:
        raise ValueError(f"both tensors must have one type, not {a.dtype.name} and {b.dtype.name}")
    low, high = _limits(a.dtype, lo, hi)
    shape, view_a, view_b, sizes = broadcast_views(a, b, 0, 0)
    y = empty(shape, a.dtype)
    call(
        "npuc_minmax", "ppipiiiipi",
        view_a, view_b, len(sizes), sizes, larger, low, high, view_a.dtype, y, threads,
    )  # fmt: skip
    return y


@lru_cache(maxsize=1024)
def _limits(dtype: np.dtype[Any], lo: int | None, hi: int | None) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    low = int(limits.min) if lo is None else lo
    high = int(limits.max) if hi is None else hi
    if not limits.min <= low <= high <= limits.max:
        raise ValueError(f"the output range {low}..{high} does not fit {dtype.name}")
    return low, high


@lru_cache(maxsize=1024)
def _check_scale(scale: float) -> None:
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(scale)
    if not (np.isfinite(single) and single > 0):
        raise ValueError(f"the scale is {scale!r}; it must be a positive float32")
