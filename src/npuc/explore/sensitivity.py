"""What each parameter does to each figure: the factor between its values, all other parameters as they are.

The factors are of the lower bounds, which all machines have: for each value, the geometric mean over all combinations of the
other parameters that are machines with every value of this one, relative to the first value.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.explore.space import Space


def sensitivities(space: Space, numbers: Array, bounds: Array) -> dict[str, list[list[float] | None]]:
    """By parameter: for each of its values the factor of each figure, relative to its first value that has machines; None for
    values without."""
    shape = tuple(len(parameter.values) for parameter in space.parameters)
    logs = np.full((space.size, bounds.shape[1]), np.nan)
    logs[numbers] = np.log(np.maximum(bounds, 1e-300))
    grid = logs.reshape(*shape, bounds.shape[1])
    factors: dict[str, list[list[float] | None]] = {}
    for axis, parameter in enumerate(space.parameters):
        rows = np.moveaxis(grid, axis, 0).reshape(shape[axis], -1, bounds.shape[1])
        met = ~np.isnan(rows).all(axis=(1, 2))
        whole = ~np.isnan(rows[met]).any(axis=(0, 2))
        means = rows[met][:, whole].mean(axis=1) if whole.any() else np.zeros((0, bounds.shape[1]))
        known = dict(zip(np.flatnonzero(met).tolist(), np.exp(means - means[:1]).tolist(), strict=False))
        factors[parameter.name] = [known.get(at) for at in range(shape[axis])]
    return factors
