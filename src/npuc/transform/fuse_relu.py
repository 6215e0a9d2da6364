"""A relu becomes a property of the op before it.

    %0 = top.conv(%x, %w)                      %y = top.conv(%x, %w) {relu = true, relu_limit = 6.0}
    %y = top.relu(%0) {limit = 6.0}   →

Only where nothing else uses the value before the relu. `clip` to [0, limit] and `max` with 0 are relus too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Add, Clip, Conv, Deconv, MatMul, Max, Min, Mul, Relu, Scale, Sub
from npuc.transform.patterns import (
    GraphPattern,
    has_one_use,
    is_float,
    replace,
    replace_with_value,
    scalar_operand,
    set_properties,
    sole_producer,
)

Fusable = Conv | Deconv | MatMul | Add | Sub | Mul | Scale


def lower_limit(a: float, b: float) -> float:
    """The limit of two relus in a row, where 0 (or less) is no limit."""
    limits = [limit for limit in (a, b) if limit > 0]
    return min(limits, default=0.0)


class ClipToRelu(GraphPattern):
    """clip(x, 0, limit) → relu(x)"""

    @rewrites
    def match_and_rewrite(self, op: Clip, rewriter: PatternRewriter) -> None:
        """The lower bound is 0, the upper one positive or none."""
        if is_float(op.x) and op.min == 0 and op.max > 0:
            replace(rewriter, op, Relu.make(op.x, limit=0.0 if math.isinf(op.max) else op.max))


class ExtremumToClip(GraphPattern):
    """max(x, c) → clip(x, c, inf) and min(x, c) → clip(x, -inf, c)"""

    @rewrites
    def match_and_rewrite(self, op: Max | Min, rewriter: PatternRewriter) -> None:
        """The constant is one number."""
        operand = scalar_operand(self.graph, op)
        if operand is None or not is_float(op.y) or math.isnan(operand[1]):
            return
        x, number = operand
        low, high = (number, math.inf) if isinstance(op, Max) else (-math.inf, number)
        replace(rewriter, op, Clip.make(x, min=low, max=high))


class MergeClips(GraphPattern):
    """clip or relu after clip or relu: one with the narrower bounds, where those are in order."""

    @rewrites
    def match_and_rewrite(self, op: Clip | Relu, rewriter: PatternRewriter) -> None:
        """The first one has no other use."""
        first = sole_producer(op.x, Clip) or sole_producer(op.x, Relu)
        if first is None or not is_float(op.x):
            return
        (low_a, high_a), (low_b, high_b) = _bounds(first), _bounds(op)
        low, high = max(low_a, low_b), min(high_a, high_b)
        if low_a <= high_a and low_b <= high_b and low < high:
            replace(rewriter, op, Clip.make(first.x, min=low, max=high))


def _bounds(op: Clip | Relu) -> tuple[float, float]:
    if isinstance(op, Clip):
        return op.min, op.max
    return 0.0, op.limit if op.limit > 0 else math.inf


class FuseRelu(GraphPattern):
    """op + relu → op {relu}, and op {relu} + clip from above → op {relu, relu_limit}"""

    @rewrites
    def match_and_rewrite(self, op: Relu | Clip, rewriter: PatternRewriter) -> None:
        """The relu's input has no other use."""
        before = op.x.owner
        if not isinstance(before, Fusable) or not is_float(op.x) or not has_one_use(op.x):
            return
        low, high = _bounds(op)
        if high <= 0 or not (low == 0 or (before.relu and low < 0)):
            return
        limit = 0.0 if math.isinf(high) else high
        limit = lower_limit(before.relu_limit, limit) if before.relu else limit
        loc = op.location
        replace_with_value(rewriter, op, before.results[0])
        before.location = loc
        set_properties(rewriter, before, relu=True, relu_limit=limit)


@register_pass
@dataclass(frozen=True)
class FuseRelus(Pass):
    """relu into the op before it."""

    name: ClassVar[str] = "fuse-relu"

    def run(self, graph: Graph) -> None:
        """Clips and maxima first become relus."""
        patterns = [ExtremumToClip(graph), MergeClips(graph), ClipToRelu(graph), FuseRelu(graph)]
        apply_patterns(graph, patterns)
