"""The layers that multiply: convolution, transposed convolution, fully connected, and products of two activations.

`acc = bias[c] + sum (q_x - z_x) * (q_w - z_w)`, exact, then the output stage. A layer with constant weights is a plan:
weights are packed for this CPU once, then `run` is one call. Activations of rank 4 are N x H x W x C in memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.kernels.calls import RawRequant, call, code, contiguous, empty, raw_requant
from npuc.kernels.requant import Requant
from npuc.native import library

_ALIGNMENT = 64
_INT32 = 2**31
_INT64 = 2**63


class RawConv(ctypes.Structure):
    """`npuc_conv` of native/include/npuc/gemm.h."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in (
            "transposed", "groups", "in_channels", "out_channels", "kernel_h", "kernel_w", "stride_h", "stride_w",
            "dilation_h", "dilation_w", "pad_top", "pad_left", "x_dtype", "x_zero_point", "y_dtype", "wide",
        )
    )  # fmt: skip


class RawMatMul(ctypes.Structure):
    """`npuc_matmul` of native/include/npuc/gemm.h."""

    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in (
                "a_dtype", "b_dtype", "y_dtype", "a_zero_point", "b_zero_point", "transposed_b", "wide", "threads",
            )
        ),
        *((name, ctypes.c_int64) for name in ("m", "k", "n", "batch")),
        ("a_offset", ctypes.c_void_p),
        ("b_offset", ctypes.c_void_p),
    )  # fmt: skip


def isa() -> str:
    """The instruction set in use: "avx512vnni" or "avx2", "neondot" or "neon", or "portable".

    >>> isa() in ("avx512vnni", "avx2", "neondot", "neon", "portable")
    True
    """
    function = library().npuc_isa
    function.restype = ctypes.c_char_p
    name: bytes = function()
    return name.decode("ascii")


def select_isa(name: str | None) -> bool:
    """Choose an instruction set, or the best with None; False if this CPU cannot run it. Results never depend on it."""
    function = library().npuc_isa_select
    function.argtypes = [ctypes.c_char_p]
    return int(function(name.encode("ascii") if name else None)) == 0


