"""Slow models of the pools, from docs/arithmetic-pooling.md."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from npuc.arrays import Array
from support.oracles.integers import requantize

Pair = tuple[int, int]


def windows(x: Array, kernel: Pair, stride: Pair, pads: Pair, out: Pair, dilation: Pair) -> Any:
    """Each output position with the list of the input vectors (over channels) in its window."""
    for n in range(x.shape[0]):
        for row in range(out[0]):
            for column in range(out[1]):
                members = []
                for i in range(kernel[0]):
                    for j in range(kernel[1]):
                        y = row * stride[0] - pads[0] + i * dilation[0]
                        z = column * stride[1] - pads[1] + j * dilation[1]
                        if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                            members.append(x[n, y, z].astype(np.int64))
                yield (n, row, column), members


def max_pool(x: Array, kernel: Pair, stride: Pair, pads: Pair, out: Pair, dilation: Pair) -> Array:
    """The largest of each window."""
    y = np.empty((x.shape[0], *out, x.shape[3]), np.int64)
    for at, members in windows(x, kernel, stride, pads, out, dilation):
        y[at] = np.max(members, axis=0)
    return y


def round_half_away(value: Fraction) -> int:
    """To the nearest integer, ties away from zero."""
    return floor(value + Fraction(1, 2)) if value >= 0 else -floor(-value + Fraction(1, 2))


def average_pool(
    x: Array,
    kernel: Pair,
    stride: Pair,
    pads: Pair,
    out: Pair,
    dilation: Pair,
    rq: Any,
    zero_point: int,
    include_pad: bool,
) -> Array:
    """The mean of each window."""
    y = np.empty((x.shape[0], *out, x.shape[3]), np.int64)
    whole = kernel[0] * kernel[1]
    for at, members in windows(x, kernel, stride, pads, out, dilation):
        count = whole if include_pad else len(members)
        padding = count - len(members)
        for c in range(x.shape[3]):
            values = [int(member[c]) for member in members] + [zero_point] * padding
            if rq.kind == "double_rounding":
                mean = round_half_away(Fraction(sum(values), count))
                y[(*at, c)] = min(max(mean, rq.lo), rq.hi)
                continue
            parameters = rq.scale if rq.kind == "float_scale" else rq.multiplier
            entry = count - 1 if max(np.size(parameters), np.size(rq.shift)) > 1 else 0
            acc = sum(value - zero_point for value in values)
            m = 1 if parameters is None else parameters[entry].item()
            s = 0 if rq.kind == "float_scale" else int(rq.shift[entry])
            y[(*at, c)] = requantize(acc, rq.kind, m, s, rq.zero_point, rq.lo, rq.hi)
    return y
