"""Pixel shuffles that are spelled out become one op.

    %0 = top.reshape(%x) {shape = <N, C, r, r, H, W>}
    %1 = top.permute(%0) {order = <0, 1, 4, 2, 5, 3>}
    %y = top.reshape(%1) {shape = <N, C, H*r, W*r>}    →   %y = top.depth_to_space(%x) {block = r, mode = "CRD"}

In both orders of channels (CRD, DCR), and back (space_to_depth). A concat of slices that is a space to depth (the Focus
layer of YOLOv5 and YOLOX) has an order of its own; the weights of the convolution that follows are put in the op's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.ir import Operation, SSAValue

from npuc.ir.definition import TopOp, normal_axis
from npuc.ir.dtypes import is_static, shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Concat, Conv, DepthToSpace, Reshape, ShuffleChannel, Slice, SpaceToDepth
from npuc.transform.patterns import (
    GraphPattern,
    derived,
    derived_location,
    insert,
    insert_weight,
    producer,
    remake,
    replace,
    users,
)
from npuc.transform.rearrangement import Rearrangement


class ReshapesToShuffle(GraphPattern):
    """reshape(permute(reshape(x))) → depth_to_space(x) or space_to_depth(x)"""

    @rewrites
    def match_and_rewrite(self, op: Reshape, rewriter: PatternRewriter) -> None:
        """Height and width grow or shrink by one factor."""
        rearrangement = Rearrangement.ending_in(op)
        if rearrangement is None or len(rearrangement.shape) != 4 or len(shape_of(rearrangement.x)) != 4:
            return
        (n, c, h, w), (m, d, u, v) = shape_of(rearrangement.x), rearrangement.shape
        if n != m or 0 in rearrangement.shape:
            return
        if u > h and (u % h, v, c) == (0, w * (u // h), d * (u // h) ** 2):
            self._to_space(rearrangement, op, u // h, rewriter)
        elif u < h and (h % u, w, d) == (0, v * (h // u), c * (h // u) ** 2):
            self._to_depth(rearrangement, op, h // u, rewriter)

    def _to_space(
        self, rearrangement: Rearrangement, op: Reshape, block: int, rewriter: PatternRewriter
    ) -> None:
        n, _, h, w = shape_of(rearrangement.x)
        channels = rearrangement.shape[1]
        if rearrangement.is_permute((n, channels, block, block, h, w), (0, 1, 4, 2, 5, 3)):
            replace(rewriter, op, DepthToSpace.make(rearrangement.x, block=block, mode="CRD"))
        elif rearrangement.is_permute((n, block, block, channels, h, w), (0, 3, 4, 1, 5, 2)):
            replace(rewriter, op, DepthToSpace.make(rearrangement.x, block=block, mode="DCR"))

    def _to_depth(
        self, rearrangement: Rearrangement, op: Reshape, block: int, rewriter: PatternRewriter
    ) -> None:
        n, channels, h, w = shape_of(rearrangement.x)
        split = (n, channels, h // block, block, w // block, block)
        if rearrangement.is_permute(split, (0, 3, 5, 1, 2, 4)):
            replace(rewriter, op, SpaceToDepth.make(rearrangement.x, block=block))
        elif rearrangement.is_permute(split, (0, 1, 3, 5, 2, 4)):
            # Channel outermost (torch's pixel_unshuffle): the op, and its channels interleaved.
            outermost = SpaceToDepth.make(
                rearrangement.x, block=block, loc=derived_location(op, "space_to_depth")
            )
            replace(rewriter, op, ShuffleChannel.make(insert(rewriter, outermost).y, group=block**2))


class SlicesToDepth(GraphPattern):
    """concat(x[0::2, 0::2], x[1::2, 0::2], ...) → space_to_depth(x)"""

    @rewrites
    def match_and_rewrite(self, op: Concat, rewriter: PatternRewriter) -> None:
        """The slices are all the blocks of x, and nothing else uses them."""
        block = round(len(op.inputs) ** 0.5)
        if block < 2 or block**2 != len(op.inputs) or not is_static(op.y) or len(shape_of(op.y)) != 4:
            return
        if normal_axis(op.axis, 4) != 1:
            return
        inside: set[Operation] = {op}
        blocks = [_block_of(value, block, inside) for value in op.inputs]
        sources = {part[0] for part in blocks if part is not None}
        order = [part[1] for part in blocks if part is not None]
        if len(sources) != 1 or sorted(order) != list(range(block**2)):
            return
        slices = inside - {op}
        if any(user not in inside for part in slices for user in users(part.results[0])):
            return
        x = sources.pop()
        if order == sorted(order):
            replace(rewriter, op, SpaceToDepth.make(x, block=block))
        else:
            self._reorder_weights(op, x, block, order, rewriter)

    def _reorder_weights(
        self, op: Concat, x: SSAValue, block: int, order: list[int], rewriter: PatternRewriter
    ) -> None:
        """Channels come in another order: every user must be a convolution whose weights can follow."""
        convs = users(op.y)
        for conv in convs:
            if not isinstance(conv, Conv) or conv.group != 1 or conv.weight is op.y:
                return
            if self.graph.constant(conv.weight) is None:
                return
        new: TopOp = SpaceToDepth.make(x, block=block, loc=derived_location(op, "space_to_depth"))
        insert(rewriter, new)
        channels = shape_of(x)[1]
        places = np.concatenate([np.arange(channels) + order.index(i) * channels for i in range(block**2)])
        for conv in convs:
            assert isinstance(conv, Conv)
            array = self.graph.constant(conv.weight)
            assert array is not None
            weight = insert_weight(self.graph, rewriter, derived(conv.y, "weight"), array[:, places])
            changed = remake(conv, new.results[0], weight, conv.bias)
            rewriter.replace(conv, changed)


def _block_of(value: SSAValue, block: int, inside: set[Operation]) -> tuple[SSAValue, int] | None:
    """(x, i) if a value is every `block`-th pixel of x, from the one that is i-th in a block, in all channels."""
    part = producer(value, Slice)
    if part is None or not is_static(part.x):
        return None
    offset, steps, shape = part.offset, part.steps, part.shape
    inside.add(part)
    while (outer := producer(part.x, Slice)) is not None:
        offset = tuple(a + s * b for a, s, b in zip(outer.offset, outer.steps, offset, strict=True))
        steps = tuple(a * b for a, b in zip(outer.steps, steps, strict=True))
        inside.add(outer)
        part = outer
    n, c, h, w = shape_of(part.x)
    whole = shape == (n, c, h // block, w // block) and h % block == 0 and w % block == 0
    if not whole or offset[:2] != (0, 0) or steps != (1, 1, block, block):
        return None
    return (part.x, offset[2] * block + offset[3]) if max(offset[2:]) < block else None


@register_pass
@dataclass(frozen=True)
class RecognizePixelShuffle(Pass):
    """Depth to space and space to depth that are spelled out become one op."""

    name: ClassVar[str] = "recognize-pixel-shuffle"

    def run(self, graph: Graph) -> None:
        """Both spellings."""
        apply_patterns(graph, [ReshapesToShuffle(graph), SlicesToDepth(graph)])
