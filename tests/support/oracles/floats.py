"""The slow, obvious model of bf16, f16 and f32 arithmetic: from docs/arithmetic-float.md, not from the kernels.

A sum is a loop over kernel row, kernel column and input channel; each step adds an exact product to a float32 and rounds
once; a sum of -0 is stored as 0. Layouts are the kernels' (activations N x H x W x C, weights as ONNX has them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import factorial
from typing import Any

import numpy as np

from npuc.arrays import Array


def step(acc: Array, x: Array, w: Array) -> Array:
    """float32(acc + x * w), the product exact: float64 holds it, and `exact_step` shows that its sum is close enough."""
    with np.errstate(all="ignore"):
        return (acc.astype(np.float64) + x.astype(np.float64) * w.astype(np.float64)).astype(np.float32)


def fused_step(acc: Array, x: Array, w: Array) -> Array:
    """The same of float32, whose products fill 48 bits: the sum in float64, rounded to odd where it is not exact.

    A sum that is not exact gets the neighbour in float64 whose last bit is 1. It lies between two float32 and on no midpoint of
    them, so that rounding it to float32 goes where rounding the exact sum does.
    """
    with np.errstate(all="ignore"):
        a, b = acc.astype(np.float64), x.astype(np.float64) * w.astype(np.float64)
        total = np.asarray(a + b)
        other = total - a
        error = (a - (total - other)) + (b - other)  # of Knuth's two-sum: exact
        bits = total.view(np.int64)
        inexact = (error != 0) & np.isfinite(error) & (bits & 1 == 0)
        outward = (error > 0) == (total > 0)
        return np.where(inexact, bits + np.where(outward, 1, -1), bits).view(np.float64).astype(np.float32)


def step_of(dtype: Any) -> Callable[[Array, Array, Array], Array]:
    """The step of a sum of products of a type."""
    return fused_step if np.dtype(dtype) == np.float32 else step


def exact_step(acc: float, x: float, w: float) -> Fraction:
    """acc + x * w with no rounding at all."""
    return Fraction(acc) + Fraction(x) * Fraction(w)


def round_exact(value: Fraction) -> np.float32:
    """The float32 nearest to a rational, ties to even, found by comparing neighbours."""
    if abs(value) >= Fraction(2) ** 128 - Fraction(2) ** 103:
        return np.float32(np.inf if value > 0 else -np.inf)
    guess = np.float32(float(value))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    finite = [c for c in near if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.uint32)) & 1))


def finish(acc: Array, dtype: Any, relu: bool, limit: float) -> Array:
    """The fused relu, then rounding to nearest even."""
    with np.errstate(all="ignore"):
        if relu:
            acc = np.where(acc < 0, np.float32(0), acc)
            acc = np.where(acc > np.float32(limit), np.float32(limit), acc) if limit > 0 else acc
        return acc.astype(dtype)


def conv(
    x: Array,
    weight: Array,
    bias: Array | None,
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
    relu: bool = False,
    limit: float = 0.0,
) -> Array:
    """A convolution; a padded position holds 0."""
    top, left, bottom, right = pads
    real = np.pad(x.astype(np.float32), ((0, 0), (top, bottom), (left, right), (0, 0)))
    outputs, inputs, kh, kw = weight.shape
    height = (real.shape[1] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    width = (real.shape[2] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    acc = _start(bias, (x.shape[0], height, width, outputs))
    each = outputs // groups
    for ky in range(kh):
        for kx in range(kw):
            rows = slice(ky * dilations[0], ky * dilations[0] + (height - 1) * strides[0] + 1, strides[0])
            columns = slice(kx * dilations[1], kx * dilations[1] + (width - 1) * strides[1] + 1, strides[1])
            for i in range(inputs):
                for o in range(outputs):
                    pixel = real[:, rows, columns, o // each * inputs + i]
                    acc[..., o] = step_of(x.dtype)(
                        acc[..., o], pixel, weight[o, i, ky, kx].astype(np.float32)
                    )
    return finish(acc + np.float32(0), x.dtype, relu, limit)


def deconv(
    x: Array,
    weight: Array,
    bias: Array | None,
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
    output_padding: Sequence[int] = (0, 0),
    relu: bool = False,
    limit: float = 0.0,
) -> Array:
    """A transposed convolution, output by output: tap k of output o meets input i where o = i * stride + k * dilation - pad."""
    n, h, w, channels = x.shape
    _, each, kh, kw = weight.shape
    inputs = channels // groups
    size = [
        (length - 1) * strides[a] + (k - 1) * dilations[a] + 1 + output_padding[a] - pads[a] - pads[a + 2]
        for a, (length, k) in enumerate(((h, kh), (w, kw)))
    ]
    acc = _start(bias, (n, *size, each * groups))
    for oy in range(size[0]):
        for ox in range(size[1]):
            for ky in range(kh):
                for kx in range(kw):
                    y, z = oy + pads[0] - ky * dilations[0], ox + pads[1] - kx * dilations[1]
                    if y % strides[0] or z % strides[1]:
                        continue
                    y, z = y // strides[0], z // strides[1]
                    if not (0 <= y < h and 0 <= z < w):
                        continue
                    for i in range(inputs):
                        for g in range(groups):
                            part = slice(g * each, (g + 1) * each)
                            c = g * inputs + i
                            acc[:, oy, ox, part] = step_of(x.dtype)(
                                acc[:, oy, ox, part],
                                x[:, y, z, c, None].astype(np.float32),
                                weight[c, :, ky, kx].astype(np.float32),
                            )
    return finish(acc + np.float32(0), x.dtype, relu, limit)


def matmul(a: Array, b: Array, bias: Array | None = None, relu: bool = False, limit: float = 0.0) -> Array:
    """A product over the last axis of a and the last but one of b."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    acc = _start(bias, (*batch, a.shape[-2], b.shape[-1]))
    for k in range(a.shape[-1]):
        acc = step_of(a.dtype)(
            acc, a[..., :, k, None].astype(np.float32), b[..., None, k, :].astype(np.float32)
        )
    return finish(acc + np.float32(0), a.dtype, relu, limit)


