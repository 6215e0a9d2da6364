"""What machines that were not compiled for may be expected to reach: their bounds, times what others made of theirs.

How far a program stays behind its bound depends on parameters that bounds know little of, such as the lanes of the vector engine
or the number of banks. So the logarithm of figure over bound is taken for a sum of effects, one for each value of each parameter,
fitted by ridge regression to what was compiled.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npuc.arrays import Array

_RIDGE = 0.1
"""Keeps the effect of a value that few machines have near 0."""


def estimated(bounds: Array, choices: Array, known: Mapping[int, Array]) -> Array:
    """Figures of all machines: known ones, and estimates; `choices` are the numbers of each machine's parameter values."""
    if not known:
        return bounds
    machines = sorted(known)
    reached = np.array([known[machine] for machine in machines])
    behind = np.log(np.maximum(reached, 1e-300) / np.maximum(bounds[machines], 1e-300))
    effects = _indicators(choices)
    mean = behind.mean(axis=0)
    fitted = effects[machines]
    normal = fitted.T @ fitted + _RIDGE * np.eye(effects.shape[1])
    weights = np.linalg.solve(normal, fitted.T @ (behind - mean))
    estimates: Array = bounds * np.exp(np.maximum(mean + effects @ weights, 0.0))
    estimates[machines] = reached
    return estimates


def _indicators(choices: Array) -> Array:
    """A column for each value of each parameter: 1 where a machine has it."""
    columns = [
        choices[:, axis] == value for axis in range(choices.shape[1]) for value in np.unique(choices[:, axis])
    ]
    return np.array(columns, float).reshape(len(columns), len(choices)).T
