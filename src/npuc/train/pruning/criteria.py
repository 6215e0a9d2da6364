"""Criteria: how important each channel of a group is, by its weights or by what the loss says of them.

| criterion | a channel is important if |
|---|---|
| `l1`, `l2` | the weights that make it are large |
| `geometric_median` | the weights that make it are unlike those of the other channels, which could not replace it |
| `taylor` | the loss would change without it, to first order: (sum of gradient x weight)^2 |
| `batch_norm` | the scale of its batch norm is large |

Scores of one group are comparable with each other. Those of different groups are too for `taylor`; for the others they are
divided by the mean of their group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.ir import top
from npuc.train.pruning.groups import DependencyGraph, PruningGroup

Criterion = Literal["l1", "l2", "geometric_median", "taylor", "batch_norm"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)

Importance = dict[str, Array]
"""For each group by name, a score for each of its channels."""


def importance(
    dependencies: DependencyGraph,
    criterion: Criterion = "l2",
    gradients: Callable[[], dict[str, Array]] | None = None,
) -> Importance:
    """The scores of all channels that can be removed.

    `taylor` needs `gradients`: for each weight the gradient times the weight, as `gradients.weight_salience` computes it.
    """
    if criterion not in CRITERIA:
        raise UsageError(f"'{criterion}' is no criterion", fix=f"Use one of {', '.join(CRITERIA)}")
    if criterion == "taylor":
        if gradients is None:
            raise UsageError(
                "the criterion 'taylor' needs data to take gradients on", fix="Give data, or use l2"
            )
        salience = gradients()
        return {group.name: _taylor(dependencies, group, salience) for group in dependencies.groups}
    if criterion == "batch_norm":
        return {group.name: _scales(dependencies, group) for group in dependencies.groups}
    measure = {"l1": _l1, "l2": _l2, "geometric_median": _distance}[criterion]
    return {group.name: _by_rows(dependencies, group, measure) for group in dependencies.groups}


def _rows(dependencies: DependencyGraph, group: PruningGroup) -> list[Array]:
    """For each weight that makes channels of the group, one row for each channel; biases are left out."""
    table: dict[tuple[str, int], list[Array]] = {}
    for channel in group.channels:
        for axis, indices in dependencies.weight_axes[channel]:
            array = dependencies.graph.weights[axis.ref].array()
            if axis.role == "producer" and array.ndim > 1:
                row = np.take(array, indices, axis.axis).reshape(-1).astype(np.float64)
                table.setdefault((axis.ref, axis.axis), []).append(row)
    return [np.stack(rows) for rows in table.values() if len(rows) == group.size]


def _l1(rows: Array) -> Array:
    return np.asarray(np.abs(rows).sum(1))


def _l2(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.square(rows).sum(1)))


def _distance(rows: Array) -> Array:
    """The sum of the distances to all other channels: small for those near the geometric median."""
    squares = np.square(rows).sum(1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0))
    return np.asarray(distances.sum(1))


def _by_rows(dependencies: DependencyGraph, group: PruningGroup, measure: Callable[[Array], Array]) -> Array:
    scores = np.zeros(group.size)
    for rows in _rows(dependencies, group):
        values = measure(rows)
        scores += values / max(float(values.mean()), 1e-30)
    return scores


def _taylor(dependencies: DependencyGraph, group: PruningGroup, salience: dict[str, Array]) -> Array:
    scores = np.zeros(group.size)
    for at, channel in enumerate(group.channels):
        for axis, indices in dependencies.weight_axes[channel]:
            if axis.role == "producer" and axis.ref in salience:
                scores[at] += float(np.take(salience[axis.ref], indices, axis.axis).sum()) ** 2
    return scores


def _scales(dependencies: DependencyGraph, group: PruningGroup) -> Array:
    refs = set()
    for op in dependencies.graph.ops:
        if isinstance(op, top.BatchNorm | top.Scale) and isinstance(op.scale.owner, top.WeightOp):
            refs.add(op.scale.owner.ref)
    scores = np.zeros(group.size)
    for at, channel in enumerate(group.channels):
        known = [(axis, indices) for axis, indices in dependencies.weight_axes[channel] if axis.ref in refs]
        if not known:
            raise UsageError(
                f"the channels of '{group.name}' have no batch norm: it was folded into the layer, or never there",
                fix="Use another criterion, or import the network without the canonical form",
            )
        for axis, indices in known:
            scores[at] += float(np.abs(dependencies.graph.weights[axis.ref].array()[indices]).sum())
    return scores