def average_pool(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    out: Sequence[int],
    include: bool,
) -> Array:
    """Sums in float32, rows first, then one division."""
    n, h, w, c = x.shape
    y = np.zeros((n, *out, c), np.float32)
    for oy in range(out[0]):
        for ox in range(out[1]):
            acc, count = np.zeros((n, c), np.float32), 0
            for ky in range(kernel[0]):
                for kx in range(kernel[1]):
                    iy, ix = oy * strides[0] - pads[0] + ky, ox * strides[1] - pads[1] + kx
                    if 0 <= iy < h and 0 <= ix < w:
                        acc, count = acc + x[:, iy, ix].astype(np.float32), count + 1
            y[:, oy, ox] = acc / np.float32(kernel[0] * kernel[1] if include else count)
    return y.astype(x.dtype)


def _start(bias: Array | None, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32) + (np.float32(0) if bias is None else bias.astype(np.float32))


def block_round(x: Array, kind: str) -> list[float]:
    """One row of reals as mx6 or mx9, block by block and pair by pair."""
    bits = {"mx6": 4, "mx9": 7}[kind]
    rounded: list[float] = []
    for start in range(0, len(x), 16):
        block = [float(value) for value in x[start : start + 16]]
        largest = max(abs(value) for value in block)
        for first in range(0, len(block), 2):
            pair = block[first : first + 2]
            shared = _exponent(largest)
            lowered = all(_exponent(abs(value)) < shared for value in pair)
            scale = Fraction(2) ** (shared - lowered - (bits - 1))
            for value in pair:
                mantissa = round(Fraction(value) / scale)  # ties to even
                mantissa = max(-(2**bits - 1), min(2**bits - 1, mantissa))
                rounded.append(float(mantissa * scale))
    return rounded


