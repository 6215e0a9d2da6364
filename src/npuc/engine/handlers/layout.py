"""Between the logical shape of a tensor and its order in memory.

A tensor of rank 4 is N x C x H x W to the program and N x H x W x C to the kernels. The arrays that steps exchange have
the logical shape; these functions show one in memory order (a view if it is kept so already) and back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuc.arrays import Array


def inward(x: Array, rank: int | None = None) -> Array:
    """A logical array in memory order; one of lower rank than `rank` gets leading axes of 1 first."""
    if rank is not None and x.ndim < rank:
        x = x.reshape((1,) * (rank - x.ndim) + x.shape)
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


def outward(x: Array) -> Array:
    """An array in memory order under its logical shape."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x


def memory_order(x: Array) -> tuple[int, ...]:
    """The axes of an array from the outermost in memory to the innermost; axes of one element stay where they are."""
    long = [axis for axis in range(x.ndim) if x.shape[axis] > 1]
    ordered = iter(sorted(long, key=lambda axis: -abs(x.strides[axis])))
    return tuple(next(ordered) if axis in set(long) else axis for axis in range(x.ndim))


def elementwise(function: Callable[[Array], Array]) -> Callable[[list[Array]], list[Array]]:
    """A step that applies a function to every element, in whichever order they lie in memory."""

    def run(arrays: list[Array]) -> list[Array]:
        order = memory_order(arrays[0])
        moved = arrays[0].transpose(order)
        y = function(moved).reshape(moved.shape)  # the kernels make a vector of a scalar
        return [y.transpose(np.argsort(order))]

    return run
