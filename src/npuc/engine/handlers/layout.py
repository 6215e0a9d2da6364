"""Between the logical shape of a tensor and its order in memory.

A tensor of rank 4 is N x C x H x W to the program and N x H x W x C to the kernels. The arrays that steps exchange have
the logical shape; these functions show one in memory order (a view if it is kept so already) and back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def inward(x: Array, rank: int | None = None) -> Array:
    """A logical array in memory order; one of lower rank than `rank` gets leading axes of 1 first."""
    if rank is not None and x.ndim < rank:
        x = x.reshape((1,) * (rank - x.ndim) + x.shape)
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


def outward(x: Array) -> Array:
    """An array in memory order under its logical shape."""
    return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
