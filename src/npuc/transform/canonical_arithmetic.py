"""One spelling for each arithmetic function.

    add(c, x)          → add(x, c)             constants come second (mul, max, min alike)
    sub(x, c)          → add(x, -c)
    div(x, c)          → mul(x, 1/c)           where 1/c is exact: powers of two
    div(1, x)          → reciprocal(x)         reciprocal(sqrt(x)) → rsqrt(x)
    pow(x, 2)          → mul(x, x)             0.5: sqrt, -0.5: rsqrt, -1: reciprocal, 1: x
    max(x, 0)          → relu(x)               other maxima and minima with a number: clip
    clip(x, 0, c)      → relu(x) {limit = c}
    prelu(x, number)   → leaky_relu(x)

Only floating point is rewritten, but for the order of operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuc.ir.definition import TopOp
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import (
    Add,
    Div,
    LeakyRelu,
    Max,
    Min,
    Mul,
    Pow,
    PRelu,
    Reciprocal,
    Relu,
    Rsqrt,
    Sqrt,
    Sub,
    Unary,
    WeightOp,
)
from npuc.transform.fuse_relu import ClipToRelu, ExtremumToClip, MergeClips
from npuc.transform.patterns import (
    GraphPattern,
    activation_of,
    derived,
    dtype,
    exact,
    insert_weight,
    is_float,
    producer,
    remake,
    replace,
    replace_with_value,
    size_of,
    sole_producer,
    uniform,
)


class ConstantsSecond(GraphPattern):
    """add(c, x) → add(x, c)"""

    @rewrites
    def match_and_rewrite(self, op: Add | Mul | Max | Min, rewriter: PatternRewriter) -> None:
        """The first operand is constant, the second is not."""
        if producer(op.a, WeightOp) is not None and producer(op.b, WeightOp) is None:
            replace(rewriter, op, remake(op, op.b, op.a))


class SubtractionToAddition(GraphPattern):
    """sub(x, c) → add(x, -c)"""

    @rewrites
    def match_and_rewrite(self, op: Sub, rewriter: PatternRewriter) -> None:
        """A constant of a reasonable size."""
        constant = self.graph.constant(op.b)
        if constant is None or not is_float(op.y) or constant.nbytes > 1 << 20:
            return
        negative = insert_weight(self.graph, rewriter, derived(op.y, "bias"), -constant)
        replace(rewriter, op, Add.make(op.a, negative, **activation_of(op)))


class DivisionToProduct(GraphPattern):
    """div(x, c) → mul(x, 1/c), and div(1, x) → reciprocal(x)"""

    @rewrites
    def match_and_rewrite(self, op: Div, rewriter: PatternRewriter) -> None:
        """Only where the reciprocal of the constant has no rounding error."""
        if not is_float(op.y):
            return
        if uniform(self.graph, op.a) == 1.0 and shape_of(op.b) == shape_of(op.y):
            replace(rewriter, op, Reciprocal.make(op.b))
            return
        if producer(op.b, WeightOp) is None or size_of(op.b) > 1 << 18:
            return
        constant = exact(self.graph, op.b)
        if (
            constant is None
            or not np.isfinite(constant).all()
            or not (np.abs(np.frexp(constant)[0]) == 0.5).all()
        ):
            return
        inverse = (1.0 / constant).astype(dtype(op.y).numpy)
        if (
            np.isfinite(inverse.astype(np.float64)).all()
            and (inverse.astype(np.float64) * constant == 1).all()
        ):
            factor = insert_weight(self.graph, rewriter, derived(op.y, "scale"), inverse)
            replace(rewriter, op, Mul.make(op.a, factor))


class ReciprocalOfRoot(GraphPattern):
    """reciprocal(sqrt(x)) → rsqrt(x), and back: reciprocal(rsqrt(x)) → sqrt(x)"""

    @rewrites
    def match_and_rewrite(self, op: Unary, rewriter: PatternRewriter) -> None:
        """The root has no other use."""
        if not isinstance(op, Reciprocal) or not is_float(op.x):
            return
        if (root := sole_producer(op.x, Sqrt)) is not None:
            replace(rewriter, op, Rsqrt.make(root.operands[0]))
        elif (root := sole_producer(op.x, Rsqrt)) is not None:
            replace(rewriter, op, Sqrt.make(root.operands[0]))


class PowersToProducts(GraphPattern):
    """pow with a simple exponent"""

    @rewrites
    def match_and_rewrite(self, op: Pow, rewriter: PatternRewriter) -> None:
        """The exponent is one number and changes no shape."""
        exponent = uniform(self.graph, op.b)
        if exponent is None or not is_float(op.y) or shape_of(op.a) != shape_of(op.y):
            return
        new: TopOp
        if exponent == 1:
            replace_with_value(rewriter, op, op.a)
            return
        if exponent == 2:
            new = Mul.make(op.a, op.a)
        elif exponent == 0.5:
            new = Sqrt.make(op.a)
        elif exponent == -0.5:
            new = Rsqrt.make(op.a)
        elif exponent == -1:
            new = Reciprocal.make(op.a)
        else:
            return
        replace(rewriter, op, new)


class UniformSlope(GraphPattern):
    """prelu with one slope → leaky_relu"""

    @rewrites
    def match_and_rewrite(self, op: PRelu, rewriter: PatternRewriter) -> None:
        """The slope is one number."""
        slope = uniform(self.graph, op.slope)
        if slope is not None and is_float(op.y):
            replace(rewriter, op, LeakyRelu.make(op.x, alpha=slope))


class LeakyToRelu(GraphPattern):
    """leaky_relu {alpha = 0} → relu"""

    @rewrites
    def match_and_rewrite(self, op: LeakyRelu, rewriter: PatternRewriter) -> None:
        """A slope of zero."""
        if op.alpha == 0 and is_float(op.x):
            replace(rewriter, op, Relu.make(op.x))


@register_pass
@dataclass(frozen=True)
class CanonicalArithmetic(Pass):
    """One spelling for each arithmetic function."""

    name: ClassVar[str] = "canonical-arithmetic"

    def run(self, graph: Graph) -> None:
        """All patterns together."""
        patterns = [
            ConstantsSecond(graph),
            SubtractionToAddition(graph),
            DivisionToProduct(graph),
            ReciprocalOfRoot(graph),
            PowersToProducts(graph),
            UniformSlope(graph),
            LeakyToRelu(graph),
            ExtremumToClip(graph),
            MergeClips(graph),
            ClipToRelu(graph),
        ]
        apply_patterns(graph, patterns)
