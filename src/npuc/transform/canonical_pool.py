"""Spatial means and maxima are pools as large as their input.

    %y = top.reduce(%x) {kind = "mean", axes = [2, 3]}     %y = top.avg_pool(%x) {kernel = <H, W>}
                                                   →       (and a reshape where the axes are dropped)

A mean in which padding counts, and whose last windows reach beyond the padding (ceil mode), has windows of several counts:
the padding becomes elements, and what lies beyond them does not count.

    %y = top.avg_pool(%x) {count_include_pad, ceil_mode}   →   avg_pool(pad(%x)) {ceil_mode}

Reductions in a row, of one kind, are one reduction first. Only images (rank 4 and 5) have spatial axes; the last axis
of a sequence is not one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import AvgPool, MaxPool, Pad, Reduce, Reshape
from npuc.transform.patterns import (
    GraphPattern,
    derived_location,
    dtype,
    insert,
    insert_part,
    remake,
    replace,
    sole_producer,
)

_POOLS: dict[str, type[AvgPool | MaxPool]] = {"mean": AvgPool, "max": MaxPool}


class MergeReductions(GraphPattern):
    """reduce(reduce(x, 3), 2) → reduce(x, [2, 3])"""

    @rewrites
    def match_and_rewrite(self, op: Reduce, rewriter: PatternRewriter) -> None:
        """Both keep their axes or both drop them, and the result does not depend on the order."""
        first = sole_producer(op.x, Reduce)
        if first is None or first.kind != op.kind or op.kind not in ("mean", "sum", "max", "min"):
            return
        if first.keepdims != op.keepdims or not dtype(op.x).is_float:
            return
        rank = len(shape_of(first.x))
        inner = {normal_axis(axis, rank) for axis in first.axes}
        left = list(range(rank)) if first.keepdims else [axis for axis in range(rank) if axis not in inner]
        outer = {left[normal_axis(axis, len(left))] for axis in op.axes}
        # A mean of means is the mean only if no axis is averaged twice; sizes are equal by construction.
        replace(
            rewriter, op, Reduce.make(first.x, kind=op.kind, axes=sorted(inner | outer), keepdims=op.keepdims)
        )


class ReduceToPool(GraphPattern):
    """reduce over exactly the spatial axes → pool"""

    @rewrites
    def match_and_rewrite(self, op: Reduce, rewriter: PatternRewriter) -> None:
        """Mean or max, in an element type that pools exist for."""
        shape = shape_of(op.x)
        axes = sorted({normal_axis(axis, len(shape)) for axis in op.axes})
        kind = _POOLS.get(op.kind)
        if kind is None or len(shape) not in (4, 5) or axes != list(range(2, len(shape))) or 0 in shape:
            return
        if dtype(op.x).name not in ("f32", "f16"):
            return
        if self.graph.arithmetic == "tflite" and op.kind == "mean":
            # TFLite's integer mean multiplies the sum, its pool divides it: they round differently.
            return
        rank = len(shape) - 2
        window: dict[str, Any] = {
            "kernel": shape[2:],
            "strides": (1,) * rank,
            "pads": (0,) * 2 * rank,
            "dilations": (1,) * rank,
        }
        if op.keepdims:
            replace(rewriter, op, kind.make(op.x, **window))
            return
        pool = insert(rewriter, kind.make(op.x, **window, loc=derived_location(op, "pool")))
        replace(rewriter, op, Reshape.make(pool.results[0], shape=shape[:2]))


class CountedPadding(GraphPattern):
    """avg_pool(x) {count_include_pad, ceil_mode} → avg_pool(pad(x)) {ceil_mode}"""

    @rewrites
    def match_and_rewrite(self, op: AvgPool, rewriter: PatternRewriter) -> None:
        """Where the last windows reach beyond the padding."""
        if not op.counts_vary:
            return
        rank = len(op.kernel)
        begins, ends = op.pads[:rank], op.pads[rank:]
        # No more of the end than windows see: else one that would begin in the padding, which ceil mode leaves out, came back.
        visible_ends = [
            max(0, min(end, end + reached - padded))
            for end, padded, reached in zip(ends, *op.extents, strict=True)
        ]
        x = op.x
        if any(begins) or any(visible_ends):
            x = insert_part(rewriter, op, "padded", Pad, x, pads=(0, 0, *begins, 0, 0, *visible_ends))
        replace(rewriter, op, remake(op, x, pads=(0,) * 2 * rank, count_include_pad=False))


@register_pass
@dataclass(frozen=True)
class CanonicalPool(Pass):
    """Spatial reductions → pools; padding that counts in part → elements."""

    name: ClassVar[str] = "canonical-pool"

    def run(self, graph: Graph) -> None:
        """Merge first, so that a mean over width and then height is seen whole."""
        apply_patterns(graph, [MergeReductions(graph)])
        apply_patterns(graph, [ReduceToPool(graph), CountedPadding(graph)])
