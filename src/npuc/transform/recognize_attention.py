"""Attention that is spelled out becomes one op.

    %s = top.mul(top.matmul(%q, top.permute(%k) {order = <0, 1, 3, 2>}), %scale)
    %p = top.softmax(top.add(%s, %mask)) {axis = 3}
    %y = top.matmul(%p, %v)                           →   %y = top.attention(%q, %k, %v, %mask) {scale}

The scale may stand before the product (on query, key or both, as torch writes it) or after it. A key that one permute
splits into heads and transposes gets the permute that only splits. Rank 3 (batch and heads as one axis) gets a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from npuc.ir import top
from npuc.ir.definition import ShapeError, broadcast, normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.transform.formula import ONE
from npuc.transform.matching import Matcher
from npuc.transform.patterns import (
    GraphPattern,
    derived_location,
    insert,
    is_float,
    producer,
    replace,
    sole_producer,
)


@dataclass(frozen=True)
class Scaled:
    """number * value, and the ops that multiply."""

    number: float
    value: SSAValue
    inside: frozenset[Operation]


@dataclass(frozen=True)
class Scores:
    """scale * query @ key^T + mask: what the softmax of attention is taken of."""

    query: SSAValue
    key: SSAValue
    transposed: bool
    """The key is stored as E x S."""
    scale: float
    mask: SSAValue | None


class ToAttention(GraphPattern):
    """matmul(softmax(scores), value) → attention"""

    @rewrites
    def match_and_rewrite(self, op: top.MatMul, rewriter: PatternRewriter) -> None:
        """The last product is the root."""
        softmax = sole_producer(op.a, top.Softmax)
        rank = len(shape_of(op.y))
        if softmax is None or rank not in (3, 4) or op.bias is not None or op.relu or not is_float(op.y):
            return
        if normal_axis(softmax.axis, rank) != rank - 1:
            return
        scores = self._scores(softmax)
        if scores is None or not self._fit(scores, op):
            return
        query = self._batched(scores.query, op, "query", rewriter)
        key = self._batched(
            self._straight(scores.key, scores.transposed, op, "key", rewriter), op, "key", rewriter
        )
        value = self._batched(
            self._straight(op.b, op.transpose_b, op, "value", rewriter), op, "value", rewriter
        )
        if rank == 4:
            replace(rewriter, op, top.Attention.make(query, key, value, scores.mask, scale=scores.scale))
            return
        heads = derived_location(op, "heads")
        batched = insert(
            rewriter, top.Attention.make(query, key, value, scores.mask, scale=scores.scale, loc=heads)
        )
        replace(rewriter, op, top.Reshape.make(batched.y, shape=shape_of(op.y)))

    def _scores(self, softmax: top.Softmax) -> Scores | None:
        """The operand of the softmax, if it is a scaled product, perhaps with a mask added to it."""
        matcher = Matcher(self.graph, softmax)
        terms, opened = matcher.expand(softmax.x)
        product, factor, mask = None, 1.0, None
        for monomial, number in terms.terms.items():
            if monomial == ONE or len(monomial) != 1 or not isinstance(number, float):
                return None
            ((atom, power),) = monomial
            assert isinstance(atom, SSAValue)
            matmul = sole_producer(atom, top.MatMul)
            if power != 1:
                return None
            if product is None and matmul is not None:
                product, factor = matmul, number
            elif mask is None and number == 1:
                mask = atom
            else:
                return None
        if product is None or product.relu:
            return None
        if product.bias is not None:
            # A constant mask of one number a key may have become the bias of the product.
            if mask is not None or factor != 1:
                return None
            mask = product.bias
        query, key = self._scaled(matcher, product.a), self._scaled(matcher, product.b)
        inside = opened | query.inside | key.inside | {product, softmax}
        if any(use.operation not in inside for part in inside - {softmax} for use in part.results[0].uses):
            return None
        scale = factor * query.number * key.number
        source, transposed = key.value, not product.transpose_b
        return Scores(query.value, source, transposed, scale, mask)

    def _scaled(self, matcher: Matcher, value: SSAValue) -> Scaled:
        """A value without the number that multiplies it."""
        terms, opened = matcher.expand(value, affine=True) if value.has_one_use() else (None, frozenset())
        if terms is not None and len(terms.terms) == 1:
            ((monomial, number),) = terms.terms.items()
            if len(monomial) == 1 and isinstance(number, float):
                ((atom, power),) = monomial
                if power == 1 and isinstance(atom, SSAValue) and atom.type == value.type:
                    return Scaled(number, atom, opened)
        return Scaled(1.0, value, frozenset())

    def _fit(self, scores: Scores, op: top.MatMul) -> bool:
        """All operands have the same batch and heads, and the mask broadcasts to the scores."""
        query, key, value = shape_of(scores.query), shape_of(scores.key), shape_of(op.b)
        if (
            not len(query) == len(key) == len(value) == len(shape_of(op.y))
            or not query[:-2] == key[:-2] == value[:-2]
        ):
            return False
        for operand, transposed in ((scores.key, scores.transposed), (op.b, op.transpose_b)):
            # Without a permute to merge with, a transpose would be new work.
            if transposed and producer(operand, top.Permute) is None:
                return False
        if scores.mask is None:
            return True
        try:
            full = (*query[:-1], key[-1] if scores.transposed else key[-2])
            return broadcast(shape_of(scores.mask), full) == full
        except ShapeError:
            return False

    def _straight(
        self, value: SSAValue, transposed: bool, op: top.MatMul, what: str, rewriter: PatternRewriter
    ) -> SSAValue:
        """The operand with its last two axes swapped back, merged with the permute that made it."""
        if not transposed:
            return value
        permute = producer(value, top.Permute)
        assert permute is not None
        order = (*permute.order[:-2], permute.order[-1], permute.order[-2])
        if order == tuple(range(len(order))):
            return permute.operands[0]
        return insert(
            rewriter, top.Permute.make(permute.x, order=order, loc=derived_location(op, what))
        ).results[0]

    def _batched(self, value: SSAValue, op: top.MatMul, what: str, rewriter: PatternRewriter) -> SSAValue:
        """The operand with a batch axis."""
        shape = shape_of(value)
        if len(shape) == 4:
            return value
        name = derived_location(op, f"{what}/batch")
        return insert(rewriter, top.Reshape.make(value, shape=(1, *shape), loc=name)).results[0]


@register_pass
@dataclass(frozen=True)
class RecognizeAttention(Pass):
    """Two matrix products around a softmax become one attention op."""

    name: ClassVar[str] = "recognize-attention"

    def run(self, graph: Graph) -> None:
        """One pattern."""
        apply_patterns(graph, [ToAttention(graph)])
