"""Reductions that integers have no op for, as functions before and after a sum.

| kind | becomes |
|---|---|
| l1 | sum(abs(x)) |
| sum_square | sum(x * x) |
| l2 | sqrt(sum(x * x)) |
| log_sum | log(sum(x)) |
| log_sum_exp | log(sum(exp(x - m))) + m, m = max(x): no exponential is above 1 |
| prod | products of halves: of 5 elements (a * c) * (b * d) * e |

A product of more than 1,024 elements stays as it is. It runs before quantization.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import SSAValue

from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Abs, Add, Exp, Log, Mul, Reduce, Reshape, Slice, Sqrt, Sub
from npuc.transform.patterns import GraphPattern, insert_part, is_float, replace

_MOST_FACTORS = 1024
"""Of a product that is computed in halves."""


def is_composite(op: Reduce) -> bool:
    """Whether a reduction of reals is a sum with a function before or after it."""
    if op.kind == "prod" and not 2 <= prod(shape_of(op.x)[axis] for axis in _axes(op)) <= _MOST_FACTORS:
        return False
    return op.kind in _PARTS and is_float(op.x)


def _axes(op: Reduce) -> list[int]:
    rank = len(shape_of(op.x))
    return [normal_axis(axis, rank) for axis in op.axes]


def _total(op: Reduce, rewriter: PatternRewriter, x: SSAValue) -> SSAValue:
    return insert_part(rewriter, op, "sum", Reduce, x, kind="sum", axes=op.axes, keepdims=op.keepdims)


def _magnitudes(op: Reduce, rewriter: PatternRewriter) -> None:
    magnitude = insert_part(rewriter, op, "abs", Abs, op.x)
    replace(rewriter, op, Reduce.make(magnitude, kind="sum", axes=op.axes, keepdims=op.keepdims))


def _squares(op: Reduce, rewriter: PatternRewriter) -> None:
    square = insert_part(rewriter, op, "square", Mul, op.x, op.x)
    replace(rewriter, op, Reduce.make(square, kind="sum", axes=op.axes, keepdims=op.keepdims))


def _root_of_squares(op: Reduce, rewriter: PatternRewriter) -> None:
    square = insert_part(rewriter, op, "square", Mul, op.x, op.x)
    replace(rewriter, op, Sqrt.make(_total(op, rewriter, square)))


def _logarithm(op: Reduce, rewriter: PatternRewriter) -> None:
    replace(rewriter, op, Log.make(_total(op, rewriter, op.x)))


def _logarithm_of_exponentials(op: Reduce, rewriter: PatternRewriter) -> None:
    largest = insert_part(rewriter, op, "max", Reduce, op.x, kind="max", axes=op.axes, keepdims=True)
    below = insert_part(rewriter, op, "below", Sub, op.x, largest)
    exponential = insert_part(rewriter, op, "exp", Exp, below)
    logarithm = insert_part(rewriter, op, "log", Log, _total(op, rewriter, exponential))
    if not op.keepdims:
        largest = insert_part(rewriter, op, "most", Reshape, largest, shape=shape_of(op.y))
    replace(rewriter, op, Add.make(logarithm, largest))


def _product(op: Reduce, rewriter: PatternRewriter) -> None:
    """Each axis is halved until one element is left; an odd one waits for the end."""
    x, number = op.x, 0

    def part(first: int, count: int, axis: int) -> SSAValue:
        nonlocal number
        shape = list(shape_of(x))
        shape[axis] = count
        offset = [first if i == axis else 0 for i in range(len(shape))]
        number += 1
        steps = (1,) * len(shape)
        return insert_part(
            rewriter, op, f"part{number}", Slice, x, offset=offset, steps=steps, shape=tuple(shape)
        )

    for axis in _axes(op):
        waiting: list[SSAValue] = []
        while (size := shape_of(x)[axis]) > 1:
            half = size // 2
            if size % 2:
                waiting.append(part(size - 1, 1, axis))
            factors = part(0, half, axis), part(half, half, axis)
            x = insert_part(rewriter, op, f"product{number}", Mul, *factors)
        for factor in waiting:
            number += 1
            x = insert_part(rewriter, op, f"product{number}", Mul, x, factor)
    replace(rewriter, op, Reshape.make(x, shape=shape_of(op.y)))


_PARTS: dict[str, Callable[[Reduce, PatternRewriter], None]] = {
    "l1": _magnitudes,
    "sum_square": _squares,
    "l2": _root_of_squares,
    "log_sum": _logarithm,
    "log_sum_exp": _logarithm_of_exponentials,
    "prod": _product,
}


class Composite(GraphPattern):
    """reduce(x) → function(sum(function(x)))"""

    @rewrites
    def match_and_rewrite(self, op: Reduce, rewriter: PatternRewriter) -> None:
        """Whatever is a sum inside."""
        if is_composite(op):
            _PARTS[op.kind](op, rewriter)


@register_pass
@dataclass(frozen=True)
class ExpandReduce(Pass):
    """Norms and logarithms of sums as functions before and after a sum, products as those of halves."""

    name: ClassVar[str] = "expand-reduce"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [Composite(graph)])
