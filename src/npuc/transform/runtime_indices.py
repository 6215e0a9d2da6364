"""Elements chosen or replaced at indices that are known at run time only are one gather along one axis.

    gather_elements, gather_nd(x, i)          →   reshape(gather(reshape(x), places))
    scatter_elements, scatter_nd(x, i, u)     →   reshape(gather(concat(reshape(x), reshape(u)), source))

The place of an element in the flattened tensor is a sum of indices times strides. A scatter is read backwards, as that at
constant indices is: `source` has the places of x, with those of the updates scattered among them. The host computes such
integers, and the NPU gathers. Where one index alone says the place, there is nothing to compute. It runs before quantization;
the elements move as they are. What an index adds to the place is read from a table as long as its axis: an index from the end
counts as everywhere, and one beyond its axis ends the run with an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from xdsl.ir import SSAValue

from npuc.arrays import Array
from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import dtype_of, is_static, shape_of
from npuc.ir.graph import Graph
from npuc.ir.names import result_names
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import (
    Add,
    Concat,
    Gather,
    GatherElements,
    GatherND,
    Reshape,
    ScatterElements,
    ScatterND,
    Slice,
)
from npuc.transform.patterns import GraphPattern, insert_part, insert_weight, is_float, replace

_INDEX_TYPES = ("i32", "i64")


Indexed = GatherElements | GatherND | ScatterElements | ScatterND


def is_flat_gather(op: Indexed, graph: Graph) -> bool:
    """Whether reals are chosen or replaced at indices of the run, in tensors of known shapes."""
    if isinstance(op, ScatterElements | ScatterND) and op.reduction != "none":
        return False
    if not (is_static(op.x) and is_static(op.indices)) or not is_float(op.x):
        return False
    if 0 in (*shape_of(op.x), *shape_of(op.indices)) or dtype_of(op.indices.type).name not in _INDEX_TYPES:
        return False
    batched = isinstance(op, GatherND) and op.batch_dims != 0
    return graph.constant(op.indices) is None and not batched


class RunTimeIndices(GraphPattern):
    """Places of elements as integers of the host."""

    def rows(self, op: Indexed, rewriter: PatternRewriter) -> tuple[SSAValue, SSAValue, int]:
        """x as the rows that indices address, the places of those, and the width of a row."""
        if isinstance(op, GatherElements | ScatterElements):
            width, places = 1, self._elements(op, rewriter)
        else:
            width = prod(shape_of(op.x)[shape_of(op.indices)[-1] :])
            places = self._tuples(op, rewriter)
        count = prod(shape_of(op.x)) // width
        return insert_part(rewriter, op, "rows", Reshape, op.x, shape=(count, width)), places, width

    def _elements(self, op: Indexed, rewriter: PatternRewriter) -> SSAValue:
        """Rows of one element: the index times its stride, and where the element's own line begins."""
        shape, indices = shape_of(op.x), shape_of(op.indices)
        assert isinstance(op, GatherElements | ScatterElements)
        axis = normal_axis(op.axis, len(shape))
        strides = _strides(shape)
        own = np.indices(indices)
        begin = sum(own[i] * strides[i] for i in range(len(shape)) if i != axis)
        if prod(shape) == shape[axis]:
            return op.indices  # as a gather takes it, also below zero
        at = self._looked_up(op, rewriter, "along", op.indices, shape[axis], strides[axis])
        begins = self._constant(op, rewriter, "begins", np.asarray(begin))
        return insert_part(rewriter, op, "place", Add, at, begins)

    def _tuples(self, op: Indexed, rewriter: PatternRewriter) -> SSAValue:
        """Rows of what a tuple addresses: the sum of what each of its indices adds."""
        indices = shape_of(op.indices)
        depth = indices[-1]
        leading = shape_of(op.x)[:depth]
        if depth == 1:
            return op.indices
        place: SSAValue | None = None
        for axis, (size, stride) in enumerate(zip(leading, _strides(leading), strict=True)):
            column = insert_part(
                rewriter,
                op,
                f"index{axis}",
                Slice,
                op.indices,
                offset=(*(0 for _ in indices[:-1]), axis),
                steps=tuple(1 for _ in indices),
                shape=(*indices[:-1], 1),
            )
            at = self._looked_up(op, rewriter, f"along{axis}", column, size, stride)
            place = at if place is None else insert_part(rewriter, op, f"place{axis}", Add, place, at)
        assert place is not None
        return place

    def _looked_up(
        self, op: Indexed, rewriter: PatternRewriter, what: str, index: SSAValue, size: int, stride: int
    ) -> SSAValue:
        """What an index of an axis adds to the place: a table, so that an index beyond the axis is an error."""
        table = self._constant(op, rewriter, f"{what}/table", np.arange(size) * stride)
        return insert_part(rewriter, op, what, Gather, table, index, axis=0)

    def _constant(self, op: Indexed, rewriter: PatternRewriter, what: str, array: Array) -> SSAValue:
        return insert_weight(
            self.graph,
            rewriter,
            f"{result_names(op)[0]}/{what}",
            array.astype(dtype_of(op.indices.type).numpy),
        )


class Chosen(RunTimeIndices):
    """gather_elements, gather_nd → gather of rows"""

    @rewrites
    def match_and_rewrite(self, op: GatherElements | GatherND, rewriter: PatternRewriter) -> None:
        """At indices of the run."""
        if not is_flat_gather(op, self.graph):
            return
        matrix, places, _ = self.rows(op, rewriter)
        chosen = insert_part(rewriter, op, "chosen", Gather, matrix, places, axis=0)
        replace(rewriter, op, Reshape.make(chosen, shape=shape_of(op.y)))


class Replaced(RunTimeIndices):
    """scatter_elements, scatter_nd → gather of old and new rows"""

    @rewrites
    def match_and_rewrite(self, op: ScatterElements | ScatterND, rewriter: PatternRewriter) -> None:
        """At indices of the run, the new in the place of the old."""
        if not is_flat_gather(op, self.graph):
            return
        old, places, width = self.rows(op, rewriter)
        rows, count = shape_of(old)[0], prod(shape_of(op.updates)) // width
        flat = insert_part(rewriter, op, "places", Reshape, places, shape=(count,))
        own = self._constant(op, rewriter, "own", np.arange(rows))
        others = self._constant(op, rewriter, "others", np.arange(rows, rows + count))
        source = insert_part(rewriter, op, "source", ScatterElements, own, flat, others, axis=0)
        new = insert_part(rewriter, op, "new", Reshape, op.updates, shape=(count, width))
        both = insert_part(rewriter, op, "both", Concat, [old, new], axis=0)
        replaced = insert_part(rewriter, op, "replaced", Gather, both, source, axis=0)
        replace(rewriter, op, Reshape.make(replaced, shape=shape_of(op.y)))


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


@register_pass
@dataclass(frozen=True)
class RunTimeIndexPass(Pass):
    """Elements at indices of the run are one gather along one axis."""

    name: ClassVar[str] = "run-time-indices"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [Chosen(graph), Replaced(graph)])
