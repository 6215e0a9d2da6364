"""Cutting and joining, with what cancels taken out.

slice(slice(x))                       → slice(x)
slice(concat(a, b))                   → slice(a)          where it lies inside one part
concat(a, concat(b, c))               → concat(a, b, c)   along one axis
concat(x[0:2], x[2:4])                → x[0:4]            and x itself if that is all of it
split(x), one part used               → slice(x)
x[0:2], x[2:4], the whole of x        → split(x)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint

from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.names import layer_name, location, value_name
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Concat, Slice, Split
from npuc.transform.patterns import (
    GraphPattern,
    derived_location,
    insert,
    producer,
    remake,
    replace,
    replace_with_value,
    sole_producer,
    users,
)


@dataclass(frozen=True)
class SliceView:
    """A value as a cut of another: every `steps`-th element from `offset`, `shape` of them."""

    source: SSAValue
    offset: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]

    def joins(self, other: SliceView, axis: int) -> bool:
        """True if `other` begins on `axis` where this one ends, and they agree on all other axes."""
        if self.source is not other.source or self.steps != other.steps:
            return False
        for i in range(len(self.shape)):
            if i == axis:
                if other.offset[i] != self.offset[i] + self.shape[i] * self.steps[i]:
                    return False
            elif (self.offset[i], self.shape[i]) != (other.offset[i], other.shape[i]):
                return False
        return True

    def joined(self, other: SliceView, axis: int) -> SliceView:
        """Both together."""
        shape = list(self.shape)
        shape[axis] += other.shape[axis]
        return SliceView(self.source, self.offset, self.steps, tuple(shape))


def view_of(value: SSAValue) -> SliceView | None:
    """The value as a cut, if a slice or split computes it."""
    if (cut := producer(value, Slice)) is not None:
        # The step of an axis with one element means nothing; 1 lets neighbours join.
        steps = tuple(1 if n == 1 else step for step, n in zip(cut.steps, cut.shape, strict=True))
        return SliceView(cut.x, cut.offset, steps, cut.shape)
    if (split := producer(value, Split)) is not None:
        assert isinstance(value, OpResult)
        rank = len(shape_of(split.x))
        axis = normal_axis(split.axis, rank)
        offset = [0] * rank
        offset[axis] = sum(split.sizes[: value.index])
        return SliceView(split.x, tuple(offset), (1,) * rank, shape_of(value))
    return None


class SliceOfView(GraphPattern):
    """slice(slice(x)) → slice(x)"""

    @rewrites
    def match_and_rewrite(self, op: Slice, rewriter: PatternRewriter) -> None:
        """Offsets and steps compose."""
        inner = view_of(op.x)
        if inner is None:
            return
        offset = tuple(a + b * s for a, b, s in zip(inner.offset, op.offset, inner.steps, strict=True))
        steps = tuple(a * b for a, b in zip(inner.steps, op.steps, strict=True))
        replace(rewriter, op, Slice.make(inner.source, offset=offset, steps=steps, shape=op.shape))


class SliceOfConcat(GraphPattern):
    """slice(concat(a, b)) → slice(a)"""

    @rewrites
    def match_and_rewrite(self, op: Slice, rewriter: PatternRewriter) -> None:
        """All that is cut lies in one part."""
        concat = producer(op.x, Concat)
        if concat is None or 0 in op.shape:
            return
        axis = normal_axis(concat.axis, len(op.shape))
        first = op.offset[axis]
        last = first + (op.shape[axis] - 1) * op.steps[axis]
        begin = 0
        for part in concat.inputs:
            end = begin + shape_of(part)[axis]
            if begin <= min(first, last) and max(first, last) < end:
                offset = list(op.offset)
                offset[axis] -= begin
                if shape_of(part) == op.shape and all(step == 1 for step in op.steps):
                    replace_with_value(rewriter, op, part)
                else:
                    replace(rewriter, op, Slice.make(part, offset=offset, steps=op.steps, shape=op.shape))
                return
            begin = end


class FlattenConcat(GraphPattern):
    """concat(a, concat(b, c)) → concat(a, b, c)"""

    @rewrites
    def match_and_rewrite(self, op: Concat, rewriter: PatternRewriter) -> None:
        """The inner one has no other use and joins along the same axis."""
        rank = len(shape_of(op.y))
        axis = normal_axis(op.axis, rank)
        parts: list[SSAValue] = []
        for value in op.inputs:
            inner = sole_producer(value, Concat)
            same = inner is not None and normal_axis(inner.axis, rank) == axis
            parts.extend(inner.inputs if same and inner is not None else [value])
        if len(parts) > len(op.inputs):
            replace(rewriter, op, remake(op, parts))


class JoinViews(GraphPattern):
    """concat of neighbouring cuts of one value → one cut"""

    @rewrites
    def match_and_rewrite(self, op: Concat, rewriter: PatternRewriter) -> None:
        """Runs of parts that join."""
        if not op.inputs:
            return
        axis = normal_axis(op.axis, len(shape_of(op.y)))
        runs: list[tuple[SliceView | None, SSAValue]] = []
        for value in op.inputs:
            view, last = view_of(value), runs[-1][0] if runs else None
            if view is not None and last is not None and last.joins(view, axis):
                runs[-1] = (last.joined(view, axis), value)
            else:
                runs.append((view, value))
        if len(runs) == len(op.inputs):
            return
        parts = []
        for index, (view, value) in enumerate(runs):
            if view is None or view.shape == shape_of(value):
                parts.append(value)
            elif view.shape == shape_of(view.source):
                parts.append(view.source)
            else:
                loc = op.location if len(runs) == 1 else derived_location(op, f"part{index}")
                cut = Slice.make(view.source, offset=view.offset, steps=view.steps, shape=view.shape, loc=loc)
                parts.append(insert(rewriter, cut).results[0])
        if len(parts) > 1:
            replace(rewriter, op, remake(op, parts))
        else:
            replace_with_value(rewriter, op, parts[0])


class SplitToSlice(GraphPattern):
    """A split of which one part is used → slice"""

    @rewrites
    def match_and_rewrite(self, op: Split, rewriter: PatternRewriter) -> None:
        """The other parts go."""
        used = [part for part in op.results if part.first_use is not None]
        if len(used) != 1 or len(op.results) == 1:
            return
        view = view_of(used[0])
        assert view is not None
        loc = location(value_name(used[0]), layer_name(op) or None)
        cut = Slice.make(view.source, offset=view.offset, steps=view.steps, shape=view.shape, loc=loc)
        rewriter.replace(op, cut, [cut.results[0] for _ in op.results])


class SlicesToSplit(GraphPattern):
    """Slices that cut all of a value into pieces → split"""

    @rewrites
    def match_and_rewrite(self, op: Slice, rewriter: PatternRewriter) -> None:
        """Found from the first piece."""
        axis = _only_axis(op)
        if axis is None or op.offset[axis] != 0:
            return
        # Slices that cut the same piece share it.
        pieces: dict[tuple[int, int], list[Slice]] = {}
        for user in users(op.x):
            if isinstance(user, Slice) and _only_axis(user) == axis:
                pieces.setdefault((user.offset[axis], user.shape[axis]), []).append(user)
        cuts = sorted(pieces)
        sizes = [size for _, size in cuts]
        if (
            len(cuts) < 2
            or [begin for begin, _ in cuts] != _running(sizes)
            or sum(sizes) != shape_of(op.x)[axis]
        ):
            return
        names = [value_name(pieces[key][0].y) for key in cuts]
        split = Split.make(op.x, axis=axis, sizes=sizes, name=names, layer=layer_name(op) or None)
        rewriter.insert(split, _after(op.x))
        for key, part in zip(cuts, split.results, strict=True):
            for piece in pieces[key]:
                rewriter.replace(piece, [], [part])


def _only_axis(op: Slice) -> int | None:
    """The one axis that a slice with steps of 1 cuts."""
    shape = shape_of(op.x)
    cut = [axis for axis, n in enumerate(op.shape) if n != shape[axis]]
    return cut[0] if len(cut) == 1 and op.shape[cut[0]] > 0 and all(step == 1 for step in op.steps) else None


def _running(sizes: Sequence[int]) -> list[int]:
    starts, total = [], 0
    for size in sizes:
        starts.append(total)
        total += size
    return starts


def _after(value: SSAValue) -> InsertPoint:
    owner: Operation | Block = value.owner
    return InsertPoint.after(owner) if isinstance(owner, Operation) else InsertPoint.at_start(owner)


@register_pass
@dataclass(frozen=True)
class SimplifySlices(Pass):
    """Cutting and joining."""

    name: ClassVar[str] = "simplify-slices"

    def run(self, graph: Graph) -> None:
        """First what makes cuts fewer, then what names them together."""
        first = [
            SliceOfView(graph),
            SliceOfConcat(graph),
            FlattenConcat(graph),
            JoinViews(graph),
            SplitToSlice(graph),
        ]
        apply_patterns(graph, first)
        apply_patterns(graph, [SlicesToSplit(graph), SplitToSlice(graph)])
