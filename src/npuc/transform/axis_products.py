"""A tensor multiplied along one axis by a constant matrix: what running sums and interpolations are.

    y[.., j, ..] = sum over i of x[.., i, ..] * m[i, j]

Matrix products work along the last axis, so any other axis changes places with the last one before and after.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from npuc.arrays import Array
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.names import result_names
from npuc.ir.passes import PatternRewriter
from npuc.ir.top import MatMul, Permute, Reshape
from npuc.transform.patterns import insert_part, insert_weight

LARGEST_MATRIX = 1 << 20
"""Entries of a matrix that a layer may be given; a larger one costs more than the CPU takes for the op."""


def axis_product(
    graph: Graph, rewriter: PatternRewriter, op: Operation, x: SSAValue, axis: int, matrix: Array, what: str
) -> TopOp:
    """`x` by a matrix (its size along the axis x the new size): the last op of it, which is not inserted yet.

    The ops before it are inserted before `op` under names that begin with `what`.
    """
    shape = shape_of(x)
    last = len(shape) - 1
    weight = insert_weight(graph, rewriter, f"{result_names(op)[0]}/{what}/matrix", matrix, like=x)
    if last == 0:
        row = insert_part(rewriter, op, f"{what}/row", Reshape, x, shape=(1, *shape))
        product = insert_part(rewriter, op, f"{what}/product", MatMul, row, weight, None)
        return Reshape.make(product, shape=(matrix.shape[1],))
    if axis == last:
        return MatMul.make(x, weight, None)
    order = list(range(len(shape)))
    order[axis], order[last] = last, axis
    turned = insert_part(rewriter, op, f"{what}/turned", Permute, x, order=order)
    product = insert_part(rewriter, op, f"{what}/product", MatMul, turned, weight, None)
    return Permute.make(product, order=order)
