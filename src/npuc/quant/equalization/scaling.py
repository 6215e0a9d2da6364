"""The factors of a group, and applying them to a network."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value, top
from npuc.quant.equalization.groups import EqualizationGroup

_NEAR = 0.9
"""Activations above this share of a limit may reach it on other samples."""
_MOST = 1e4
"""The largest factor, and the inverse of the smallest; a dead channel would get an infinite one."""


def outgoing(op: Any, graph: Graph) -> Array:
    """The largest weight of each output channel of a maker."""
    weight = _weight(op, graph)
    axis = _output_axis(op, weight)
    largest: Array = np.abs(weight).max(axis=tuple(i for i in range(weight.ndim) if i != axis))
    return largest


def incoming(op: Any, graph: Graph) -> Array:
    """The largest weight of each input channel of a reader."""
    weight = _weight(op, graph)
    if isinstance(op, top.Conv):
        size = weight.shape[1]
        by_group = np.abs(weight).reshape(op.group, -1, *weight.shape[1:])
        largest: Array = by_group.max(axis=(1, *range(3, by_group.ndim))).reshape(op.group * size)
        return largest
    axis = 1 if isinstance(op, top.MatMul) and op.transpose_b else 0
    return np.asarray(np.abs(weight).max(axis=tuple(i for i in range(weight.ndim) if i != axis)))


def weight_factors(group: EqualizationGroup, graph: Graph) -> Array:
    """The factors of cross-layer equalization: both sides get the geometric mean of their ranges."""
    written = np.max([outgoing(op, graph) for op in group.makers], axis=0)
    return balanced(written, read_range(group, graph), 0.5)


def read_range(group: EqualizationGroup, graph: Graph) -> Array:
    """The largest weight that reads each channel."""
    largest: Array = np.max([incoming(op, graph) for op, _ in group.readers], axis=0)
    return largest


def balanced(size: Array, weights: Array, alpha: float) -> Array:
    """size^alpha / weights^(1 - alpha), with a geometric mean of 1 over the channels that are not zero.

    >>> balanced(np.array([4.0, 1.0]), np.array([1.0, 1.0]), 0.5).tolist()
    [1.414..., 0.707...]
    """
    size, weights = np.asarray(size, np.float64), np.asarray(weights, np.float64)
    alive = (size > 0) & (weights > 0)
    if not alive.any():
        return np.ones_like(size)
    logs = alpha * np.log(np.where(alive, size, 1.0)) - (1 - alpha) * np.log(np.where(alive, weights, 1.0))
    logs = np.where(alive, logs - logs[alive].mean(), 0.0)
    return np.exp(np.clip(logs, -np.log(_MOST), np.log(_MOST)))


def within_limit(group: EqualizationGroup, factor: Array, sizes: Array) -> Array:
    """Factors that keep the limit of relus (relu6) valid.

    A channel that reaches the limit keeps its magnitude, and the others are balanced against those; a channel that does not
    may grow until it nearly does. `sizes` are the largest activations of the channels.
    """
    if group.limit == inf:
        return factor
    met = sizes >= _NEAR * group.limit
    if met.any():
        factor = factor / np.exp(np.log(factor[met]).mean())
    return np.where(met, 1.0, np.maximum(factor, sizes / (_NEAR * group.limit)))


def apply_factors(graph: Graph, factors: Mapping[EqualizationGroup, Array]) -> Graph:
    """A copy of the network in which makers divide and readers multiply; it computes the same if no limit is reached."""
    new = graph.copy()
    twins = dict(zip(graph.ops, new.ops, strict=True))
    arrays: dict[Value, Array] = {}

    def change(value: Value | None, factor: Array) -> None:
        if value is not None:
            held = arrays.get(value)
            array = np.asarray(new.constant(value), np.float64) if held is None else held
            arrays[value] = array * factor

    for group, factor in factors.items():
        inverse = 1.0 / factor
        for op in group.makers:
            twin: Any = twins[op]
            if isinstance(twin, top.Conv | top.Deconv | top.MatMul):
                weight = _operand(twin)
                axis = _output_axis(twin, np.asarray(new.constant(weight)))
                change(weight, _spread(inverse, axis, len(np.asarray(new.constant(weight)).shape)))
            else:
                change(twin.scale, inverse)
            change(twin.bias, inverse)
        for op, _ in group.readers:
            twin = twins[op]
            weight = _operand(twin)
            change(weight, _incoming_spread(twin, np.asarray(new.constant(weight)), factor))
    for value, array in arrays.items():
        owner: Any = value.owner
        replacement = new.add_weight(f"{owner.ref}/equalized", array.astype(np.float32))
        owner.parent.insert_op_before(replacement, owner)
        value.replace_all_uses_with(replacement.output)
        owner.parent.erase_op(owner)
    new.notes = list(graph.notes)
    new.verify()
    return new


def _operand(op: Any) -> Value:
    value: Value = op.b if isinstance(op, top.MatMul) else op.weight
    return value


def _weight(op: Any, graph: Graph) -> Array:
    if isinstance(op, top.Conv | top.Deconv | top.MatMul):
        return np.asarray(graph.constant(_operand(op)), np.float64)
    return np.asarray(graph.constant(op.scale), np.float64)


def _output_axis(op: Any, weight: Array) -> int:
    if isinstance(op, top.Deconv):
        return 1
    if isinstance(op, top.MatMul):
        return 0 if op.transpose_b else weight.ndim - 1
    return 0


def _incoming_spread(op: Any, weight: Array, factor: Array) -> Array:
    """Factors per input channel, in a shape that broadcasts with the weight."""
    if isinstance(op, top.Conv):
        size, outputs = weight.shape[1], weight.shape[0] // op.group
        by_output = factor.reshape(op.group, size).repeat(outputs, axis=0)
        return by_output.reshape(weight.shape[0], size, *(1,) * (weight.ndim - 2))
    axis = 1 if isinstance(op, top.MatMul) and op.transpose_b else 0
    return _spread(factor, axis, weight.ndim)


def _spread(factor: Array, axis: int, rank: int) -> Array:
    return factor.reshape([-1 if i == axis else 1 for i in range(rank)])
