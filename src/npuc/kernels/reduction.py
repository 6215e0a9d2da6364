"""Sum, mean, largest, smallest, and their places, over any axes of integer tensors.

Axes that lie side by side are reduced where they are; others are moved together first. A mean is a sum whose output
stage divides (`npuc.arithmetic.requantization.mean_parameters`). The arithmetic is docs/arithmetic-reduce.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.kernels.calls import call, check_zero_point, code, contiguous, empty, raw_requant
from npuc.kernels.requant import Requant

Axes = int | Sequence[int] | None


def reduce_sum(
    x: Array,
    rq: Requant,
    axes: Axes = None,
    *,
    zero_point: int = 0,
    keepdims: bool = False,
    dtype: Any = None,
    threads: int = 1,
) -> Array:
    """rq(sum of (x - zero_point)) over axes (all of them if none is named); a mean by the parameters of `rq`."""
    out = np.dtype(x.dtype if dtype is None else dtype)
    code_x, code_y = code(x.dtype, "x"), code(out, "the output")
    check_zero_point(zero_point, x.dtype, "x")
    moved, sizes, shape = middle(x, axes, keepdims)
    y = empty(shape, out)
    raw = raw_requant(rq, out, 1)
    call("npuc_reduce_sum", "piilllpipi", moved, code_x, zero_point, *sizes, raw, code_y, y, threads)
    return y


def reduce_max(x: Array, axes: Axes = None, *, keepdims: bool = False, threads: int = 1) -> Array:
    """The largest element over axes.

    >>> reduce_max(np.int8([[1, 5], [7, 2]]), 1).tolist()
    [5, 7]
    """
    return _extreme(x, axes, keepdims, 1, threads)


def reduce_min(x: Array, axes: Axes = None, *, keepdims: bool = False, threads: int = 1) -> Array:
    """The smallest element over axes.

    >>> reduce_min(np.int8([[1, 5], [7, 2]]), 1).tolist()
    [1, 2]
    """
    return _extreme(x, axes, keepdims, 0, threads)


def argmax(x: Array, axis: int, *, keepdims: bool = False, last: bool = False, threads: int = 1) -> Array:
    """Where the largest element along an axis is, as int64: its first place, or its last.

    >>> argmax(np.int8([[1, 5, 5]]), 1).tolist(), argmax(np.int8([[1, 5, 5]]), 1, last=True).tolist()
    ([1], [2])
    """
    return _where(x, axis, keepdims, 1, last, threads)


def argmin(x: Array, axis: int, *, keepdims: bool = False, last: bool = False, threads: int = 1) -> Array:
    """Where the smallest element along an axis is, as int64: its first place, or its last.

    >>> argmin(np.int8([[1, 5, 1]]), 1).tolist()
    [0]
    """
    return _where(x, axis, keepdims, 0, last, threads)


def top_k(x: Array, k: int, axis: int, *, larger: bool = True, threads: int = 1) -> Array:
    """The places of the k largest elements along an axis, or of the smallest, as int64; of equal ones the first come first.

    >>> top_k(np.int8([[1, 5, 2, 5]]), 3, 1).tolist()
    [[1, 3, 2]]
    """
    code_x = code(x.dtype, "x")
    moved, sizes, _ = middle(x, axis, True)
    places = empty((*x.shape[: axis % x.ndim], k, *x.shape[axis % x.ndim + 1 :]), np.int64)
    call("npuc_top_k", "pillllipi", moved, code_x, *sizes, k, int(larger), places, threads)
    return places


def _extreme(x: Array, axes: Axes, keepdims: bool, larger: int, threads: int) -> Array:
    code_x = code(x.dtype, "x")
    moved, sizes, shape = middle(x, axes, keepdims)
    y = empty(shape, x.dtype)
    call("npuc_reduce_extreme", "pilllipi", moved, code_x, *sizes, larger, y, threads)
    return y


def _where(x: Array, axis: int, keepdims: bool, larger: int, last: bool, threads: int) -> Array:
    code_x = code(x.dtype, "x")
    moved, sizes, shape = middle(x, axis, keepdims)
    y = empty(shape, np.int64)
    call("npuc_reduce_where", "pillliipi", moved, code_x, *sizes, larger, last, y, threads)
    return y


def middle(x: Array, axes: Axes, keepdims: bool) -> tuple[Array, tuple[int, int, int], tuple[int, ...]]:
    """The tensor as [outer, count, inner] in memory, these sizes, and the shape of the result."""
    named = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else list(axes)
    for axis in named:
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(f"there is no axis {axis} in a tensor of {x.ndim} dimensions")
    chosen = sorted({axis % x.ndim for axis in named})
    if len(chosen) != len(named):
        raise ValueError(f"an axis is named twice in {axes}")
    count = math.prod(x.shape[axis] for axis in chosen)
    if count == 0:
        raise ValueError("there is nothing to reduce: an axis has size 0")
    shape = tuple(1 if i in chosen else size for i, size in enumerate(x.shape) if keepdims or i not in chosen)
    if chosen and chosen == list(range(chosen[0], chosen[-1] + 1)):
        outer = math.prod(x.shape[: chosen[0]])
        inner = math.prod(x.shape[chosen[-1] + 1 :])
        return contiguous(x), (outer, count, inner), shape
    kept = [i for i in range(x.ndim) if i not in chosen]
    return contiguous(x.transpose(kept + chosen)), (x.size // count, count, 1), shape
