"""Convolution, transposed convolution and products with a constant: the matrix engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arrays import ceil_div
from npuc.ir import Graph, npu
from npuc.ir.dtypes import quant_of
from npuc.program.instructions import Sizes, Window
from npuc.schedule.constants import Constants
from npuc.schedule.layers import (
    InstructionTemplate,
    Layer,
    LayerOp,
    NotCut,
    Place,
    Region,
    Rows,
    Tensor,
    Tile,
    aligned,
)
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import (
    batch_rows,
    images_of,
    is_float,
    is_natural,
    result,
    source,
    turned,
    window_rows,
)
from npuc.schedule.rules.products import product_of_activations
from npuc.schedule.rules.weights import PIXEL, PartialSumsOp, Weights, weights_of


@dataclass(frozen=True)
class WeightedOp(LayerOp):
    """A layer with weights."""

    x: Tensor
    y: Tensor
    weights: Weights

    def constants(self, channels: Rows) -> Constants:
        """Those of some output channels."""
        return self.weights.constants(channels)

    def constant_size(self, channels: Rows) -> int:
        """Bytes of them."""
        return self.weights.places(channels)[1]

    def constant_channels(self, channels: Rows) -> Rows:
        """Each output channel has weights of its own."""
        return channels


@dataclass(frozen=True)
class ConvOp(WeightedOp):
    """A convolution of images, or a transposed one; a depthwise one has a group for each channel."""

    window: Window
    groups: int = 1
    transposed: bool = False

    @cached_property
    def by_rows(self) -> bool:
        """Where there are some to choose from."""
        return self.x.rows > 1 and self.y.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """Those that the windows of the rows cover."""
        return (batch_rows(rows, self.y.shape[2], self.x.shape[2], self._image_rows),)

    def _image_rows(self, rows: Rows) -> Rows:
        """The same for one image."""
        return self._covered(rows, 0)

    def _covered(self, span: Rows, axis: int) -> Rows:
        """The rows (axis 0) or columns (axis 1) of one image that some of the result need."""
        size, window = self.x.shape[2 + axis], self.window
        kernel, stride, dilation, pad = (
            numbers[axis] for numbers in (window.kernel, window.stride, window.dilation, window.pad)
        )
        if not self.transposed:
            return window_rows(span, size, kernel, stride, dilation, pad)
        low = max(ceil_div(span[0] + pad - (kernel - 1) * dilation, stride), 0)
        high = min((span[1] - 1 + pad) // stride + 1, size)
        low, high = min(low, size - 1), max(high, 1)
        return low, max(high, low + 1)

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """The columns that the windows cover, of all channels or of those of some groups."""
        columns = self._covered(region.columns, 1)
        if self.groups == 1:
            return (Region(columns, (0, self.x.channels)),)
        outputs, inputs = self.y.channels // self.groups, self.x.channels // self.groups
        c0, c1 = region.channels
        if c0 % outputs or c1 % outputs:
            raise NotCut(f"has groups of {outputs} output channels, and a tile would begin inside of one")
        return (Region(columns, (c0 // outputs * inputs, c1 // outputs * inputs)),)

    def part(self, region: Region) -> ConvOp:
        """With the weights of its channels, and padding only where the image ends."""
        (operand,) = self.operand_regions(region)
        top, left = self.window.pad
        first, stride = region.columns[0], self.window.stride[1]
        left += (
            first - operand.columns[0] * stride if self.transposed else operand.columns[0] - first * stride
        )
        c0, c1 = region.channels
        return replace(
            self,
            x=self.x.part(operand),
            y=self.y.part(region),
            weights=self.weights.part(region.channels),
            window=replace(self.window, pad=(top, left)),
            groups=self.groups if self.groups == 1 else (c1 - c0) // (self.y.channels // self.groups),
        )

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """An instruction for every run of whole images, and for the rows before and behind."""
        return [self._template(tile, *part) for part in images_of(tile.rows, self.y.shape[2])]

    def _template(self, tile: Tile, image: int, n: int, rows: Rows) -> InstructionTemplate:
        x, y, window = self.x, self.y, self.window
        (r0, r1), i0, height = rows, tile.inputs[0][0], x.shape[2]
        c0, c1 = tile.channels if self.groups == 1 else (0, self.weights.arrays["weight"].shape[0])
        a0, a1 = (0, height) if n > 1 else self._image_rows(rows)
        top, left = window.pad
        pad = top + r0 - a0 * window.stride[0] if self.transposed else top + a0 - r0 * window.stride[0]
        start = (image * height + a0 - i0) * x.row_size
        offset = (image * y.shape[2] + r0 - tile.output[0]) * y.row_size + c0 * y.itemsize
        rows_out = r1 - r0
        end = offset + (n * rows_out * y.shape[3] - 1) * y.shape[1] * y.itemsize + (c1 - c0) * y.itemsize
        places, size = self.weights.places((c0, c1))
        conv = self.weights.conv(
            source(x, offset=start),
            Sizes(n, a1 - a0, x.shape[3], x.shape[1], rows_out, y.shape[3]),
            Window(window.kernel, window.stride, window.dilation, (pad, left)),
            places,
            c1 - c0,
            result(y, offset),
            y.shape[1],
            self.groups,
            self.transposed,
        )
        reads = ("in0", start, start + n * (a1 - a0) * x.row_size), ("const", 0, size)
        return InstructionTemplate(conv, reads, (("out0", offset, end),))


@layers_as(npu.Conv, npu.Deconv, npu.FloatConv, npu.FloatDeconv)
def convolution(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Rows and output channels at will; a grouped one in whole groups."""
    x, y = tensor(op.x), tensor(op.y)
    if len(x.shape) != 4:
        raise NotHere("it is not a convolution of images")
    weight = graph.constant(op.weight)
    if weight is None:
        raise NotHere("its weights are computed at run time")
    transposed = isinstance(op, npu.Deconv | npu.FloatDeconv)
    groups = op.group
    if transposed:
        i, o, *kernel = weight.shape
        weight = (
            weight.reshape(groups, i // groups, o, *kernel)
            .swapaxes(1, 2)
            .reshape(groups * o, i // groups, *kernel)
        )
    out_c, _, *kernel = weight.shape
    window = Window(tuple(kernel), tuple(op.strides), tuple(op.dilations), tuple(op.pads[:2]))
    weights = weights_of(op, graph, np.ascontiguousarray(weight))
    return Layer(
        name=y.name,
        kind="deconv" if transposed else "conv",
        inputs=(x,),
        outputs=(y,),
        op=ConvOp(x, y, weights, window, groups, transposed),
        channels=out_c if groups == 1 else 0,
        source=op,
    )


@dataclass(frozen=True)
class FullyConnectedOp(WeightedOp):
    """A product with a constant matrix, whose rows lie one behind the other: a 1 x 1 convolution over them."""

    @cached_property
    def by_rows(self) -> bool:
        """Where there are several."""
        return self.x.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows."""
        return (rows,)

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """All channels of the operand."""
        if self.x.channels_last or self.y.channels_last:
            raise NotCut("is a product along the columns of images")
        return (self.x.region,)

    def part(self, region: Region) -> FullyConnectedOp:
        """With the weights of its channels."""
        return replace(self, y=self.y.part(region), weights=self.weights.part(region.channels))

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One product."""
        x, y = self.x, self.y
        r0, r1 = tile.rows
        start, offset = (r0 - tile.inputs[0][0]) * x.row_size, (r0 - tile.output[0]) * y.row_size
        return [self.product((r1 - r0) * (self.pixels // x.rows), tile.channels, start, offset)]

    @cached_property
    def pixels(self) -> int:
        """Rows of the matrix."""
        return prod(self.x.shape[:-1])

    def product(
        self, pixels: int, channels: Rows, start: int, offset: int, from_: str = "in0", to: str = "out0"
    ) -> InstructionTemplate:
        """The product of some rows of the matrix, from a byte of one slot to a byte of another."""
        x, y, (c0, c1) = self.x, self.y, channels
        inputs, columns = x.shape[-1], y.shape[-1]
        offset += c0 * y.itemsize
        places, size = self.weights.places((c0, c1))
        conv = self.weights.conv(
            source(x, from_, start),
            Sizes(1, pixels, 1, inputs, pixels, 1),
            PIXEL,
            places,
            c1 - c0,
            result(y, offset, to),
            columns,
        )
        end = offset + ((pixels - 1) * columns + c1 - c0) * y.itemsize
        reads = ((from_, start, start + pixels * inputs * x.itemsize), ("const", 0, size))
        return InstructionTemplate(conv, reads, ((to, offset, end),))


@dataclass(frozen=True)
class ReorderedFullyConnectedOp(FullyConnectedOp):
    """The same product along the columns of images, whose channels are innermost in memory: each row of an image is brought
    into the order of the matrix and back, in scratch memory."""

    @cached_property
    def by_rows(self) -> bool:
        """Each row of one image is reordered on its own."""
        return self.x.is_image and self.y.is_image and self.x.rows > 1

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """It reads its operand in another order."""
        raise NotCut("is a product along the columns of images")

    def scratch(self, rows: Rows) -> int:
        """The operand and the result in the order of the matrix."""
        part = rows[1] - rows[0]
        return aligned(part * self.x.row_size) + aligned(part * self.y.row_size)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """A product between two copies."""
        x, y, order = self.x, self.y, (0, 2, 1, 3)
        (r0, r1), i0 = tile.rows, tile.inputs[0][0]
        part = r1 - r0
        half = aligned(part * x.row_size)
        rows = part if self.by_rows else None
        start, offset = (r0 - i0) * x.row_size, (r0 - tile.output[0]) * y.row_size
        return [
            turned(x, order, Place("in0", start), Place("scratch"), rows),
            self.product(self.pixels * part // x.rows, (0, y.shape[-1]), 0, half, "scratch", "scratch"),
            turned(y, order, Place("scratch", half), Place("out0", offset), rows, back=True),
        ]


@layers_as(npu.MatMul, npu.FloatMatMul)
def product(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """With one constant matrix a fully connected layer; otherwise a product of two batches of matrices."""
    weight = graph.constant(op.weight)
    several = weight is not None and prod(weight.shape[:-2]) != 1
    if several and quant_of(op.weight) is None and not isinstance(op, npu.FloatLinear):
        raise NotHere("each matrix of a batch has constant weights of its own")
    if weight is None or several or graph.constant(op.x) is not None:
        return product_of_activations(op, graph, tensor)
    x, y = tensor(op.x), tensor(op.y)
    matrix = weight.reshape(weight.shape[-2:])
    matrix = np.ascontiguousarray(matrix if op.transpose_b else matrix.T)[:, :, None, None]
    weights = weights_of(op, graph, matrix)
    if not (is_natural(x) and is_natural(y) and x.rows == y.rows):
        return Layer(y.name, "matmul", (x,), (y,), ReorderedFullyConnectedOp(x, y, weights), source=op)
    dense = FullyConnectedOp(x, y, weights)
    by_inputs = None
    if dense.pixels == 1 and not weights.wide and not is_float(x):
        sums = PartialSumsOp(x, y, weights)
        by_inputs = Layer(
            y.name, "sums", (x,), (y,), sums, channels=sums.inputs, sums=True, sum_size=4 * sums.outputs, source=op
        )  # fmt: skip
    return Layer(y.name, "matmul", (x,), (y,), dense, channels=y.shape[-1], by_inputs=by_inputs, source=op)
