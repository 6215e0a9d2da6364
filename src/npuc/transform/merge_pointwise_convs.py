"""Two pointwise convolutions with nothing between them become one.

    %0 = top.conv(%x, %w1, %b1)                %y = top.conv(%x, %w, %b)
    %y = top.conv(%0, %w2, %b2)       →        w = w2 · w1, b = w2 · b1 + b2

This is no part of the canonical form, because it may cost more than it saves: 960 → 320 → 1280 channels are 0.7 million weights
as two layers and 1.2 million as one. What it saves is a tensor between them and, in integers, its rounding. Other toolchains
merge such pairs always, so their tables have no range for that tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuc.arrays import Array
from npuc.ir.graph import Graph
from npuc.ir.names import value_name
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Conv
from npuc.transform.patterns import (
    GraphPattern,
    derived,
    exact,
    insert_weight,
    is_float,
    remake,
    replace,
    sole_producer,
)


def _is_pointwise(op: Conv, weight: Array) -> bool:
    """Whether each output pixel is made of the input pixel at its place, by one matrix."""
    steps = (*op.strides, *op.dilations)
    return op.group == 1 and weight[0, 0].size == 1 and set(steps) == {1} and not any(op.pads)


def _in_order(a: Array, b: Array) -> Array:
    """a · b in float32, one product added behind the other, as a plain loop computes it."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    total: Array = np.zeros((len(a), b.shape[1]), np.float32)
    for index in range(len(b)):
        total += a[:, index, None] * b[index]
    return total


@dataclass(eq=False)
class MergePair(GraphPattern):
    """conv + conv → conv, if both are pointwise."""

    between: tuple[str, ...]
    single: bool

    @rewrites
    def match_and_rewrite(self, op: Conv, rewriter: PatternRewriter) -> None:
        """The first has no relu and no other use."""
        first = sole_producer(op.x, Conv)
        if first is None or first.relu or not is_float(op.x):
            return
        if self.between and value_name(op.x) not in self.between:
            return
        inner, outer = exact(self.graph, first.operands[1]), exact(self.graph, op.operands[1])
        biases = [np.zeros(()) if conv.bias is None else exact(self.graph, conv.bias) for conv in (first, op)]
        if inner is None or outer is None or biases[0] is None or biases[1] is None:
            return
        if not (_is_pointwise(first, inner) and _is_pointwise(op, outer)):
            return
        matrix, product = outer.reshape(outer.shape[:2]), _in_order if self.single else np.matmul
        weight = product(matrix, inner.reshape(inner.shape[:2])).reshape(
            len(outer), inner.shape[1], *inner.shape[2:]
        )
        bias = product(matrix, np.broadcast_to(biases[0], len(inner))[:, None])[:, 0] + biases[1]
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            return
        result = op.results[0]
        merged = remake(
            op,
            first.x,
            insert_weight(self.graph, rewriter, derived(result, "weight"), weight, op.operands[1]),
            insert_weight(self.graph, rewriter, derived(result, "bias"), bias, op.operands[1]),
        )
        replace(rewriter, op, merged)


@register_pass
@dataclass(frozen=True)
class MergePointwiseConvs(Pass):
    """Pairs of pointwise convolutions into one."""

    name: ClassVar[str] = "merge-pointwise-convs"
    between: tuple[str, ...] = ()
    """The names of tensors that may go; without them, all between such pairs."""
    single: bool = False
    """Whether weights are summed in float32 in their order, as tools do that merge with a plain loop; otherwise in float64."""

    def run(self, graph: Graph) -> None:
        """Merge what can be merged; of three in a row nothing is left but one."""
        apply_patterns(graph, [MergePair(graph, self.between, self.single)])
