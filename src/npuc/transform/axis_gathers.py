"""A tensor whose axes are each read by a constant index: what borders, nearest neighbours and constant indices are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.ir import SSAValue

from npuc.arrays import Array
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.names import result_names
from npuc.ir.passes import PatternRewriter
from npuc.ir.top import Gather
from npuc.transform.patterns import insert_part, insert_weight, replace, replace_with_value


def index_weight(graph: Graph, rewriter: PatternRewriter, op: TopOp, what: str, index: Array) -> SSAValue:
    """A constant index of a layer."""
    name = f"{result_names(op)[0]}/{what}/index"
    return insert_weight(graph, rewriter, name, np.ascontiguousarray(index, np.int64))


def replace_by_gathers(
    graph: Graph, rewriter: PatternRewriter, op: TopOp, x: SSAValue, indices: Mapping[int, Array]
) -> None:
    """Put a gather along each axis in the place of an op, without those that would change nothing."""
    shape = shape_of(x)
    needed = {axis: index for axis, index in indices.items() if index.tolist() != list(range(shape[axis]))}
    if not needed:
        replace_with_value(rewriter, op, x)
        return
    *others, (last, last_index) = needed.items()
    for axis, index in others:
        what = f"axis{axis}"
        x = insert_part(
            rewriter, op, what, Gather, x, index_weight(graph, rewriter, op, what, index), axis=axis
        )
    weight = index_weight(graph, rewriter, op, f"axis{last}", last_index)
    replace(rewriter, op, Gather.make(x, weight, axis=last))
