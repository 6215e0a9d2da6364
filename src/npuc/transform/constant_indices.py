"""Elements chosen or replaced at constant indices are one gather along one axis, and those that are added are a few.

    gather(x, [[2, 0], [1, 1]])              →   reshape(gather(x, [2, 0, 1, 1]))
    gather_nd, gather_elements(x, indices)   →   reshape(gather(reshape(x), rows))
    scatter_nd, scatter_elements(x, i, u)    →   reshape(gather(concat(reshape(x), reshape(u)), rows))
    the same with the reduction `add`        →   reshape(reshape(x) + gather(concat(reshape(u), zeros), rows) + ...)

What the indices address (elements, or slices of them) becomes the rows of a matrix. A scatter is read backwards: each row of
its result is a row of x, or the last update that was written there. Where updates are added to what is there, or the lesser or
the greater of both stays, a place that is named n times takes n gathers: of the first updates of all places, of the second, and
so on; up to 4. It runs before quantization; the elements move as they are.
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
from npuc.ir.names import result_names
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import (
    Add,
    Concat,
    Gather,
    GatherElements,
    GatherND,
    Max,
    Min,
    Reshape,
    ScatterElements,
    ScatterND,
)
from npuc.transform.axis_gathers import index_weight
from npuc.transform.patterns import GraphPattern, insert_part, insert_weight, is_float, replace

Indexed = Gather | GatherElements | GatherND | ScatterElements | ScatterND
_COMBINING: dict[str, type[Add | Max | Min]] = {"add": Add, "max": Max, "min": Min}
"""Reductions of a scatter that are made of gathers, and what each computes."""
ROUNDS = 4
"""How often a place may be named by such a scatter."""


def applies(op: Indexed, graph: Graph) -> bool:
    """Whether the pass replaces an op."""
    return is_one_gather(op, graph) or (
        isinstance(op, ScatterElements | ScatterND) and combined_rounds(op, graph) is not None
    )


def is_one_gather(op: Indexed, graph: Graph) -> bool:
    """Whether reals are chosen or replaced at constant indices that all lie inside of them."""
    replaces = not isinstance(op, ScatterElements | ScatterND) or op.reduction == "none"
    return replaces and _is_inside(op, graph)


def combined_rounds(op: ScatterElements | ScatterND, graph: Graph) -> Array | None:
    """For each update of a scatter with a reduction how many before it have the same place; None if it is not made of gathers.

    Updates of places 3, 5, 3 are of the rounds 0, 0 and 1.
    """
    if op.reduction not in _COMBINING or not _is_inside(op, graph):
        return None
    indices = graph.constant(op.indices)
    assert indices is not None
    rows = addressed_rows(op, indices).reshape(-1)
    order = np.argsort(rows, kind="stable")
    _, first, counts = np.unique(rows[order], return_index=True, return_counts=True)
    if counts.max() > ROUNDS:
        return None
    rounds = np.empty(rows.size, np.int64)
    rounds[order] = np.arange(rows.size) - np.repeat(first, counts)
    return rounds


def _is_inside(op: Indexed, graph: Graph) -> bool:
    """Whether reals are addressed by constant indices that all lie inside of them."""
    indices = graph.constant(op.indices) if is_float(op.x) else None
    if indices is None or not indices.size or 0 in (*shape_of(op.x), *shape_of(op.y)):
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


class Combined(GraphPattern):
    """scatter_nd, scatter_elements with a reduction → gathers of the updates, added or compared one after the other"""

    @rewrites
    def match_and_rewrite(self, op: ScatterElements | ScatterND, rewriter: PatternRewriter) -> None:
        """At constant indices, in the order of the updates."""
        rounds = combined_rounds(op, self.graph)
        if rounds is None:
            return
        indices = self.graph.constant(op.indices)
        assert indices is not None
        rows = addressed_rows(op, indices).reshape(-1)
        width = prod(shape_of(op.updates)) // rows.size
        count = prod(shape_of(op.x)) // width
        new = insert_part(rewriter, op, "new", Reshape, op.updates, shape=(rows.size, width))
        result = insert_part(rewriter, op, "old", Reshape, op.x, shape=(count, width))
        start = self.graph.constant(op.x)
        is_empty = op.reduction == "add" and start is not None and not start.any()
        for number in range(int(rounds.max()) + 1):
            updates = np.flatnonzero(rounds == number)
            source = np.full(count, rows.size)
            source[rows[updates]] = updates
            rest, choices = source == rows.size, new
            if rest.any() and op.reduction == "add":
                name = f"{result_names(op)[0]}/zeros{number}"
                zeros = insert_weight(self.graph, rewriter, name, np.zeros((1, width)), like=op.x)
                choices = insert_part(rewriter, op, f"choices{number}", Concat, [new, zeros], axis=0)
            elif rest.any():
                choices = insert_part(rewriter, op, f"choices{number}", Concat, [new, result], axis=0)
                source = source + np.where(rest, np.arange(count), 0)
            index = index_weight(self.graph, rewriter, op, f"round{number}", source)
            other = insert_part(rewriter, op, f"round{number}", Gather, choices, index, axis=0)
            if number == 0 and is_empty:
                result = other
            else:
                result = insert_part(rewriter, op, f"after{number}", _COMBINING[op.reduction], result, other)
        replace(rewriter, op, Reshape.make(result, shape=shape_of(op.y)))


@register_pass
@dataclass(frozen=True)
class ConstantIndices(Pass):
    """Elements at constant indices are one gather along one axis, or a few."""

    name: ClassVar[str] = "constant-indices"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [SeveralAxes(graph), Chosen(graph), Replaced(graph), Combined(graph)])
