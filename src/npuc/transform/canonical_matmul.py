"""One form for matrix products.

    add(matmul(a, b), c)                 → matmul(a, b, c)                  c constant, one number a column
    matmul(a, permute(b))                → matmul(a, b) {transpose_b}       where the last two axes swap
    matmul(a, b: 1x1xKxN)                → matmul(a, b: KxN)                b constant
    reshape(matmul(reshape(a), b: KxN))  → matmul(a, b)                     where the reshapes only fold rows

Constant operands are not transposed to make `transpose_b` uniform: that would copy the weights of large models.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import MatMul, Permute, Reshape, WeightOp
from npuc.transform.fold_scale import BiasIntoProducer
from npuc.transform.patterns import GraphPattern, insert, producer, remake, replace, sole_producer
from npuc.transform.weight_views import reshaped_weight


class TransposeB(GraphPattern):
    """matmul(a, permute(b)) → matmul(a, b) with the other `transpose_b`"""

    @rewrites
    def match_and_rewrite(self, op: MatMul, rewriter: PatternRewriter) -> None:
        """The permute swaps the last two axes and no others."""
        permute = producer(op.b, Permute)
        if permute is None:
            return
        rank = len(permute.order)
        if permute.order == (*range(rank - 2), rank - 1, rank - 2):
            replace(rewriter, op, remake(op, op.a, permute.x, op.bias, transpose_b=not op.transpose_b))


class DropLeadingOnes(GraphPattern):
    """A constant b of one matrix is stored as a matrix."""

    @rewrites
    def match_and_rewrite(self, op: MatMul, rewriter: PatternRewriter) -> None:
        """a has at least as many axes, so that the result keeps its rank."""
        shape = shape_of(op.b)
        weight = producer(op.b, WeightOp)
        if weight is None or len(shape) == 2 or prod(shape[:-2]) != 1 or len(shape_of(op.a)) < len(shape):
            return
        matrix = insert(rewriter, reshaped_weight(self.graph, weight, shape[-2:]))
        replace(rewriter, op, remake(op, op.a, matrix.results[0], op.bias))


class UnfoldRows(GraphPattern):
    """reshape(matmul(reshape(a), b)) → matmul(a, b)"""

    @rewrites
    def match_and_rewrite(self, op: Reshape, rewriter: PatternRewriter) -> None:
        """Rows are folded before and unfolded after the product; columns stay whole."""
        product = sole_producer(op.x, MatMul)
        before = producer(product.a, Reshape) if product is not None else None
        if product is None or before is None or len(shape_of(product.b)) != 2:
            return
        rows, shape = shape_of(before.x), shape_of(product.y)
        # Equal rows before and after imply equal columns, because reshapes keep the number of elements.
        if len(rows) >= 2 and 0 not in shape and op.shape == (*rows[:-1], shape[-1]):
            replace(rewriter, op, remake(product, before.x, product.b, product.bias))


@register_pass
@dataclass(frozen=True)
class CanonicalMatMul(Pass):
    """One form for matrix products."""

    name: ClassVar[str] = "canonical-matmul"

    def run(self, graph: Graph) -> None:
        """All patterns together."""
        patterns = [TransposeB(graph), DropLeadingOnes(graph), BiasIntoProducer(graph), UnfoldRows(graph)]
        apply_patterns(graph, patterns)
