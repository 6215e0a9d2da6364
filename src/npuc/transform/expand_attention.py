"""Attention as the products and the softmax that it consists of, which is what integers are made of.

    %y = top.attention(%q, %k, %v) {scale = s}   →   %0 = top.mul(%q, s)
                                                      %1 = top.matmul(%0, %k) {transpose_b}
                                                      %2 = top.softmax(%1) {axis = -1}
                                                      %y = top.matmul(%2, %v)

It is not part of the canonical form: the float engine runs the whole op faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuc.ir.graph import Graph
from npuc.ir.names import result_names
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Add, Attention, MatMul, Mul, Softmax
from npuc.transform.patterns import GraphPattern, derived_location, insert, insert_weight, replace


class ExpandAttention(GraphPattern):
    """attention(q, k, v, mask) → matmul(softmax(matmul(s * q, k) + mask), v)"""

    @rewrites
    def match_and_rewrite(self, op: Attention, rewriter: PatternRewriter) -> None:
        """Every attention."""
        query = op.query
        if op.scale != 1.0:
            factor = insert_weight(
                self.graph, rewriter, f"{result_names(op)[0]}/scale", np.array(op.scale, np.float32)
            )
            scaled = Mul.make(query, factor, loc=derived_location(op, "scaled"))
            query = insert(rewriter, scaled).y
        scores = MatMul.make(query, op.key, None, transpose_b=True, loc=derived_location(op, "scores"))
        logits = insert(rewriter, scores).y
        if op.mask is not None:
            logits = insert(rewriter, Add.make(logits, op.mask, loc=derived_location(op, "masked"))).y
        weights = insert(rewriter, Softmax.make(logits, axis=-1, loc=derived_location(op, "weights"))).y
        replace(rewriter, op, MatMul.make(weights, op.value, None))


@register_pass
@dataclass(frozen=True)
class ExpandAttentionPass(Pass):
    """Spell attention out as products and a softmax."""

    name: ClassVar[str] = "expand-attention"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [ExpandAttention(graph)])
