"""`x[...]` as a slice and a reshape: integers, slices with steps, one ellipsis, and None for a new axis."""

from __future__ import annotations

from typing import Any

from npuc.errors import NetworkError
from npuc.lang.tensor import Tensor


def take(x: Tensor, key: Any) -> Tensor:
    """The part of a tensor that a Python index names.

    >>> from npuc.lang import input
    >>> take(input("x", (1, 8, 4, 4)), (0, slice(None, None, 2), ..., None))
    <Tensor f32 [4, 4, 4, 1]>
    """
    from npuc.lang import ops

    keys = list(key) if isinstance(key, tuple) else [key]
    used = sum(1 for entry in keys if entry is not None and entry is not Ellipsis)
    if used > len(x.shape) or keys.count(Ellipsis) > 1:
        raise NetworkError(f"the index has {used} entries, and {x!r} has {len(x.shape)} axes")
    at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    keys[at : at + 1] = [slice(None)] * (len(x.shape) - used)
    offsets: list[int] = []
    steps: list[int] = []
    sizes: list[int] = []
    final: list[int] = []
    for entry in keys:
        if entry is None:
            final.append(1)
            continue
        size = x.shape[len(sizes)]
        if isinstance(entry, slice):
            start, stop, step = entry.indices(size)
            count = len(range(start, stop, step))
            final.append(count)
        elif isinstance(entry, int) and -size <= entry < size:
            start, step, count = entry % size, 1, 1
        else:
            raise NetworkError(f"the index {entry!r} does not fit axis {len(sizes)} of {x!r}")
        if count < 1:
            raise NetworkError(f"the index {entry!r} takes nothing of axis {len(sizes)} of {x!r}")
        offsets.append(start)
        steps.append(step)
        sizes.append(count)
    part = x
    if tuple(sizes) != x.shape or any(step != 1 for step in steps):
        part = ops.slice(x, offset=offsets, steps=steps, shape=sizes)
    return part if tuple(final) == part.shape else ops.reshape(part, shape=final)
