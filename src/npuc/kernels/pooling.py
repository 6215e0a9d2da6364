"""Max and average pool of NHWC tensors, any window, stride, dilation and padding.

The output's size is given, not derived: rounding up or down, and any padding at the bottom and right, follow from it.
The arithmetic is docs/arithmetic-pooling.md.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.kernels.calls import call, check_zero_point, code, contiguous, empty, raw_requant
from npuc.kernels.requant import Requant

Pair = tuple[int, int]

_FIELDS = (
    "n", "h", "w", "c", "out_h", "out_w", "kernel_h", "kernel_w", "stride_h", "stride_w",
    "dilation_h", "dilation_w", "pad_top", "pad_left",
)  # fmt: skip


class RawPool(ctypes.Structure):
    """`npuc_pool` of native/include/npuc/vector.h."""

    _fields_ = tuple((name, ctypes.c_int64) for name in _FIELDS)


def max_pool(
    x: Array,
    kernel: Pair,
    stride: Pair,
    pads: Pair,
    out: Pair,
    *,
    dilation: Pair = (1, 1),
    threads: int = 1,
) -> Array:
    """The largest element of each window; `pads` are (top, left), `out` is (height, width) of the output.

    >>> max_pool(np.int8([[[[1], [2]], [[3], [4]]]]), (2, 2), (1, 1), (0, 0), (1, 1)).ravel().tolist()
    [4]
    """
    raw = raw_pool(x, kernel, stride, pads, out, dilation)
    x = contiguous(x)
    y = empty((raw.n, raw.out_h, raw.out_w, raw.c), x.dtype)
    call("npuc_max_pool", "ppipi", raw, x, code(x.dtype, "x"), y, threads)
    return y


def average_pool(
    x: Array,
    kernel: Pair,
    stride: Pair,
    pads: Pair,
    out: Pair,
    rq: Requant,
    *,
    zero_point: int = 0,
    include_pad: bool = False,
    dilation: Pair = (1, 1),
    dtype: Any = None,
    threads: int = 1,
) -> Array:
    """The mean of each window.

    Under `double_rounding` the integers are averaged as they are: x and the output share scale, zero point and type, and the
    multiplier is not used. For the other kinds `rq` has one entry for every window, or entry count - 1 for a window of
    count elements.
    """
    y_dtype = np.dtype(x.dtype if dtype is None else dtype)
    raw = raw_pool(x, kernel, stride, pads, out, dilation)
    check_zero_point(zero_point, x.dtype, "x")
    code_x, code_y = code(x.dtype, "x"), code(y_dtype, "the output")
    if rq.kind is Kind.DOUBLE_ROUNDING:
        if y_dtype != x.dtype or rq.zero_point != zero_point:
            raise ValueError(f"an average of kind {rq.kind} keeps the type and the zero point")
    else:
        windows = kernel[0] * kernel[1]
        most = windows if include_pad else min(windows, x.shape[1] * x.shape[2])
        if rq.count != 1 and rq.count < most:
            raise ValueError(f"the output stage has {rq.count} entries for windows of up to {most} elements")
    stage = raw_requant(rq, y_dtype)
    x = contiguous(x)
    y = empty((raw.n, raw.out_h, raw.out_w, raw.c), y_dtype)
    call("npuc_average_pool", "ppiiipipi", raw, x, code_x, zero_point, include_pad, stage, code_y, y, threads)
    return y


def raw_pool(x: Array, kernel: Pair, stride: Pair, pads: Pair, out: Pair, dilation: Pair) -> RawPool:
    """The windows of a pool, checked."""
    _check_rank(x)
    for name, pair, least in (
        ("kernel", kernel, 1),
        ("stride", stride, 1),
        ("dilation", dilation, 1),
        ("pads", pads, 0),
        ("out", out, 0),
    ):
        if len(pair) != 2 or min(pair) < least:
            raise ValueError(f"{name} must be two numbers of {least} or more, not {pair}")
    for axis in (0, 1):
        size = x.shape[1 + axis]
        for index in (0, out[axis] - 1) if out[axis] else ():
            first = index * stride[axis] - pads[axis]
            if not any(0 <= first + k * dilation[axis] < size for k in range(kernel[axis])):
                raise ValueError(
                    f"the {('row', 'column')[axis]} {index} of the output has a window of padding only: "
                    f"input {size}, kernel {kernel[axis]}, stride {stride[axis]}, padding {pads[axis]}"
                )
    return RawPool(*x.shape, *out, *kernel, *stride, *dilation, *pads)


def _check_rank(x: Array) -> None:
    if x.ndim != 4:
        raise ValueError(f"a pool needs an NHWC tensor of four dimensions, not {x.ndim}")
