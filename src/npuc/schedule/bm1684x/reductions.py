"""Sums, means and maxima over axes: windows as large as the axis, or a convolution by ones where channels are summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc.ir import Graph, npu, shape_of, top
from npuc.schedule.bm1684x.chip_ops import ChipLayer, TileOperand, chip_rule, operand, viewed, zero_point
from npuc.schedule.bm1684x.layout import Shape, own_axes
from npuc.schedule.bm1684x.linear import ChipWindow, OutputNumbers, conv_layer
from npuc.schedule.bm1684x.movement import axis_place
from npuc.schedule.bm1684x.pooling import ChipAvgPool, ChipMaxPool
from npuc.schedule.rules import NotHere
from npuc.schedule.rules.common import requantization_of

_CHANNELS = 1


def _operands(op: Any) -> tuple[TileOperand, TileOperand, ChipWindow, bool]:
    """Operand, result, the window that is reduced, and whether channels are, too."""
    x, rank = operand(op.x), len(shape_of(op.x))
    if rank > 4:
        raise NotHere(f"npuc reduces tensors of up to four axes on the BM1684X, and this has {rank}")
    places = {axis_place(axis % rank, rank) for axis in op.axes}
    axes = own_axes(shape_of(op.x))
    if _CHANNELS in places:  # rows that share lanes go to lanes of their own
        x = viewed(op.x, axes)
    if 0 in places and x.shape[0] > 1:
        raise NotHere("it reduces images to one, which lie in the same lanes")
    reduced = _reduced(x.shape, sorted(places))
    if own_axes(shape_of(op.y))[:2] != _reduced(axes, sorted(places))[:2]:
        raise NotHere("its result has other channels than its operand, and so lies in other lanes")
    kernel = (x.shape[2] if 2 in places else 1, x.shape[3] if 3 in places else 1)
    window = ChipWindow(kernel, (1, 1), (1, 1), (0, 0))
    window.check(x.shape, reduced)
    return x, viewed(op.y, reduced), window, _CHANNELS in places


def _reduced(shape: Shape, places: Sequence[int]) -> Shape:
    n, c, h, w = (1 if place in places else size for place, size in enumerate(shape))
    return n, c, h, w


@chip_rule(npu.ReduceSum)
def total(op: Any, graph: Graph) -> ChipLayer:
    """A sum or a mean; the multiplier tells which."""
    x, y, window, channels = _operands(op)
    count = window.kernel[0] * window.kernel[1] * (x.shape[1] if channels else 1)
    if 255 * count >= 2**31:
        raise NotHere(f"sums of {count:,} elements may leave 32 bits")
    stage, zero = OutputNumbers.of(requantization_of(op)), zero_point(op.x)
    if not channels:
        return ChipAvgPool((x,), y, window, stage, zero)
    ones = np.ones((1, x.shape[1], *window.kernel), np.int8)
    return conv_layer(x, y, ones, np.array([-zero * count]), window, False, stage, zero)


@chip_rule(top.Reduce)
def greatest(op: Any, graph: Graph) -> ChipLayer:
    """The greatest element of each channel."""
    x, y, window, channels = _operands(op)
    if op.kind != "max" or channels:
        raise NotHere("npuc has commands of the BM1684X for the greatest element along height and width only")
    return ChipMaxPool((x,), y, window)
