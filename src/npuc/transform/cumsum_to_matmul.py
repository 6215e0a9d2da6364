"""Running sums are a product with a triangular matrix of ones.

    %y = top.cumsum(%x) {axis = -1}   →   %y = top.matmul(%x, upper triangle of ones)

It runs before quantization: the ones are exact as integers, and so is every sum before its one rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuc.arrays import Array
from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import CumSum
from npuc.transform.axis_products import LARGEST_MATRIX, axis_product
from npuc.transform.patterns import GraphPattern, is_float, replace


def is_product(op: CumSum) -> bool:
    """Whether running sums are of reals, and short enough for a matrix."""
    if not is_float(op.x):
        return False
    size = shape_of(op.x)[normal_axis(op.axis, len(shape_of(op.x)))]
    return 0 < size * size <= LARGEST_MATRIX


def triangle(size: int, exclusive: bool, reverse: bool) -> Array:
    """The matrix of running sums: column j has ones for the elements that the sum j consists of.

    >>> triangle(3, False, False).tolist()
    [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    """
    forward = np.triu(np.ones((size, size), np.float32), int(exclusive))
    return np.ascontiguousarray(forward.T) if reverse else forward


class AsProduct(GraphPattern):
    """cumsum(x) → matmul(x, triangle)"""

    @rewrites
    def match_and_rewrite(self, op: CumSum, rewriter: PatternRewriter) -> None:
        """Along any axis, in both directions, with or without the element itself."""
        if not is_product(op):
            return
        shape = shape_of(op.x)
        axis = normal_axis(op.axis, len(shape))
        matrix = triangle(shape[axis], op.exclusive, op.reverse)
        replace(rewriter, op, axis_product(self.graph, rewriter, op, op.x, axis, matrix, "sums"))


@register_pass
@dataclass(frozen=True)
class CumsumToMatmul(Pass):
    """Running sums are a product with a triangle of ones."""

    name: ClassVar[str] = "cumsum-to-matmul"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [AsProduct(graph)])
