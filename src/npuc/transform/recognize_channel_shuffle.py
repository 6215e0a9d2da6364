"""A channel shuffle that is spelled out becomes one op.

    %0 = top.reshape(%x) {shape = <N, g, C/g, H, W>}
    %1 = top.permute(%0) {order = <0, 2, 1, 3, 4>}
    %y = top.reshape(%1) {shape = <N, C, H, W>}       →   %y = top.shuffle_channel(%x) {group = g}

ShuffleNet's own code reshapes to <k, N, C/k, H, W> at the end and gathers the k parts: those become slices of channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Gather, Reshape, ShuffleChannel, Slice
from npuc.transform.patterns import GraphPattern, derived_location, insert, producer, replace, scalar
from npuc.transform.rearrangement import Rearrangement


class ToShuffleChannel(GraphPattern):
    """reshape(permute(reshape(x))) → shuffle_channel(x), reshaped if the last shape is another than that of x"""

    @rewrites
    def match_and_rewrite(self, op: Reshape, rewriter: PatternRewriter) -> None:
        """Two factors of the channels change places."""
        rearrangement = Rearrangement.ending_in(op)
        if rearrangement is None or len(shape_of(rearrangement.x)) < 3:
            return
        batch, channels, *space = shape_of(rearrangement.x)
        for group in sorted({n for n in rearrangement.split if 1 < n < channels and channels % n == 0}):
            if not rearrangement.is_permute((batch, group, channels // group, prod(space)), (0, 2, 1, 3)):
                continue
            if shape_of(rearrangement.x) == rearrangement.shape:
                replace(rewriter, op, ShuffleChannel.make(rearrangement.x, group=group))
            elif len(space) == 2:
                shuffled = ShuffleChannel.make(
                    rearrangement.x, group=group, loc=derived_location(op, "shuffled")
                )
                replace(rewriter, op, Reshape.make(insert(rewriter, shuffled).y, shape=rearrangement.shape))
            return


class PartOfChannels(GraphPattern):
    """gather(reshape(x, <k, 1, C/k, H, W>), i) → slice(x), the i-th part of its channels"""

    @rewrites
    def match_and_rewrite(self, op: Gather, rewriter: PatternRewriter) -> None:
        """One constant index along the first axis, and a batch of one."""
        before = producer(op.x, Reshape)
        index = scalar(self.graph, op.indices)
        if before is None or index is None or op.axis != 0 or shape_of(op.indices):
            return
        shape, parts = shape_of(before.x), before.shape[0]
        if len(shape) != 4 or shape[0] != 1 or parts == 0 or shape[1] % parts:
            return
        size = shape[1] // parts
        if before.shape != (parts, 1, size, *shape[2:]):
            return
        first = int(index) % parts * size
        replace(
            rewriter, op, Slice.make(before.x, offset=(0, first, 0, 0), steps=(1,) * 4, shape=shape_of(op.y))
        )


@register_pass
@dataclass(frozen=True)
class RecognizeChannelShuffle(Pass):
    """Reshape, permute and reshape that interleave groups of channels become one op."""

    name: ClassVar[str] = "recognize-channel-shuffle"

    def run(self, graph: Graph) -> None:
        """The shuffle, and what is taken from it."""
        apply_patterns(graph, [ToShuffleChannel(graph), PartOfChannels(graph)])