def _exponent(value: float) -> int:
    """floor(log2(value)), not below that of the smallest normal float32."""
    exponent = -126
    while exponent < 127 and value >= 2.0 ** (exponent + 1):
        exponent += 1
    return exponent


def exponential(x: Array) -> Array:
    """e^x of float32 x <= 0, by the series of docs/arithmetic-float.md in float64, rounded once to float32."""
    ln2_high, ln2_low = 0.6931471803691238, 1.9082149292705877e-10
    wide = np.where(x >= np.float32(-104), x, np.float32(-104)).astype(np.float64)
    n = np.floor(wide * 1.4426950408889634 + 0.5)
    r = (wide - n * ln2_high) - n * ln2_low
    series = np.full_like(r, 1 / factorial(10))
    for power in reversed(range(10)):
        series = series * r + 1 / factorial(power)
    e = (series * np.exp2(n)).astype(np.float32)
    return np.where(np.isnan(x), x, np.where(x < np.float32(-104), np.float32(0), e))


def total_order_max(a: Array, b: Array) -> Array:
    """The larger of two float32 in IEEE's total order, one by one."""
    return _chosen(a, b, 1)


def total_order_min(a: Array, b: Array) -> Array:
    """The smaller of two float32 in IEEE's total order, one by one."""
    return _chosen(a, b, -1)


def _chosen(a: Array, b: Array, sign: int) -> Array:
    first, second = np.broadcast_arrays(a, b)
    pairs = zip(first.reshape(-1), second.reshape(-1), strict=True)
    chosen = [max(pair, key=lambda value: sign * _place(value)) for pair in pairs]
    return np.array(chosen, np.float32).reshape(first.shape)


def _place(value: np.float32) -> int:
    """Where a float stands in the total order: the magnitude of its bits, below -0 for a negative one."""
    bits = int(value.view(np.uint32))
    magnitude = bits & 0x7FFFFFFF
    return -1 - magnitude if bits >> 31 else magnitude


def ascending_sum(x: Array) -> Array:
    """The float32 sum along the last axis, one element after the other."""
    total = np.zeros(x.shape[:-1], np.float32)
    with np.errstate(all="ignore"):
        for i in range(x.shape[-1]):
            total = total + x[..., i]
    return total


def softmax(x: Array) -> Array:
    """Along the last axis."""
    wide = x.astype(np.float32)
    with np.errstate(all="ignore"):
        e = exponential(wide - wide.max(-1, keepdims=True))
        return (e / ascending_sum(e)[..., None]).astype(x.dtype)


def norm(
    x: Array, gain: Array, bias: Array, *, center: bool = True, mean: bool = True, epsilon: float = 0.0
) -> Array:
    """Along the last axis; gain and bias broadcast."""
    wide, width = x.astype(np.float32), np.float32(x.shape[-1])
    with np.errstate(all="ignore"):
        middle = ascending_sum(wide) / width if center else np.zeros(x.shape[:-1], np.float32)
        d = wide - middle[..., None]
        squares = ascending_sum(d * d)
        if mean:
            r = np.float32(1) / np.sqrt(squares / width + np.float32(epsilon))
        else:
            divisor = np.maximum(np.sqrt(squares), np.float32(epsilon))
            r = np.where(divisor == 0, np.float32(0), np.float32(1) / divisor)
        return (d * r[..., None] * gain.astype(np.float32) + bias.astype(np.float32)).astype(x.dtype)


def reduce_sum(x: Array, mean: bool) -> Array:
    """Along the last axis."""
    total = ascending_sum(x.astype(np.float32))
    with np.errstate(all="ignore"):
        return (total / np.float32(x.shape[-1] if mean else 1)).astype(x.dtype)
