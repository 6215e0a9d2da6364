"""Reshapes in a row are one, permutes in a row are one, and a permute that only moves axes of size 1 is a reshape.

    %0 = top.permute(%x) {order = [0, 2, 3, 1]}            %y = top.permute(%x) {order = [0, 3, 1, 2]}
    %y = top.permute(%0) {order = [0, 2, 3, 1]}    →

What is the identity afterwards goes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Expand, Permute, Reshape, WeightOp
from npuc.transform.patterns import GraphPattern, insert, producer, replace, replace_with_value, size_of
from npuc.transform.weight_views import reshaped_weight


class MergeReshapes(GraphPattern):
    """reshape(reshape(x)) → reshape(x)"""

    @rewrites
    def match_and_rewrite(self, op: Reshape, rewriter: PatternRewriter) -> None:
        """The first reshape stays if it has other uses."""
        if shape_of(op.x) == op.shape:
            replace_with_value(rewriter, op, op.x)
        elif (first := producer(op.x, Reshape)) is not None:
            if shape_of(first.x) == op.shape:
                replace_with_value(rewriter, op, first.x)
            else:
                replace(rewriter, op, Reshape.make(first.x, shape=op.shape))
        elif (weight := producer(op.x, WeightOp)) is not None:
            view = insert(rewriter, reshaped_weight(self.graph, weight, op.shape))
            replace_with_value(rewriter, op, view.results[0])


class MergePermutes(GraphPattern):
    """permute(permute(x)) → permute(x)"""

    @rewrites
    def match_and_rewrite(self, op: Permute, rewriter: PatternRewriter) -> None:
        """Axis i of the result is axis first[second[i]] of x."""
        if op.order == tuple(range(len(op.order))):
            replace_with_value(rewriter, op, op.x)
        elif (first := producer(op.x, Permute)) is not None:
            order = tuple(first.order[axis] for axis in op.order)
            replace(rewriter, op, Permute.make(first.x, order=order))


class PermuteToReshape(GraphPattern):
    """A permute whose axes larger than 1 keep their order moves no element."""

    @rewrites
    def match_and_rewrite(self, op: Permute, rewriter: PatternRewriter) -> None:
        """Elements are laid out the same before and after."""
        shape = shape_of(op.x)
        large = [axis for axis in op.order if shape[axis] != 1]
        if large == sorted(large):
            replace(rewriter, op, Reshape.make(op.x, shape=shape_of(op.y)))


class ExpandToReshape(GraphPattern):
    """An expand that repeats nothing only adds axes of size 1."""

    @rewrites
    def match_and_rewrite(self, op: Expand, rewriter: PatternRewriter) -> None:
        """As many elements after as before."""
        if size_of(op.x) == size_of(op.y):
            replace(rewriter, op, Reshape.make(op.x, shape=shape_of(op.y)))


@register_pass
@dataclass(frozen=True)
class MergeReshapesAndPermutes(Pass):
    """Merge reshapes, merge permutes."""

    name: ClassVar[str] = "merge-reshapes"

    def run(self, graph: Graph) -> None:
        """All patterns together."""
        patterns = [
            MergePermutes(graph),
            PermuteToReshape(graph),
            ExpandToReshape(graph),
            MergeReshapes(graph),
        ]
        apply_patterns(graph, patterns)
