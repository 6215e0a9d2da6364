"""What loads and stores reach of the memory far away."""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array


def reach(records: Array) -> tuple[Array, Array]:
    """The first byte of DRAM or shared memory that each load or store may touch, and the one behind the last."""
    size = records["size"].astype(np.int64)
    steps = records["far_stride"] * (size[:, :3] - 1)
    length = size[:, 3]
    if "stored" in (records.dtype.names or ()):
        length = np.where(records["stored"] != 0, records["stored"], length)
    offset = records["offset"].astype(np.int64)
    return offset + np.minimum(steps, 0).sum(axis=1), offset + np.maximum(steps, 0).sum(axis=1) + length
