"""Reductions keep their axes where their results are given them back later.

    %m = top.reduce(%x) {axes = [1], keepdims = false}     %m = top.reduce(%x) {axes = [1], keepdims = true}
    %s = top.mul(%m, %c)                                   %y = top.mul(%m, %c)
    %y = top.reshape(%s) {shape = <N, 1>}          →

JAX and TensorFlow write norms and softmax so. With the axes kept, the formulas are those that everybody else writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Reduce, Reshape
from npuc.transform.crossing import Refolding, cross
from npuc.transform.merge_reshapes import MergeReshapes
from npuc.transform.patterns import (
    GraphPattern,
    derived_location,
    insert,
    is_float,
    remake,
    replace,
    sole_producer,
)


class KeepAxes(GraphPattern):
    """reduce → reshape(reduce {keepdims})"""

    @rewrites
    def match_and_rewrite(self, op: Reduce, rewriter: PatternRewriter) -> None:
        """Any reduction of floats."""
        if not op.keepdims and is_float(op.x):
            kept = remake(op, op.x, keepdims=True)
            kept.location = derived_location(op, "kept")
            replace(rewriter, op, Reshape.make(insert(rewriter, kept).results[0], shape=shape_of(op.y)))


class DropAxes(GraphPattern):
    """reshape(reduce {keepdims}) → reduce"""

    @rewrites
    def match_and_rewrite(self, op: Reshape, rewriter: PatternRewriter) -> None:
        """The reshape drops the reduced axes and nothing else."""
        before = sole_producer(op.x, Reduce)
        if before is None or not before.keepdims:
            return
        rank = len(shape_of(before.x))
        axes = {normal_axis(axis, rank) for axis in before.axes}
        if op.shape == tuple(n for axis, n in enumerate(shape_of(before.x)) if axis not in axes):
            replace(rewriter, op, remake(before, before.x, keepdims=False))


@register_pass
@dataclass(frozen=True)
class KeepReducedAxes(Pass):
    """Reductions keep axes that are put back later."""

    name: ClassVar[str] = "keep-reduced-axes"

    def run(self, graph: Graph) -> None:
        """Keep all axes, let the reshapes for that cancel with others, and drop those axes again that none was for."""
        if not any(isinstance(op, Reduce) and not op.keepdims for op in graph.ops):
            return
        apply_patterns(graph, [KeepAxes(graph), MergeReshapes(graph)])
        while cross(graph, Refolding):
            apply_patterns(graph, [MergeReshapes(graph)])
        apply_patterns(graph, [DropAxes(graph)])
