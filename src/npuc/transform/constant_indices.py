"""Elements chosen or replaced at constant indices are one gather along one axis.

    gather(x, [[2, 0], [1, 1]])              →   reshape(gather(x, [2, 0, 1, 1]))
    gather_nd, gather_elements(x, indices)   →   reshape(gather(reshape(x), rows))
    scatter_nd, scatter_elements(x, i, u)    →   reshape(gather(concat(reshape(x), reshape(u)), rows))

What the indices address (elements, or slices of them) becomes the rows of a matrix. A scatter is read backwards: each row of
its result is a row of x, or the last update that was written there. It runs before quantization; the elements move as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from npuc.arrays import Array
from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Concat, Gather, GatherElements, GatherND, Reshape, ScatterElements, ScatterND
from npuc.transform.axis_gathers import index_weight
from npuc.transform.patterns import GraphPattern, insert_part, is_float, replace

Indexed = Gather | GatherElements | GatherND | ScatterElements | ScatterND


def is_one_gather(op: Indexed, graph: Graph) -> bool:
    """Whether reals are chosen or replaced at constant indices that all lie inside of them."""
    indices = graph.constant(op.indices) if is_float(op.x) else None
    if indices is None or not indices.size or 0 in (*shape_of(op.x), *shape_of(op.y)):
        return False
    if isinstance(op, ScatterElements | ScatterND) and op.reduction != "none":
        return False
    if isinstance(op, Gather):
        return indices.ndim > 1 and _inside(indices, shape_of(op.x)[op.axis])
    if isinstance(op, GatherElements | ScatterElements):
        return _inside(indices, shape_of(op.x)[op.axis])
    first = op.batch_dims if isinstance(op, GatherND) else 0
    return all(_inside(indices[..., i], shape_of(op.x)[first + i]) for i in range(indices.shape[-1]))


def _inside(indices: Array, size: int) -> bool:
    return bool(-size <= indices.min() and indices.max() < size)


def addressed_rows(op: GatherElements | GatherND | ScatterElements | ScatterND, indices: Array) -> Array:
    """The rows that the indices address, if what one of them addresses is a row of x."""
    shape = shape_of(op.x)
    if isinstance(op, GatherElements | ScatterElements):
        axis = normal_axis(op.axis, len(shape))
        places: list[Array] = list(np.indices(indices.shape))
        places[axis] = np.where(indices < 0, indices + shape[axis], indices)
        return np.asarray(np.ravel_multi_index(places, shape))
    batch = op.batch_dims if isinstance(op, GatherND) else 0
    leading = shape[: batch + indices.shape[-1]]
    places = list(np.indices(indices.shape[:-1])[:batch])
    for i in range(indices.shape[-1]):
        places.append(np.where(indices[..., i] < 0, indices[..., i] + leading[batch + i], indices[..., i]))
    if not leading:
        return np.zeros(indices.shape[:-1], np.int64)
    return np.asarray(np.ravel_multi_index([np.asarray(place, np.int64) for place in places], leading))


class SeveralAxes(GraphPattern):
    """gather(x, matrix) → reshape(gather(x, vector))"""

    @rewrites
    def match_and_rewrite(self, op: Gather, rewriter: PatternRewriter) -> None:
        """Indices of two or more axes."""
        if not is_one_gather(op, self.graph):
            return
        indices = self.graph.constant(op.indices)
        assert indices is not None
        shape, axis = shape_of(op.x), normal_axis(op.axis, len(shape_of(op.x)))
        flat = index_weight(self.graph, rewriter, op, "flat", indices.reshape(-1) % shape[axis])
        row = insert_part(rewriter, op, "flat", Gather, op.x, flat, axis=axis)
        replace(rewriter, op, Reshape.make(row, shape=shape_of(op.y)))


class Chosen(GraphPattern):
    """gather_nd, gather_elements → gather of rows"""

    @rewrites
    def match_and_rewrite(self, op: GatherElements | GatherND, rewriter: PatternRewriter) -> None:
        """At constant indices."""
        if not is_one_gather(op, self.graph):
            return
        indices = self.graph.constant(op.indices)
        assert indices is not None
        rows = addressed_rows(op, indices)
        total, width = prod(shape_of(op.x)), prod(shape_of(op.y)) // rows.size
        matrix = insert_part(rewriter, op, "rows", Reshape, op.x, shape=(total // width, width))
        index = index_weight(self.graph, rewriter, op, "chosen", rows.reshape(-1))
        chosen = insert_part(rewriter, op, "chosen", Gather, matrix, index, axis=0)
        replace(rewriter, op, Reshape.make(chosen, shape=shape_of(op.y)))


class Replaced(GraphPattern):
    """scatter_nd, scatter_elements → gather of old and new rows"""

    @rewrites
    def match_and_rewrite(self, op: ScatterElements | ScatterND, rewriter: PatternRewriter) -> None:
        """At constant indices, the new in the place of the old."""
        if not is_one_gather(op, self.graph):
            return
        indices = self.graph.constant(op.indices)
        assert indices is not None
        rows = addressed_rows(op, indices).reshape(-1)
        total = prod(shape_of(op.x))
        width = prod(shape_of(op.updates)) // rows.size
        source = np.arange(total // width)
        source[rows] = total // width + np.arange(rows.size)
        old = insert_part(rewriter, op, "old", Reshape, op.x, shape=(total // width, width))
        new = insert_part(rewriter, op, "new", Reshape, op.updates, shape=(rows.size, width))
        both = insert_part(rewriter, op, "rows", Concat, [old, new], axis=0)
        index = index_weight(self.graph, rewriter, op, "replaced", source)
        replaced = insert_part(rewriter, op, "replaced", Gather, both, index, axis=0)
        replace(rewriter, op, Reshape.make(replaced, shape=shape_of(op.y)))


@register_pass
@dataclass(frozen=True)
class ConstantIndices(Pass):
    """Elements at constant indices are one gather along one axis."""

    name: ClassVar[str] = "constant-indices"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [SeveralAxes(graph), Chosen(graph), Replaced(graph)])
