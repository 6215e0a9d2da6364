"""The slow, obvious model of the layers that multiply, in NumPy int64: from docs/arithmetic.md, not from the kernels.

Layouts are the kernels' (activations N x H x W x C, weights as ONNX has them); nothing else is shared with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from support.oracles.integers import requantize_array


def conv(
    x: Array,
    weight: Array,
    bias: Array | None,
    x_zero_point: int = 0,
    weight_zero_point: int = 0,
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Array:
    """Accumulators of a convolution. A padded position holds the zero point: it adds nothing."""
    top, left, bottom, right = pads
    centred = np.pad(x.astype(np.int64) - x_zero_point, ((0, 0), (top, bottom), (left, right), (0, 0)))
    w = weight.astype(np.int64) - weight_zero_point
    outputs, inputs, kh, kw = w.shape
    height = (centred.shape[1] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    width = (centred.shape[2] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    acc = np.zeros((x.shape[0], height, width, outputs), np.int64)
    per_group = outputs // groups
    for oy in range(height):
        for ox in range(width):
            for ky in range(kh):
                for kx in range(kw):
                    pixel = centred[
                        :, oy * strides[0] + ky * dilations[0], ox * strides[1] + kx * dilations[1]
                    ]
                    for g in range(groups):
                        some = slice(g * per_group, (g + 1) * per_group)
                        acc[:, oy, ox, some] += pixel[:, g * inputs : (g + 1) * inputs] @ w[some, :, ky, kx].T
    return acc + (0 if bias is None else bias.astype(np.int64))


def deconv(
    x: Array,
    weight: Array,
    bias: Array | None,
    x_zero_point: int = 0,
    weight_zero_point: int = 0,
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
    output_padding: Sequence[int] = (0, 0),
) -> Array:
    """Accumulators of a transposed convolution: every input pixel stamps the kernel on the output, pads are cut off."""
    top, left, bottom, right = pads
    centred = x.astype(np.int64) - x_zero_point
    w = weight.astype(np.int64) - weight_zero_point
    inputs, per_group, kh, kw = w.shape
    n, h, wd, _ = x.shape
    full = np.zeros(
        (
            n,
            (h - 1) * strides[0] + (kh - 1) * dilations[0] + 1 + output_padding[0],
            (wd - 1) * strides[1] + (kw - 1) * dilations[1] + 1 + output_padding[1],
            per_group * groups,
        ),
        np.int64,
    )
    taken = inputs // groups
    for iy in range(h):
        for ix in range(wd):
            for ky in range(kh):
                for kx in range(kw):
                    for g in range(groups):
                        stamp = (
                            centred[:, iy, ix, g * taken : (g + 1) * taken]
                            @ w[g * taken : (g + 1) * taken, :, ky, kx]
                        )
                        y, z = iy * strides[0] + ky * dilations[0], ix * strides[1] + kx * dilations[1]
                        full[:, y, z, g * per_group : (g + 1) * per_group] += stamp
    cut = full[:, top : full.shape[1] - bottom, left : full.shape[2] - right]
    return cut + (0 if bias is None else bias.astype(np.int64))


def matmul(a: Array, b: Array, a_zero_point: int = 0, b_zero_point: int = 0) -> Array:
    """Accumulators of a batched product of two activations."""
    product: Array = (a.astype(np.int64) - a_zero_point) @ (b.astype(np.int64) - b_zero_point)
    return product


def finish(acc: Array, requant: Any, dtype: Any) -> Array:
    """The output stage over accumulators whose last axis is the channel; None: the accumulators."""
    if requant is None:
        return acc.astype(dtype)
    rq = requant
    multiplier = rq.scale if rq.kind == "float_scale" else 0 if rq.kind == "pow2" else rq.multiplier
    shift = 0 if rq.kind == "float_scale" else rq.shift
    last = acc.ndim - 1
    return requantize_array(acc, rq.kind, multiplier, shift, rq.zero_point, rq.lo, rq.hi, last).astype(dtype)
