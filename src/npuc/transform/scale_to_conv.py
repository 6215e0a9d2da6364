"""A scale and a bias for each channel are a depthwise convolution of one pixel.

    scale(x, s, b)   →   conv(x, s, b) {kernel 1 x 1, group = channels}

It runs before quantization, on what no neighbour could take in (a batch norm before an activation, or on a branch of its
own): integers have convolutions. The canonical form keeps the scale, which other patterns look for.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.names import result_names
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Conv, Reshape, Scale
from npuc.transform.patterns import (
    GraphPattern,
    derived_location,
    insert,
    insert_part,
    insert_weight,
    replace,
)


class AsConvolution(GraphPattern):
    """scale(x) → conv(x); what is no image becomes one of a single row"""

    @rewrites
    def match_and_rewrite(self, op: Scale, rewriter: PatternRewriter) -> None:
        """With constant factors."""
        scale, bias = self.graph.constant(op.scale), self.graph.constant(op.bias)
        shape = shape_of(op.x)
        if scale is None or bias is None or len(shape) < 2 or 0 in shape:
            return
        x = op.x
        if len(shape) != 4:
            x = insert_part(rewriter, op, "image", Reshape, x, shape=(*shape[:2], 1, prod(shape[2:])))
        weight = np.ascontiguousarray(scale).reshape(shape[1], 1, 1, 1)
        kernel = insert_weight(self.graph, rewriter, f"{result_names(op)[0]}/weight", weight)
        conv = Conv.make(
            x,
            kernel,
            op.bias,
            strides=(1, 1),
            pads=(0, 0, 0, 0),
            dilations=(1, 1),
            group=shape[1],
            relu=op.relu,
            relu_limit=op.relu_limit,
        )
        if len(shape) == 4:
            replace(rewriter, op, conv)
            return
        conv.location = derived_location(op, "2d")
        replace(rewriter, op, Reshape.make(insert(rewriter, conv).y, shape=shape))


@register_pass
@dataclass(frozen=True)
class ScaleToConv(Pass):
    """A per-channel scale is a depthwise convolution."""

    name: ClassVar[str] = "scale-to-conv"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(graph, [AsConvolution(graph)])
