"""Convolutions and pools of volumes become those of images.

A convolution sees, for each plane of its result, as many planes of its operand as its kernel is deep. Side by side as channels
they are one image, so every sum stays one sum and is rounded once:

    conv3d(x: N,C,D,H,W, w: O,C,K,kh,kw)   →   planes = N,D',K*C,H,W: each plane with the K - 1 that follow it
                                               conv(N*D',K*C,H,W, w: O,K*C,kh,kw)

A transposed one sees, for each plane of its result, the planes of its operand that reach it, or a plane of zeros.

A pool works plane by plane, then along the depth; a pool over the whole volume is one over an image of all its elements.
It runs before quantization: integers have images only.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import SSAValue

from npuc.arrays import Array
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.names import result_names
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import AvgPool, Concat, Conv, Deconv, Gather, MaxPool, Pad, Permute, Reshape, Slice
from npuc.transform.axis_gathers import index_weight
from npuc.transform.patterns import (
    GraphPattern,
    activation_of,
    insert_part,
    insert_weight,
    is_float,
    replace,
)

_SWAPPED = (0, 2, 1, 3, 4)
"""Planes before channels, and back."""


def is_volume(op: Conv | Deconv | AvgPool | MaxPool) -> bool:
    """Whether an op works on volumes of reals."""
    return len(op.strides) == 3 and is_float(op.x)


class ConvolutionOfPlanes(GraphPattern):
    """conv(x: N,C,D,H,W) → conv(planes of x)"""

    @rewrites
    def match_and_rewrite(self, op: Conv, rewriter: PatternRewriter) -> None:
        """With constant weights."""
        weight = self.graph.constant(op.weight) if is_volume(op) else None
        if weight is None:
            return
        planes = self._planes(op, rewriter, shape_of(op.y)[2])
        kernel = np.ascontiguousarray(weight.transpose(0, 2, 1, 3, 4))
        kernel = kernel.reshape(len(kernel), shape_of(planes)[2] // op.group, *weight.shape[3:])
        _replace_by_planes(self.graph, rewriter, op, planes, kernel)

    def _planes(self, op: Conv, rewriter: PatternRewriter, depth: int) -> SSAValue:
        """For each plane of the result, the channels of all planes that it sees: N, D', K * C, H, W."""
        channels, kernel = shape_of(op.x)[1], shape_of(op.weight)[2]
        x = insert_part(rewriter, op, "turned", Permute, op.x, order=_SWAPPED)
        if op.pads[0] or op.pads[3]:
            pads = [0] * 10
            pads[1], pads[6] = op.pads[0], op.pads[3]
            x = insert_part(rewriter, op, "padded", Pad, x, pads=pads)
        shape = shape_of(x)
        visible = []
        for at in range(kernel):
            part = {
                "offset": (0, at * op.dilations[0], 0, 0, 0),
                "steps": (1, op.strides[0], 1, 1, 1),
                "shape": (shape[0], depth, *shape[2:]),
            }
            whole = part["shape"] == shape
            visible.append(x if whole else insert_part(rewriter, op, f"plane{at}", Slice, x, **part))
        return _side_by_side(self.graph, rewriter, op, visible, channels)


def _side_by_side(
    graph: Graph, rewriter: PatternRewriter, op: Conv | Deconv, visible: list[SSAValue], channels: int
) -> SSAValue:
    """The planes that each plane of a result sees as channels: N, D', K * C, H, W."""
    if len(visible) == 1:
        return visible[0]
    joined = insert_part(rewriter, op, "seen", Concat, visible, axis=2)
    if op.group == 1:
        return joined
    # The channels of a group lie together: group, plane, channel of the group.
    order = (
        np.arange(len(visible) * channels).reshape(len(visible), op.group, -1).transpose(1, 0, 2).reshape(-1)
    )
    index = index_weight(graph, rewriter, op, "grouped", order)
    return insert_part(rewriter, op, "grouped", Gather, joined, index, axis=2)


