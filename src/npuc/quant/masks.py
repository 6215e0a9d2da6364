"""Scores that a mask hides from a softmax, and the range that their type needs.

An attention mask adds minus infinity (or the least float32) to scores, or puts it in their place. Calibration leaves such values
out: the range of the masked tensor is that of the visible scores, and a hidden score that saturates at its lower end would weigh
as much as the least visible one. So the range goes on below the visible scores until nothing is left of a weight:

    visible scores -2 .. 3, hidden -inf   →   a type for -14 .. 3: hidden scores become -14, and weigh e^-12 of the least visible

A mask that is a tensor of its own (0 or -inf, added to the scores) needs no more than brings every sum below that: here -17.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuc.calib.statistics import DEFAULT_BOUND
from npuc.ir import Graph, Value, top
from npuc.ir.top.movement import MOVERS

_REACH = 12.0
"""How far below the least visible score hidden ones are: a thousand of them weigh 0.6 % of it."""
_DEPTH = 6
"""How many consecutive ops are followed."""

Ends = Callable[[Value], tuple[float, float] | None]
"""The calibrated range of a value; None where there is none."""


def hidden_end(value: Value, graph: Graph, ends: Ends) -> float | None:
    """The lower end of the range that a value with hidden scores needs; None if it has none, or others than a softmax read it."""
    return _needed(value, graph, ends, _DEPTH) if _has_hidden(value, graph, _DEPTH) else None


def _has_hidden(value: Value, graph: Graph, depth: int) -> bool:
    """Whether constants make some elements larger than calibration counts: they are put there, added or multiplied with."""
    op = value.owner
    array = graph.constant(value)
    if array is not None:
        return bool(array.size) and float(np.abs(array).max()) >= DEFAULT_BOUND
    if not depth:
        return False
    if isinstance(op, top.Where | top.Add | top.Mul):
        sources = [op.a, op.b]
    elif isinstance(op, top.Scale | top.Conv):
        sources = list(op.operands[1:])
    elif isinstance(op, MOVERS):
        sources = [op.operands[0]]
    else:
        return False
    return any(_has_hidden(source, graph, depth - 1) for source in sources)


def _needed(value: Value, graph: Graph, ends: Ends, depth: int) -> float | None:
    """The largest lower end that all readers can do with."""
    needs = []
    for use in value.uses:
        op = use.operation
        if isinstance(op, top.Softmax) and (own := ends(value)) is not None:
            needs.append(own[0] - _REACH)
        elif isinstance(op, top.Add) and depth:
            other = ends(op.b if op.a is value else op.a)
            below = _needed(op.y, graph, ends, depth - 1)
            if other is None or below is None:
                return None
            needs.append(below - other[1])
        elif isinstance(op, MOVERS) and depth:
            below = _needed(op.results[0], graph, ends, depth - 1)
            if below is None:
                return None
            needs.append(below)
        else:
            return None
    return min(needs, default=None)
