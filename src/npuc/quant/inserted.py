"""Constants that an op inserts into its result, and the range that a type needs to represent them.

A pad, or a concat with a constant operand, has one type for its data and its constants. A range chosen for the data alone, or
by a method that clips, saturates the constants: a padding of 5.0 around a map within [-1, 1] becomes 1.0. So the range of the
result is widened if its constants would be lost, and the data are computed in the resulting type (`npuc.quant.lower`).

The range is not widened if that would leave the data only a few steps; a note says so, unless only a maximum reads the
constants (such as minus infinity around a map that is max-pooled).
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.ir.top.movement import MOVERS

SOFTMAX_REACH = 20.0
"""How far below the largest score a softmax still distinguishes scores: e^-20 is 0 in 8 bits."""
_LOST = 30.0
"""Decibels of signal over clipping error below which constants count as lost."""
_FEWEST = 8
"""Steps that the data must keep."""
_DEPTH = 4
"""How many consecutive ops are followed."""


def inserted_constants(op: object, graph: Graph, depth: int = _DEPTH) -> Array | None:
    """The constants that an op's result contains beside its data; None if there are none.

    They are inserted by the op itself, or by an earlier one followed by ops that only move elements.
    """
    parts: list[Array] = []
    sources: list[Value] = []
    if isinstance(op, top.Pad):
        parts += [np.array([op.value])] if op.mode == "constant" and max(op.pads, default=0) > 0 else []
        sources = [op.x]
    elif isinstance(op, top.Concat):
        sources = list(op.inputs)
    elif isinstance(op, MOVERS):
        sources = list(op.operands[:1])
    for value in sources:
        array = graph.constant(value)
        if array is None and depth:
            array = inserted_constants(value.owner, graph, depth - 1)
        if array is not None and array.size:
            parts.append(array.reshape(-1).astype(np.float64))
    return np.concatenate(parts) if parts else None


def tensors_with_chosen_constants(graph: Graph) -> set[str]:
    """Results that contain constants at positions chosen by other data; a range method should not clip their values."""
    names = set()
    for op in graph.ops:
        parts = (op.a, op.b) if isinstance(op, top.Where) else ()
        parts = (op.x, op.updates) if isinstance(op, top.ScatterElements | top.ScatterND) else parts
        if any(graph.constant(value) is not None for value in parts):
            names.add(value_name(op.results[0]))
    return names


def holds(kind: QuantType, constants: Array) -> bool:
    """Whether a type can represent constants: the clipping error is small relative to them."""
    low, high = (kind.scale * (end - kind.zero_point) for end in kind.dtype.limits)
    return is_within(low - kind.scale / 2, high + kind.scale / 2, constants)


def is_within(low: float, high: float, constants: Array) -> bool:
    """Whether the error of clipping constants to a range is small relative to them.

    >>> is_within(-1.0, 1.0, np.array([5.0])), is_within(-1.0, 4.9, np.array([5.0]))
    (False, True)
    """
    if not np.isfinite(constants).all():
        return False
    lost = float(np.square(constants - np.clip(constants, low, high)).sum())
    return lost == 0 or float(np.square(constants).sum()) > lost * 10 ** (_LOST / 10)


def widened_range(low: float, high: float, constants: Array, steps: int) -> tuple[float, float] | None:
    """A range that also contains constants; None if the old range would keep too few of the `steps`.

    >>> widened_range(0.0, 1.0, np.array([5.0]), 255), widened_range(0.0, 1.0, np.array([1e4]), 255)
    ((0.0, 5.0), None)
    """
    if not (np.isfinite(constants).all() and np.isfinite([low, high]).all()):
        return None
    low, high = min(low, 0.0), max(high, 0.0)
    wide = min(low, float(constants.min())), max(high, float(constants.max()))
    return wide if (high - low) * steps >= _FEWEST * (wide[1] - wide[0]) else None


def as_read(value: Value, constants: Array, high: float) -> Array:
    """Constants limited to what their readers can distinguish: a softmax ignores scores far below the largest one."""
    if value.first_use is not None and all(isinstance(use.operation, top.Softmax) for use in value.uses):
        return np.maximum(constants, high - SOFTMAX_REACH)
    return constants


def is_pooled(value: Value, constants: Array, low: float) -> bool:
    """Whether constants below a range are only read by maxima: even clipped, they are never the maximum."""
    users = [use.operation for use in value.uses]
    largest = all(
        isinstance(op, top.MaxPool)
        or (isinstance(op, top.Reduce) and op.kind == "max")
        or (isinstance(op, top.ArgReduce) and op.max)
        for op in users
    )
    return bool(users) and largest and bool((constants <= low).all())
