"""Convolutions and pools over one axis become those over two, of which the first has size 1.

    %y = top.conv(%x: NxCxL, %w: OxIxK)        %0 = top.reshape(%x: NxCx1xL)
                                      →        %1 = top.conv(%0, %w: OxIx1xK)
                                               %y = top.reshape(%1: NxOxL)

Later stages know images only. The reshapes between such layers cancel in `merge-reshapes` and `move-reshapes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import SSAValue

from npuc.ir.definition import TopOp
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import AvgPool, Conv, Deconv, MaxPool, Reshape, WeightOp
from npuc.transform.patterns import GraphPattern, derived_location, insert, producer, remake, replace
from npuc.transform.weight_views import reshaped_weight

_FILL = {"kernel": 1, "strides": 1, "dilations": 1, "output_padding": 0}


class OneToTwoAxes(GraphPattern):
    """conv, deconv, avg_pool and max_pool with one spatial axis → two"""

    @rewrites
    def match_and_rewrite(self, op: Conv | Deconv | AvgPool | MaxPool, rewriter: PatternRewriter) -> None:
        """Rank 3 only; three spatial axes stay."""
        shape = shape_of(op.x)
        if len(shape) != 3:
            return
        properties = op.native_properties()
        changed: dict[str, Any] = {
            key: (fill, *properties[key]) for key, fill in _FILL.items() if key in properties
        }
        begin, end = op.pads
        changed["pads"] = (0, begin, 0, end)
        image = (*shape[:2], 1, shape[2])
        x = insert(rewriter, Reshape.make(op.x, shape=image, loc=derived_location(op, "image"))).y
        values: list[SSAValue | None] = [x]
        if isinstance(op, Conv | Deconv):
            values += [self._kernel(op, rewriter), op.bias]
        new: TopOp = insert(rewriter, remake(op, *values, **changed))
        new.location = derived_location(op, "2d")
        replace(rewriter, op, Reshape.make(new.results[0], shape=shape_of(op.y)))

    def _kernel(self, op: Conv | Deconv, rewriter: PatternRewriter) -> SSAValue:
        shape = shape_of(op.weight)
        image = (*shape[:2], 1, shape[2])
        weight = producer(op.weight, WeightOp)
        if weight is not None:
            return insert(rewriter, reshaped_weight(self.graph, weight, image)).results[0]
        return insert(
            rewriter, Reshape.make(op.weight, shape=image, loc=derived_location(op, "kernel"))
        ).results[0]


@register_pass
@dataclass(frozen=True)
class CanonicalConv(Pass):
    """One spatial axis → two."""

    name: ClassVar[str] = "canonical-conv"

    def run(self, graph: Graph) -> None:
        """Every op by itself."""
        apply_patterns(graph, [OneToTwoAxes(graph)])
