"""The algorithm for one matrix: rows are outputs, columns inputs."""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array

_BLOCK = 128
"""The number of columns whose errors are propagated to later columns together."""
_DAMPING = 0.01
"""The share of the mean of the Hessian's diagonal that is added to the diagonal."""


def rounded_together(weight: Array, scale: Array, hessian: Array, lowest: int, highest: int) -> Array:
    """Integers for `weight` (rows x columns) with per-row scales, given the second moments of the inputs.

    Columns are rounded in the order of their moments: errors of the inputs that matter most are compensated by all others.
    """
    order = np.argsort(-np.diag(hessian), kind="stable")
    chosen = np.empty(weight.shape)
    chosen[:, order] = _in_order(weight[:, order], scale, hessian[np.ix_(order, order)], lowest, highest)
    return chosen


def _in_order(weight: Array, scale: Array, hessian: Array, lowest: int, highest: int) -> Array:
    """The same, one column after the other as they are."""
    rows, columns = weight.shape
    work = weight.astype(np.float64).copy()
    steps = np.broadcast_to(scale, (rows, 1)).astype(np.float64)
    h = hessian.astype(np.float64).copy()
    dead = np.diag(h) <= 0
    h[dead, dead] = 1.0
    work[:, dead] = np.rint(work[:, dead] / steps) * steps
    h[np.diag_indices(columns)] += _DAMPING * float(np.mean(np.diag(h)))
    # The rows of the inverse's upper Cholesky factor tell how later columns compensate the error of an earlier one.
    factor = np.linalg.cholesky(np.linalg.inv(h)).T
    chosen = np.zeros_like(work)
    for begin in range(0, columns, _BLOCK):
        end = min(begin + _BLOCK, columns)
        errors = np.zeros((rows, end - begin))
        for column in range(begin, end):
            value = work[:, column : column + 1]
            chosen[:, column : column + 1] = np.clip(np.rint(value / steps), lowest, highest)
            error = (value - chosen[:, column : column + 1] * steps) / factor[column, column]
            work[:, column:end] -= error @ factor[column : column + 1, column:end]
            errors[:, column - begin] = error[:, 0]
        work[:, end:] -= errors @ factor[begin:end, end:]
    return chosen
