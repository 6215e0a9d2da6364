"""A border of zeros becomes the padding of the convolution or pool that reads it.

    %0 = top.pad(%x) {pads = [0,0,1,1,0,0,1,1]}            %y = top.conv(%x, %w) {pads = [1,1,1,1]}
    %y = top.conv(%0, %w) {pads = [0,0,0,0]}       →

An average pool then counts its padding. A max pool pads with minus infinity, so a border of zeros may go only if its
input is known not to be negative and every window sees a real pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import AvgPool, Conv, MaxPool, Pad
from npuc.transform.patterns import GraphPattern, dtype, is_float, producer, remake, replace
from npuc.transform.signs import not_negative


def spatial_pads(op: Pad) -> tuple[int, ...] | None:
    """The pads of the spatial axes, if the op pads those alone and with a constant."""
    rank = len(shape_of(op.x))
    begins, ends = op.pads[:rank], op.pads[rank:]
    if op.mode != "constant" or rank < 3 or min(op.pads) < 0 or any((*begins[:2], *ends[:2])):
        return None
    return (*begins[2:], *ends[2:])


class PadIntoWindow(GraphPattern):
    """pad + conv, pad + avg_pool, pad + max_pool"""

    @rewrites
    def match_and_rewrite(self, op: Conv | AvgPool | MaxPool, rewriter: PatternRewriter) -> None:
        """Any use of the pad may take its place; the pad goes when all have."""
        pad = producer(op.x, Pad)
        extra = spatial_pads(pad) if pad is not None and is_float(op.x) else None
        if pad is None or extra is None:
            return
        pads = tuple(a + b for a, b in zip(op.pads, extra, strict=True))
        if isinstance(op, Conv):
            if pad.value == 0:
                replace(rewriter, op, remake(op, pad.x, op.weight, op.bias, pads=pads))
            return
        # Ceil mode rounds differently over real and over implied pixels; runtimes want pads smaller than the kernel.
        sizes = op.kernel + op.kernel
        if (
            op.ceil_mode
            or any(d != 1 for d in op.dilations)
            or any(p >= k for p, k in zip(pads, sizes, strict=True))
        ):
            return
        if isinstance(op, AvgPool):
            if pad.value == 0 and (op.count_include_pad or not any(op.pads)):
                replace(rewriter, op, remake(op, pad.x, pads=pads, count_include_pad=True))
        elif _never_wins(pad):
            replace(rewriter, op, remake(op, pad.x, pads=pads))


def _never_wins(pad: Pad) -> bool:
    """The border can be left out of a maximum over a window with real pixels."""
    lowest = -3.4028234663852886e38 if dtype(pad.x).name == "f32" else -math.inf
    return pad.value <= lowest or (pad.value <= 0 and not_negative(pad.x))


@register_pass
@dataclass(frozen=True)
class FusePad(Pass):
    """pad into conv and pools."""

    name: ClassVar[str] = "fuse-pad"

    def run(self, graph: Graph) -> None:
        """Every window by itself."""
        apply_patterns(graph, [PadIntoWindow(graph)])