class ConvPlan:
    """A convolution with constant weights, ready to run.

    `weight` is (output channels, input channels / groups, kernel height, kernel width) integers, or, transposed,
    (input channels, output channels / groups, ...), as in ONNX; `pads` are top, left, bottom, right. Without `requant`
    the output is the int32 accumulators. Sums that could leave int32 are taken in 64 bits: `wide` says so.

    >>> rq = Requant("single_rounding", multiplier=1 << 30, shift=31, lo=-128, hi=127)
    >>> plan = ConvPlan(np.ones((1, 1, 2, 2), np.int8), x_dtype=np.int8, y_dtype=np.int8, requant=rq)
    >>> plan.run(np.ones((1, 3, 3, 1), np.int8))[0, :, :, 0].tolist()
    [[2, 2], [2, 2]]
    """

    def __init__(
        self,
        weight: Array,
        bias: Array | None = None,
        *,
        x_dtype: Any,
        y_dtype: Any = np.int32,
        requant: Requant | None = None,
        x_zero_point: int = 0,
        weight_zero_point: int = 0,
        strides: Sequence[int] = (1, 1),
        pads: Sequence[int] = (0, 0, 0, 0),
        dilations: Sequence[int] = (1, 1),
        groups: int = 1,
        transposed: bool = False,
        output_padding: Sequence[int] = (0, 0),
    ) -> None:
        centred = _centred(weight, weight_zero_point)
        codes = code(x_dtype, "x"), code(y_dtype, "y", _OUTPUTS)
        if transposed:
            i, o, *kernel = centred.shape
            grouped = centred.reshape(groups, i // groups, o, *kernel)
            centred = np.ascontiguousarray(grouped.swapaxes(1, 2)).reshape(groups * o, i // groups, *kernel)
        self.out_channels, inputs, self.kernel_h, self.kernel_w = centred.shape
        self.in_channels = inputs * groups
        self.x_dtype, self.y_dtype = np.dtype(x_dtype), np.dtype(y_dtype)
        self.strides, self.pads, self.dilations = tuple(strides), tuple(pads), tuple(dilations)
        self.transposed, self.output_padding = transposed, tuple(output_padding)
        biases = _biases(bias, self.out_channels)
        worst = _worst_accumulator(
            np.abs(centred.astype(np.int64)).reshape(self.out_channels, -1).sum(axis=1),
            biases, self.x_dtype, x_zero_point,
        )  # fmt: skip
        self.wide = _is_wide(worst, requant)
        raw = RawConv(
            transposed, groups, self.in_channels, self.out_channels, self.kernel_h, self.kernel_w,
            *self.strides, *self.dilations, self.pads[0], self.pads[1],
            codes[0], x_zero_point, codes[1], self.wide,
        )  # fmt: skip
        size_of = library().npuc_conv_size
        size_of.argtypes, size_of.restype = [ctypes.c_void_p], ctypes.c_size_t
        size = size_of(ctypes.addressof(raw))
        if not size:
            raise ValueError(
                f"no convolution has weights {weight.shape}, groups {groups}, strides {self.strides}, dilations "
                f"{self.dilations} and an input zero point of {x_zero_point} in {self.x_dtype.name}"
            )
        self._buffer = _aligned(size)
        stage = _stage(requant, self.y_dtype, self.out_channels)
        call("npuc_conv_prepare", "pppppl", raw, centred, biases, stage, self._buffer, size)

    def output_shape(self, shape: Sequence[int]) -> tuple[int, int, int, int]:
        """The shape of the output for an input of `shape`, both N x H x W x C."""
        n, h, w, c = shape
        if c != self.in_channels:
            raise ValueError(f"the input has {c} channels, the weights {self.in_channels}")
        kernel = (self.kernel_h, self.kernel_w)
        sizes = []
        for axis, size in enumerate((h, w)):
            extent = (kernel[axis] - 1) * self.dilations[axis] + 1
            pad = self.pads[axis] + self.pads[axis + 2]
            if self.transposed:
                sizes.append((size - 1) * self.strides[axis] + extent - pad + self.output_padding[axis])
            else:
                sizes.append((size + pad - extent) // self.strides[axis] + 1)
        if min(sizes) < 1:
            raise ValueError(f"an input of {h} x {w} leaves no output: {sizes[0]} x {sizes[1]}")
        return n, sizes[0], sizes[1], self.out_channels

    def run(self, x: Array, threads: int = 1, out: Array | None = None) -> Array:
        """The output for `x`; written to `out` if that is given (dense, of the right shape and type)."""
        if x.dtype != self.x_dtype:
            raise ValueError(f"the input is {x.dtype.name}, the layer was prepared for {self.x_dtype.name}")
        shape = self.output_shape(x.shape)
        y = _output(out, shape, self.y_dtype)
        x = contiguous(x)
        call(
            "npuc_conv_run", "pplllplli",
            self._buffer, x, x.shape[0], x.shape[1], x.shape[2], y, shape[1], shape[2], threads,
        )  # fmt: skip
        return y


class MatMulPlan:
    """`x @ weight` with constant (K, N) weights: a fully connected layer over the last axis of `x`.

    >>> plan = MatMulPlan(np.int8([[1, 2], [3, 4]]), x_dtype=np.int8)
    >>> plan.run(np.int8([[1, 1]])).tolist()
    [[4, 6]]
    """

    def __init__(self, weight: Array, bias: Array | None = None, **options: Any) -> None:
        if weight.ndim != 2:
            raise ValueError(f"constant weights of a product have 2 dimensions, not {weight.ndim}")
        self._conv = ConvPlan(weight.T[:, :, None, None], bias, **options)
        self.wide = self._conv.wide

    def run(self, x: Array, threads: int = 1, out: Array | None = None) -> Array:
        """The output for `x`: its shape with the last axis replaced; written to `out` if that is given."""
        shape = (*x.shape[:-1], self._conv.out_channels)
        y = _output(out, shape, self._conv.y_dtype)
        rows = int(np.prod(x.shape[:-1], dtype=np.int64))
        if rows:
            flat = contiguous(x).reshape(1, 1, rows, x.shape[-1])
            self._conv.run(flat, threads, y.reshape(1, 1, rows, self._conv.out_channels))
        return y


def matmul(
    a: Array,
    b: Array,
    requant: Requant | None = None,
    *,
    a_zero_point: int = 0,
    b_zero_point: int = 0,
    y_dtype: Any = np.int32,
    transpose_b: bool = False,
    threads: int = 1,
    out: Array | None = None,
) -> Array:
    """`a @ b` of two activations, batch axes broadcast as NumPy does; `transpose_b`: `b` is (..., N, K).

    >>> matmul(np.int8([[1, 2]]), np.int8([[3], [4]]), a_zero_point=1).tolist()
    [[4]]
    """
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(f"the operands of a product have 2 dimensions or more, not {a.ndim} and {b.ndim}")
    y_dtype = np.dtype(y_dtype)
    m, k = a.shape[-2:]
    n, k_b = b.shape[-2:] if transpose_b else b.shape[:-3:-1]
    if k != k_b:
        raise ValueError(f"the operands {a.shape} and {b.shape} have different inner sizes, {k} and {k_b}")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = _output(out, (*batch, m, n), y_dtype)
    if not y.size:
        return y
    a, b = contiguous(a), contiguous(b)
    offsets = [_offsets(operand, batch) for operand in (a, b)]
    worst = k * _largest(a.dtype, a_zero_point) * _largest(b.dtype, b_zero_point)
    raw = RawMatMul(
        code(a.dtype, "a"), code(b.dtype, "b"), code(y_dtype, "y", _OUTPUTS), a_zero_point, b_zero_point, transpose_b,
        _is_wide(worst, requant), threads, m, k, n, len(offsets[0]), offsets[0].ctypes.data, offsets[1].ctypes.data,
    )  # fmt: skip
    raw.keep = offsets
    stage = _stage(requant, y_dtype, n)
    call("npuc_matmul_run", "ppppp", raw, a, b, stage, y)
    return y


_OUTPUTS = ("int8", "uint8", "int16", "int32")


def _centred(weight: Array, zero_point: int) -> Array:
    if weight.ndim != 4:
        raise ValueError(f"the weights of a convolution have 4 dimensions, not {weight.ndim}")
    if not np.issubdtype(weight.dtype, np.integer):
        raise ValueError(f"weights must be integers, not {weight.dtype.name}")
    centred = weight.astype(np.int64) - zero_point if zero_point else weight
    if centred.size and (centred.min() < -32768 or centred.max() > 32767):
        raise ValueError("a weight less its zero point does not fit 16 bits")
    return np.ascontiguousarray(centred, np.int16)


def _biases(bias: Array | None, channels: int) -> Array | None:
    if bias is None:
        return None
    if bias.shape != (channels,):
        raise ValueError(f"the bias has shape {bias.shape}, the layer {channels} output channels")
    if not np.issubdtype(bias.dtype, np.integer):
        raise ValueError(f"a bias must be integers, not {bias.dtype.name}")
    return np.ascontiguousarray(bias, np.int64)


def _largest(dtype: np.dtype[Any], zero_point: int) -> int:
    limits = np.iinfo(dtype)
    return max(int(limits.max) - zero_point, zero_point - int(limits.min))


def _worst_accumulator(weights: Array, bias: Array | None, dtype: np.dtype[Any], zero_point: int) -> int:
    """An upper bound of |acc| over all inputs: sum|q_w| * max|q_x - z_x| + |bias|, the largest of the channels."""
    largest = _largest(dtype, zero_point)
    biases = [0] * len(weights) if bias is None else bias.tolist()
    return max((w * largest + abs(b) for w, b in zip(weights.tolist(), biases, strict=True)), default=0)


def _is_wide(worst: int, requant: Requant | None) -> bool:
    """Whether 32 bits are too few, and 64 serve."""
    if worst < _INT32:
        return False
    if requant is None or requant.kind is Kind.DOUBLE_ROUNDING:
        what = "raw accumulators are" if requant is None else f"the output stage '{requant.kind}' is"
        raise ValueError(f"an accumulator could reach {worst}, beyond int32, and {what} 32 bits wide")
    if worst >= _INT64:
        raise ValueError(f"an accumulator could reach {worst}, beyond int64")
    return True


def _stage(requant: Requant | None, dtype: np.dtype[Any], channels: int) -> RawRequant | None:
    if requant is None:
        return None
    if requant.count not in (1, channels):
        raise ValueError(f"the output stage has {requant.count} entries for {channels} channels")
    return raw_requant(requant, dtype)


def _offsets(operand: Array, batch: tuple[int, ...]) -> Array:
    """Where each matrix of the broadcast batch starts in the dense operand, in elements."""
    own = operand.shape[:-2]
    size = operand.shape[-1] * operand.shape[-2]
    starts = np.arange(int(np.prod(own, dtype=np.int64)), dtype=np.int64).reshape(own) * size
    return np.ascontiguousarray(np.broadcast_to(starts, batch)).reshape(-1)


def _output(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if out is None:
        return empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"the output must be a dense, writeable {dtype.name} array of shape {shape}")
    return out


def _aligned(size: int) -> Array:
    """A buffer on a cache line, as the vector loads like it."""
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]
