"""A batch norm with constant parameters is a scale and a bias a channel.

    %y = top.batch_norm(%x, %s, %b, %m, %v)    %y = top.scale(%x, %k, %c)
                                      →        k = s / sqrt(v + epsilon), c = b - m * k

`fold-scale` then takes the scale into a neighbouring convolution or matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import BatchNorm, Scale
from npuc.transform.patterns import GraphPattern, derived, exact, insert_weight, is_float, replace


class BatchNormToScale(GraphPattern):
    """Computed in double precision and rounded once."""

    @rewrites
    def match_and_rewrite(self, op: BatchNorm, rewriter: PatternRewriter) -> None:
        """Where all four parameters are constant."""
        scale, bias = exact(self.graph, op.scale), exact(self.graph, op.bias)
        mean, variance = exact(self.graph, op.mean), exact(self.graph, op.variance)
        if scale is None or bias is None or mean is None or variance is None or not is_float(op.x):
            return
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + op.epsilon)
            offset = bias - mean * factor
        if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
            return
        values = [
            insert_weight(self.graph, rewriter, derived(op.y, what), array, like=op.x)
            for what, array in (("scale", factor), ("bias", offset))
        ]
        replace(rewriter, op, Scale.make(op.x, *values))


@register_pass
@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """batch_norm → scale."""

    name: ClassVar[str] = "fold-batch-norm"

    def run(self, graph: Graph) -> None:
        """Every batch norm by itself."""
        apply_patterns(graph, [BatchNormToScale(graph)])