class TransposedConvolutionOfPlanes(GraphPattern):
    """deconv(x: N,C,D,H,W) → deconv(planes of x)"""

    @rewrites
    def match_and_rewrite(self, op: Deconv, rewriter: PatternRewriter) -> None:
        """With constant weights."""
        weight = self.graph.constant(op.weight) if is_volume(op) else None
        if weight is None:
            return
        _, channels, deep, _, _ = shape_of(op.x)
        turned = insert_part(rewriter, op, "turned", Permute, op.x, order=_SWAPPED)
        x = insert_part(rewriter, op, "padded", Pad, turned, pads=(0, 0, 0, 0, 0, 0, 1, 0, 0, 0))
        visible = []
        for at in range(weight.shape[2]):
            # The plane that reaches each plane of the result through this one of the kernel; the last is zeros.
            first = np.arange(shape_of(op.y)[2]) + op.pads[0] - at * op.dilations[0]
            plane, rest = np.divmod(first, op.strides[0])
            plane = np.where((rest == 0) & (plane >= 0) & (plane < deep), plane, deep)
            index = index_weight(self.graph, rewriter, op, f"plane{at}", plane)
            visible.append(insert_part(rewriter, op, f"plane{at}", Gather, x, index, axis=1))
        planes = _side_by_side(self.graph, rewriter, op, visible, channels)
        grouped = weight.reshape(op.group, channels // op.group, *weight.shape[1:])
        kernel = np.ascontiguousarray(grouped.transpose(0, 3, 1, 2, 4, 5))
        kernel = kernel.reshape(shape_of(planes)[2], *weight.shape[1:2], *weight.shape[3:])
        _replace_by_planes(self.graph, rewriter, op, planes, kernel, output_padding=op.output_padding[1:])


def _replace_by_planes(
    graph: Graph, rewriter: PatternRewriter, op: Conv | Deconv, planes: SSAValue, kernel: Array, **more: Any
) -> None:
    """Put the convolution of images in the place of one of volumes; `planes` has an image for each plane of the result."""
    n, depth, *image = shape_of(planes)
    images = insert_part(rewriter, op, "images", Reshape, planes, shape=(n * depth, *image))
    folded = insert_part(
        rewriter,
        op,
        "2d",
        type(op),
        images,
        insert_weight(graph, rewriter, f"{result_names(op)[0]}/weight", kernel, like=op.weight),
        op.bias,
        strides=op.strides[1:],
        pads=(*op.pads[1:3], *op.pads[4:]),
        dilations=op.dilations[1:],
        group=op.group,
        **more,
        **activation_of(op),
    )
    shape = (n, depth, *shape_of(folded)[1:])
    volume = insert_part(rewriter, op, "planes", Reshape, folded, shape=shape)
    replace(rewriter, op, Permute.make(volume, order=_SWAPPED))


class PoolOfPlanes(GraphPattern):
    """pool(x: N,C,D,H,W) → pool(pool(planes), depth)"""

    @rewrites
    def match_and_rewrite(self, op: AvgPool | MaxPool, rewriter: PatternRewriter) -> None:
        """The largest of the largest is the largest; the windows of all planes count alike, so a mean of means is the mean."""
        if not is_volume(op):
            return
        n, c, d, h, w = shape_of(op.x)
        depth, rows, columns = shape_of(op.y)[2:]
        if op.kernel == (d, h, w) and not any(op.pads):
            x = insert_part(rewriter, op, "image", Reshape, op.x, shape=(n, c, d, h * w))
            y = self._pool(op, rewriter, "2d", x, slice(0, 0), kernel=(d, h * w))
            replace(rewriter, op, Reshape.make(y, shape=shape_of(op.y)))
            return
        images = insert_part(rewriter, op, "images", Reshape, op.x, shape=(n * c * d, 1, h, w))
        pooled = self._pool(op, rewriter, "2d", images, slice(1, 3))
        stack = (n * c, 1, d, prod(shape_of(pooled)[2:]))
        stacked = insert_part(rewriter, op, "planes", Reshape, pooled, shape=stack)
        y = self._pool(op, rewriter, "depth", stacked, slice(0, 1))
        replace(rewriter, op, Reshape.make(y, shape=(n, c, depth, rows, columns)))

    def _pool(
        self,
        op: AvgPool | MaxPool,
        rewriter: PatternRewriter,
        what: str,
        x: SSAValue,
        axes: slice,
        **changed: Any,
    ) -> SSAValue:
        """The same pool along some of the three axes, of which a fourth of size 1 may have to stand for a missing one."""
        missing = 2 - len(op.kernel[axes])
        window: dict[str, Any] = {
            "kernel": (*op.kernel[axes], *(1,) * missing),
            "strides": (*op.strides[axes], *(1,) * missing),
            "dilations": (*op.dilations[axes], *(1,) * missing),
            "pads": (*op.pads[:3][axes], *(0,) * missing, *op.pads[3:][axes], *(0,) * missing),
            "ceil_mode": op.ceil_mode,
        }
        if isinstance(op, AvgPool):
            window["count_include_pad"] = op.count_include_pad
        return insert_part(rewriter, op, what, type(op), x, **(window | changed))


@register_pass
@dataclass(frozen=True)
class FoldDepth(Pass):
    """Convolutions and pools of volumes are those of images."""

    name: ClassVar[str] = "fold-depth"

    def run(self, graph: Graph) -> None:
        """Apply the pass."""
        apply_patterns(
            graph, [ConvolutionOfPlanes(graph), TransposedConvolutionOfPlanes(graph), PoolOfPlanes(graph)]
        )
