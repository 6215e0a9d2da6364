"""Gathering one constant index is a cut.

gather(x, [3])   → slice(x)
gather(x, 3)     → reshape(slice(x))

It runs before quantization, since a cut moves integers: the canonical form keeps such a gather for the patterns that look
for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Gather, Reshape, Slice
from npuc.transform.patterns import GraphPattern, derived_location, insert, replace


class OneIndex(GraphPattern):
    """gather(x, i) → slice(x), without the axis if the index is a scalar"""

    @rewrites
    def match_and_rewrite(self, op: Gather, rewriter: PatternRewriter) -> None:
        """One constant index, inside the axis."""
        indices = self.graph.constant(op.indices)
        shape = shape_of(op.x)
        axis = normal_axis(op.axis, len(shape))
        if indices is None or indices.size != 1 or indices.ndim > 1:
            return
        index = int(indices.reshape(-1)[0])
        index += shape[axis] if index < 0 else 0
        if not 0 <= index < shape[axis]:
            return
        options: dict[str, Any] = {
            "offset": tuple(index if i == axis else 0 for i in range(len(shape))),
            "steps": (1,) * len(shape),
            "shape": tuple(1 if i == axis else n for i, n in enumerate(shape)),
        }
        if indices.ndim == 1:
            replace(rewriter, op, Slice.make(op.x, **options))
            return
        cut = insert(rewriter, Slice.make(op.x, **options, loc=derived_location(op, "kept")))
        replace(rewriter, op, Reshape.make(cut.y, shape=shape_of(op.y)))


@register_pass
@dataclass(frozen=True)
class GatherToSlice(Pass):
    """One constant index is a cut."""

    name: ClassVar[str] = "gather-to-slice"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [OneIndex(graph)])
