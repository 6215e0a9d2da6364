"""Layer, RMS, instance, group and L2 normalization of integers: one kernel over rows.

`norm_parameters` turns gamma, beta, epsilon and the scales into integers; each function lays its tensor out as rows and
runs the kernel. The arithmetic is docs/arithmetic-norm.md.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Rounding, kind_named
from npuc.arithmetic.requantization import round_away
from npuc.arrays import Array
from npuc.kernels.calls import call, check_zero_point, code, contiguous, empty

FRACTION = 18
"""Bits behind the point of a normalized element."""


class RawNorm(ctypes.Structure):
    """`npuc_norm` of native/include/npuc/vector.h."""

    _fields_ = (
        ("x_dtype", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("rows", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("x_zero_point", ctypes.c_int32),
        ("center", ctypes.c_int32),
        ("epsilon", ctypes.c_uint64),
        ("row_modulus", ctypes.c_int64),
        ("row_factor", ctypes.c_int64),
        ("column_divisor", ctypes.c_int64),
        ("shift", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("zero_point", ctypes.c_int32),
        ("lo", ctypes.c_int32),
        ("hi", ctypes.c_int32),
    )


@dataclass(frozen=True, eq=False)
class NormParameters:
    """round((unit * gain + bias) / 2**shift), a unit having 18 bits behind its point; epsilon in (s_x / N)²."""

    gain: Array
    bias: Array
    shift: int
    epsilon: int
    width: int
    even: bool = False


def norm_parameters(
    kind: str,
    scale_x: float,
    scale_y: float,
    gamma: Array | float,
    beta: Array | float,
    width: int,
    epsilon: float = 1e-5,
) -> NormParameters:
    """The integers of a normalization over `width` elements; gamma and beta are one number or one an entry.

    >>> norm_parameters("single_rounding", 0.1, 0.05, 1.0, 0.0, 64).shift
    43
    """
    if width < 1:
        raise ValueError("a normalization needs rows of one element or more")
    for name, scale in (("x", scale_x), ("y", scale_y)):
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"the scale of {name} is {scale!r}; it must be a positive number")
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon is {epsilon!r}; it must not be negative")
    gain, bias = np.broadcast_arrays(
        np.atleast_1d(np.asarray(gamma, np.float64)) / scale_y,
        np.atleast_1d(np.asarray(beta, np.float64)) / scale_y,
    )
    if not (np.isfinite(gain).all() and np.isfinite(bias).all()):
        raise ValueError("gamma or beta is not finite")
    # As many bits as fit: |gain| below 2^30, |bias| below 2^60, and a shift of at most 62.
    bits = min(44, 30 - _exponent(gain), 60 - FRACTION - _exponent(bias))
    if FRACTION + bits < 1:
        raise ValueError(f"gamma and beta are too large for the output's scale, {scale_y:g}")
    scaled = float(round_away(epsilon * (width / scale_x) ** 2))
    if scaled >= 2.0**63:
        raise ValueError(f"epsilon {epsilon:g} is too large for the input's scale, {scale_x:g}")
    return NormParameters(
        gain=np.clip(round_away(gain * 2.0**bits), -(2**30), 2**30).astype(np.int32),
        bias=np.clip(round_away(bias * 2.0 ** (bits + FRACTION)), -(2.0**60), 2.0**60).astype(np.int64),
        shift=FRACTION + bits,
        epsilon=int(scaled),
        width=width,
        even=kind_named(kind).row_rounding is Rounding.HALF_EVEN,
    )


def layer_norm(x: Array, parameters: NormParameters, *, axis: int = -1, **options: Any) -> Array:
    """Over all axes from `axis` on; gamma and beta have an entry for each of their elements, or one."""
    return _over_last(x, parameters, axis, True, options)


def rms_norm(x: Array, parameters: NormParameters, *, axis: int = -1, **options: Any) -> Array:
    """Layer norm that keeps the mean."""
    return _over_last(x, parameters, axis, False, options)


def l2_norm(x: Array, parameters: NormParameters, *, axis: int = -1, **options: Any) -> Array:
    """x / sqrt(sum of squares) over one axis: an RMS norm whose gamma is 1 / sqrt(width)."""
    _check_axis(x, axis)
    moved = np.moveaxis(x, axis, -1)
    return np.moveaxis(_over_last(moved, parameters, -1, False, options), -1, axis)


def l2_norm_tflite(x: Array, *, zero_x: int = 0, axis: int = -1, threads: int = 1) -> Array:
    """TFLite's 8-bit L2 norm over an axis; the output has scale 1/128 and zero point 0 (int8) or 128 (uint8).

    >>> l2_norm_tflite(np.int8([[30, 40]])).tolist()
    [[77, 102]]
    """
    _check_axis(x, axis)
    code_x = code(x.dtype, "x", ("int8", "uint8"))
    check_zero_point(zero_x, x.dtype, "x")
    moved = contiguous(np.moveaxis(x, axis, -1))
    width = moved.shape[-1]
    if width > 32768:
        raise ValueError(
            f"rows of {width} elements are too long: at most 32768 keep the sum of squares in 32 bits"
        )
    y = empty(moved.shape, x.dtype)
    rows = moved.size // width if width else 0
    call("npuc_l2_norm_tflite8", "piillpi", moved, code_x, zero_x, rows, width, y, threads)
    return np.moveaxis(y, -1, axis)


def group_norm(x: Array, parameters: NormParameters, *, groups: int, **options: Any) -> Array:
    """Over height, width and the channels of each group of an NHWC tensor."""
    _check_rank(x)
    n, h, w, c = x.shape
    if groups < 1 or c % groups:
        raise ValueError(f"{c} channels cannot be cut in {groups} groups")
    moved = contiguous(x.transpose(0, 3, 1, 2))
    by_channel = parameters.gain.size > 1
    if by_channel and parameters.gain.size != c:
        raise ValueError(f"gamma and beta have {parameters.gain.size} entries for {c} channels")
    layout = (groups, c // groups, h * w) if by_channel else (1, 0, c // groups * h * w)
    y = _run(moved, parameters, n * groups, c // groups * h * w, True, layout, **options)
    return contiguous(y.reshape(moved.shape).transpose(0, 2, 3, 1))


def _over_last(x: Array, p: NormParameters, axis: int, center: bool, options: dict[str, Any]) -> Array:
    _check_axis(x, axis)
    width = math.prod(x.shape[axis % x.ndim :])
    if p.gain.size not in (1, width):
        raise ValueError(f"gamma and beta have {p.gain.size} entries for rows of {width} elements")
    rows = x.size // width if width else 0
    layout = (1, 0, 1) if p.gain.size > 1 else (1, 0, max(width, 1))
    return _run(contiguous(x), p, rows, width, center, layout, **options).reshape(x.shape)


def _run(
    x: Array,
    p: NormParameters,
    rows: int,
    width: int,
    center: bool,
    layout: tuple[int, int, int],
    *,
    zero_x: int = 0,
    zero_point: int = 0,
    lo: int | None = None,
    hi: int | None = None,
    dtype: Any = None,
    threads: int = 1,
) -> Array:
    out: np.dtype[Any] = np.dtype(x.dtype if dtype is None else dtype)
    code_x, code_y = code(x.dtype, "x"), code(out, "the output")
    check_zero_point(zero_x, x.dtype, "x")
    check_zero_point(zero_point, out, "the output")
    limits = np.iinfo(out)
    low, high = int(limits.min) if lo is None else lo, int(limits.max) if hi is None else hi
    if not limits.min <= low <= high <= limits.max:
        raise ValueError(f"the output range {low}..{high} does not fit {out.name}")
    if width != p.width:
        raise ValueError(f"the parameters are for rows of {p.width} elements, not {width}")
    limit = 2**32 // (32768 if x.dtype == np.int16 else 128) - 1
    if not center:
        limit = 2**32 // max(int(np.iinfo(x.dtype).max) - zero_x, zero_x - int(np.iinfo(x.dtype).min)) - 1
    if width > min(limit, 2**25):
        raise ValueError(
            f"rows of {width} elements are too long: at most {min(limit, 2**25)} keep the sums exact"
        )
    raw = RawNorm(
        code_x, code_y, rows, width, zero_x, center, p.epsilon, *layout, p.shift, 1 if p.even else 2,
        zero_point, low, high,
    )  # fmt: skip
    y = empty(x.shape, out)
    gain, bias = contiguous(p.gain), contiguous(p.bias)
    call("npuc_normalize", "pppplpi", raw, x, gain, bias, gain.size, y, threads)
    return y


def _exponent(values: Array) -> int:
    """The least e with every |value| below 2**e; small numbers count as 2**-60."""
    return max(math.frexp(float(np.abs(values).max()))[1], -60)


def _check_axis(x: Array, axis: int) -> None:
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"there is no axis {axis} in a tensor of {x.ndim} dimensions")


def _check_rank(x: Array) -> None:
    if x.ndim != 4:
        raise ValueError(f"this normalization needs an NHWC tensor of four dimensions, not {x.ndim}")
