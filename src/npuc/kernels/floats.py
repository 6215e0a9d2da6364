"""bf16, f16 and f32: widened to float32, products exact, sums in float32 in a fixed order, the result rounded to nearest even.

The arithmetic is docs/arithmetic-float.md. bf16 arrays have the type of ml_dtypes. A layer with constant weights is a
plan, as in `npuc.kernels.gemm`; activations of rank 4 are N x H x W x C in memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from npuc.arithmetic.piecewise import pieces_of
from npuc.arrays import Array
from npuc.kernels.calls import call, contiguous, empty
from npuc.kernels.pooling import Pair, raw_pool
from npuc.native import library

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)
_CODES = {F32: 5, BF16: 6, F16: 7}
"""`npuc_dtype` of NumPy's types."""
_OPERATIONS = ("add", "sub", "mul", "max", "min")
_ALIGNMENT = 64


class RawFloatConv(ctypes.Structure):
    """`npuc_float_conv` of native/include/npuc/float.h."""

    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in (
                "transposed", "groups", "in_channels", "out_channels", "kernel_h", "kernel_w", "stride_h", "stride_w",
                "dilation_h", "dilation_w", "pad_top", "pad_left", "dtype", "relu",
            )
        ),
        ("relu_limit", ctypes.c_float),
    )  # fmt: skip


class RawFloatMatMul(ctypes.Structure):
    """`npuc_float_matmul` of native/include/npuc/float.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("dtype", "transposed_b", "threads", "relu")),
        ("relu_limit", ctypes.c_float),
        *((name, ctypes.c_int64) for name in ("m", "k", "n", "batch")),
        ("a_offset", ctypes.c_void_p),
        ("b_offset", ctypes.c_void_p),
    )


class RawFloatBinary(ctypes.Structure):
    """`npuc_float_binary` of native/include/npuc/float.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("dtype", "operation", "relu")),
        ("relu_limit", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("rank", "threads")),
        *((name, ctypes.c_void_p) for name in ("shape", "a_stride", "b_stride")),
    )


def cast(x: Array, dtype: Any, *, threads: int = 1) -> Array:
    """x as float32, bf16 or f16, rounded to nearest even.

    >>> cast(np.float32([1.00390625, 1.01171875]), BF16).astype(float).tolist()
    [1.0, 1.015625]
    """
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    x = contiguous(x)
    y = empty(x.shape, dtype)
    call("npuc_float_cast", "pilpii", x, float_code(x.dtype), x.size, y, float_code(dtype), threads)
    return y


class FloatConvPlan:
    """A convolution with constant weights, ready to run.

    `weight` is (output channels, input channels / groups, kernel height, kernel width) of bf16, f16 or f32, or, transposed,
    (input channels, output channels / groups, ...), as in ONNX; `pads` are top, left, bottom, right; `bias` is float32.

    >>> FloatConvPlan(np.ones((1, 1, 2, 2), F16)).run(np.ones((1, 3, 3, 1), F16))[0, :, :, 0].tolist()
    [[4.0, 4.0], [4.0, 4.0]]
    """

    def __init__(
        self,
        weight: Array,
        bias: Array | None = None,
        *,
        strides: Sequence[int] = (1, 1),
        pads: Sequence[int] = (0, 0, 0, 0),
        dilations: Sequence[int] = (1, 1),
        groups: int = 1,
        transposed: bool = False,
        output_padding: Sequence[int] = (0, 0),
        relu: bool = False,
        relu_limit: float = 0.0,
    ) -> None:
        self.dtype = weight.dtype
        if transposed:
            i, o, *kernel = weight.shape
            grouped = weight.reshape(groups, i // groups, o, *kernel)
            weight = np.ascontiguousarray(grouped.swapaxes(1, 2)).reshape(groups * o, i // groups, *kernel)
        weight = np.ascontiguousarray(weight)
        self.out_channels, inputs, self.kernel_h, self.kernel_w = weight.shape
        self.in_channels = inputs * groups
        self.strides, self.pads, self.dilations = tuple(strides), tuple(pads), tuple(dilations)
        self.transposed, self.output_padding = transposed, tuple(output_padding)
        if bias is not None and bias.shape != (self.out_channels,):
            raise ValueError(
                f"the bias has shape {bias.shape}, the layer {self.out_channels} output channels"
            )
        raw = RawFloatConv(
            transposed, groups, self.in_channels, self.out_channels, self.kernel_h, self.kernel_w,
            *self.strides, *self.dilations, self.pads[0], self.pads[1], float_code(self.dtype), relu, relu_limit,
        )  # fmt: skip
        size_of = library().npuc_float_conv_size
        size_of.argtypes, size_of.restype = [ctypes.c_void_p], ctypes.c_size_t
        size = size_of(ctypes.addressof(raw))
        if not size:
            raise ValueError(
                f"no convolution has weights {weight.shape}, groups {groups}, strides {self.strides} and dilations "
                f"{self.dilations}"
            )
        whole = np.empty(size + _ALIGNMENT, np.uint8)
        start = -whole.ctypes.data % _ALIGNMENT
        self._buffer = whole[start : start + size]
        biases = None if bias is None else np.ascontiguousarray(bias, np.float32)
        call("npuc_float_conv_prepare", "ppppl", raw, weight, biases, self._buffer, size)

    def output_shape(self, shape: Sequence[int]) -> tuple[int, int, int, int]:
        """The shape of the output for an input of `shape`, both N x H x W x C."""
        n, h, w, c = shape
        if c != self.in_channels:
            raise ValueError(f"the input has {c} channels, the weights {self.in_channels}")
        sizes = []
        for axis, (size, kernel) in enumerate(((h, self.kernel_h), (w, self.kernel_w))):
            extent = (kernel - 1) * self.dilations[axis] + 1
            pad = self.pads[axis] + self.pads[axis + 2]
            if self.transposed:
                sizes.append((size - 1) * self.strides[axis] + extent - pad + self.output_padding[axis])
            else:
                sizes.append((size + pad - extent) // self.strides[axis] + 1)
        if min(sizes) < 0:
            raise ValueError(f"an input of {h} x {w} leaves no output: {sizes[0]} x {sizes[1]}")
        return n, sizes[0], sizes[1], self.out_channels

    def run(self, x: Array, threads: int = 1) -> Array:
        """The output for `x`."""
        if x.dtype != self.dtype:
            raise ValueError(f"the input is {x.dtype.name}, the layer was prepared for {self.dtype.name}")
        shape = self.output_shape(x.shape)
        y = empty(shape, self.dtype)
        x = contiguous(x)
        call(
            "npuc_float_conv_run", "pplllplli",
            self._buffer, x, x.shape[0], x.shape[1], x.shape[2], y, shape[1], shape[2], threads,
        )  # fmt: skip
        return y


class FloatMatMulPlan:
    """`x @ weight + bias` with constant (K, N) weights: a fully connected layer over the last axis of `x`."""

    def __init__(self, weight: Array, bias: Array | None = None, **options: Any) -> None:
        self._conv = FloatConvPlan(weight.T[:, :, None, None], bias, **options)

    def run(self, x: Array, threads: int = 1) -> Array:
        """The output for `x`: its shape with the last axis replaced."""
        rows = int(np.prod(x.shape[:-1], dtype=np.int64))
        y = self._conv.run(contiguous(x).reshape(1, 1, rows, x.shape[-1]), threads)
        return y.reshape(*x.shape[:-1], self._conv.out_channels)


def matmul(
    a: Array,
    b: Array,
    bias: Array | None = None,
    *,
    transpose_b: bool = False,
    relu: bool = False,
    relu_limit: float = 0.0,
    threads: int = 1,
) -> Array:
    """`a @ b + bias` of two activations, batch axes broadcast as NumPy does; `transpose_b`: `b` is (..., N, K)."""
    m, k = a.shape[-2:]
    n, k_b = b.shape[-2:] if transpose_b else b.shape[:-3:-1]
    if k != k_b or a.dtype != b.dtype:
        raise ValueError(f"{a.dtype.name} {a.shape} and {b.dtype.name} {b.shape} have no product")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = empty((*batch, m, n), a.dtype)
    a, b = contiguous(a), contiguous(b)
    offsets = [_offsets(operand, batch) for operand in (a, b)]
    raw = RawFloatMatMul(
        float_code(a.dtype), transpose_b, threads, relu, relu_limit, m, k, n, len(offsets[0]),
        offsets[0].ctypes.data, offsets[1].ctypes.data,
    )  # fmt: skip
    raw.keep = offsets
    biases = None if bias is None else np.ascontiguousarray(bias, np.float32)
    call("npuc_float_matmul_run", "ppppp", raw, a, b, biases, y)
    return y


def binary(
    operation: str, a: Array, b: Array, *, relu: bool = False, relu_limit: float = 0.0, threads: int = 1
) -> Array:
    """a + b, a - b, a * b, or the larger or smaller in IEEE's total order (`add`, `sub`, `mul`, `max`, `min`), broadcast.

    >>> binary("add", np.float16([1, 2]), np.float16([[3], [4]])).tolist()
    [[4.0, 5.0], [5.0, 6.0]]
    """
    if a.dtype != b.dtype:
        raise ValueError(f"the operands are {a.dtype.name} and {b.dtype.name}")
    shape = np.broadcast_shapes(a.shape, b.shape)
    y = empty(shape, a.dtype)
    lengths, strides = _merged(
        shape, [[s // a.itemsize for s in np.broadcast_to(operand, shape).strides] for operand in (a, b)]
    )
    numbers = [np.array(column, np.int64) for column in (lengths, *strides)]
    raw = RawFloatBinary(
        float_code(a.dtype), _OPERATIONS.index(operation), relu, relu_limit, len(lengths), threads,
        *(column.ctypes.data for column in numbers),
    )  # fmt: skip
    raw.keep = numbers
    call("npuc_float_binary_run", "pppp", raw, a, b, y)
    return y


def lookup(x: Array, table: Array, *, threads: int = 1) -> Array:
    """table[x] by the 16 bits of x: 65536 entries of the type of the result; for f32 a piecewise polynomial."""
    if x.dtype == np.float32:
        return _piecewise(contiguous(x), contiguous(table), threads)
    if table.shape != (1 << 16,) or table.dtype.itemsize != 2 or x.dtype.itemsize != 2:
        raise ValueError(
            f"a table of 65536 entries of 16 bits is needed, not {table.dtype.name} {table.shape}"
        )
    x, table = contiguous(x), contiguous(table)
    y = empty(x.shape, table.dtype)
    call("npuc_float_table", "plppi", x, x.size, table, y, threads)
    return y


def _piecewise(x: Array, table: Array, threads: int) -> Array:
    y = empty(x.shape, x.dtype)
    call("npuc_float_piecewise", "plplpi", x, x.size, table, pieces_of(table), y, threads)
    return y


def average_pool(
    x: Array,
    kernel: Pair,
    stride: Pair,
    pads: Pair,
    out: Pair,
    *,
    dilation: Pair = (1, 1),
    include_pad: bool = False,
    threads: int = 1,
) -> Array:
    """The sum of each window, rows first, over its count of real positions, or of all."""
    raw = raw_pool(x, kernel, stride, pads, out, dilation)
    x = contiguous(x)
    y = empty((raw.n, raw.out_h, raw.out_w, raw.c), x.dtype)
    call("npuc_float_average_pool", "ppiipi", raw, x, float_code(x.dtype), include_pad, y, threads)
    return y


def largest_pool(
    x: Array, kernel: Pair, stride: Pair, pads: Pair, out: Pair, *, dilation: Pair = (1, 1), threads: int = 1
) -> Array:
    """The largest element of each window in IEEE's total order."""
    raw = raw_pool(x, kernel, stride, pads, out, dilation)
    x = contiguous(x)
    y = empty((raw.n, raw.out_h, raw.out_w, raw.c), x.dtype)
    call("npuc_float_max_pool", "ppipi", raw, x, float_code(x.dtype), y, threads)
    return y


def _merged(shape: Sequence[int], strides: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """The same walk with as few dimensions as can be: neighbours that are walked as one are joined."""
    lengths: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            continue
        here = [stride[axis] for stride in strides]
        if lengths and all(own == step[0] * lengths[0] for own, step in zip(here, steps, strict=True)):
            lengths[0] *= shape[axis]
            continue
        lengths.insert(0, shape[axis])
        for own, step in zip(here, steps, strict=True):
            step.insert(0, own)
    return lengths or [1], [step or [0] for step in steps]


def _offsets(operand: Array, batch: tuple[int, ...]) -> Array:
    """Where each matrix of the broadcast batch starts in the dense operand, in elements."""
    own = operand.shape[:-2]
    size = operand.shape[-1] * operand.shape[-2]
    starts = np.arange(int(np.prod(own, dtype=np.int64)), dtype=np.int64).reshape(own) * size
    return np.ascontiguousarray(np.broadcast_to(starts, batch)).reshape(-1)


def float_code(dtype: np.dtype[Any]) -> int:
    """`npuc_dtype` of bf16, f16 or f32."""
    if dtype not in _CODES:
        raise ValueError(f"float32, bfloat16 or float16 is needed, not {dtype.name}")
    return _CODES[dtype]
