"""Convolution, transposed convolution and products with a constant: the matrix engine."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.arrays import ceil_div
from npuc.ir import Graph, npu
from npuc.ir.dtypes import quant_of
from npuc.program.instructions import Sizes, Window
from npuc.schedule.layers import InstructionTemplate, Layer, Place, Rows, Tile, aligned
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import (
    batch_rows,
    is_natural,
    pictures_of,
    result,
    source,
    turned,
    window_rows,
)
from npuc.schedule.rules.products import matrices
from npuc.schedule.rules.weights import PIXEL, Linear


@layers_as(npu.Conv, npu.Deconv)
def convolution(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Rows and output channels at will; a grouped one in whole groups."""
    x, y = tensor(op.x), tensor(op.y)
    if len(x.shape) != 4:
        raise NotHere("it is not a convolution of pictures")
    weight = graph.constant(op.weight)
    if weight is None:
        raise NotHere("its weights are computed at run time")
    transposed = isinstance(op, npu.Deconv)
    groups = op.group
    if transposed:
        i, o, *kernel = weight.shape
        weight = (
            weight.reshape(groups, i // groups, o, *kernel)
            .swapaxes(1, 2)
            .reshape(groups * o, i // groups, *kernel)
        )
    out_c, _, kh, kw = weight.shape
    (sh, sw), (dh, dw), (top, left) = op.strides, op.dilations, op.pads[:2]
    linear = Linear(op, graph, np.ascontiguousarray(weight))
    height, width, out_h = x.shape[2], x.shape[3], y.shape[2]

    def of_picture(rows: Rows) -> Rows:
        if not transposed:
            return window_rows(rows, height, kh, sh, dh, top)
        low = max(ceil_div(rows[0] + top - (kh - 1) * dh, sh), 0)
        high = min((rows[1] - 1 + top) // sh + 1, height)
        low, high = min(low, height - 1), max(high, 1)
        return low, max(high, low + 1)

    def need(rows: Rows) -> tuple[Rows, ...]:
        return (batch_rows(rows, out_h, height, of_picture),)

    def templates(tile: Tile) -> list[InstructionTemplate]:
        return [one(tile, *part) for part in pictures_of(tile.rows, out_h)]

    def one(tile: Tile, picture: int, n: int, rows: Rows) -> InstructionTemplate:
        (r0, r1), i0 = rows, tile.inputs[0][0]
        c0, c1 = tile.channels if groups == 1 else (0, out_c)
        a0, a1 = (0, height) if n > 1 else of_picture(rows)
        pad = top + r0 - a0 * sh if transposed else top + a0 - r0 * sh
        start = (picture * height + a0 - i0) * x.row_size
        offset = (picture * out_h + r0 - tile.output[0]) * y.row_size + c0 * y.itemsize
        rows_out = r1 - r0
        end = offset + (n * rows_out * y.shape[3] - 1) * y.shape[1] * y.itemsize + (c1 - c0) * y.itemsize
        places, size = linear.places((c0, c1))
        conv = linear.conv(
            source(x, offset=start),
            Sizes(n, a1 - a0, width, x.shape[1], rows_out, y.shape[3]),
            Window((kh, kw), (sh, sw), (dh, dw), (pad, left)),
            places,
            c1 - c0,
            result(y, offset),
            y.shape[1],
            groups,
            transposed,
        )
        reads = ("in0", start, start + n * (a1 - a0) * x.row_size), ("const", 0, size)
        return InstructionTemplate(conv, reads, (("out0", offset, end),))

    return Layer(
        name=y.name,
        kind="deconv" if transposed else "conv",
        inputs=(x,),
        outputs=(y,),
        templates=templates,
        need=need if x.rows > 1 and y.rows > 1 else None,
        channels=out_c if groups == 1 else 0,
        constants=linear.constants,
        constant_size=linear.size,
        source=op,
    )


@layers_as(npu.MatMul)
def product(op: npu.MatMul, graph: Graph, tensor: Tensors) -> Layer:
    """With one constant matrix a 1 x 1 convolution over rows; otherwise a product of two batches of matrices."""
    weight = graph.constant(op.weight)
    several = weight is not None and prod(weight.shape[:-2]) != 1
    if several and quant_of(op.weight) is None:
        raise NotHere("each matrix of a batch has constant weights of its own")
    if weight is None or several or graph.constant(op.x) is not None:
        return matrices(op, graph, tensor)
    x, y = tensor(op.x), tensor(op.y)
    matrix = weight.reshape(weight.shape[-2:])
    linear = Linear(op, graph, np.ascontiguousarray(matrix if op.transpose_b else matrix.T)[:, :, None, None])
    inputs, columns = x.shape[-1], y.shape[-1]
    count = prod(x.shape[:-1])

    def conv(
        rows: int, channels: Rows, start: int, offset: int, from_: str = "in0", to: str = "out0"
    ) -> InstructionTemplate:
        c0, c1 = channels
        offset += c0 * y.itemsize
        places, size = linear.places((c0, c1))
        made = linear.conv(
            source(x, from_, start),
            Sizes(1, rows, 1, inputs, rows, 1),
            PIXEL,
            places,
            c1 - c0,
            result(y, offset, to),
            columns,
        )
        end = offset + ((rows - 1) * columns + c1 - c0) * y.itemsize
        reads = ((from_, start, start + rows * inputs * x.itemsize), ("const", 0, size))
        return InstructionTemplate(made, reads, ((to, offset, end),))

    def layer(templates: Any, **more: Any) -> Layer:
        usual = {"kind": "matmul", "constants": linear.constants, "constant_size": linear.size}
        return Layer(
            name=y.name, inputs=(x,), outputs=(y,), templates=templates, source=op, **{**usual, **more}
        )

    if is_natural(x) and is_natural(y) and x.rows == y.rows:
        each = count // x.rows

        def templates(tile: Tile) -> list[InstructionTemplate]:
            r0, r1 = tile.rows
            start = (r0 - tile.inputs[0][0]) * x.row_size
            return [conv((r1 - r0) * each, tile.channels, start, (r0 - tile.output[0]) * y.row_size)]

        summed = (
            layer(linear.sum_templates(x, y), **linear.sums()) if count == 1 and not linear.wide else None
        )
        return layer(
            templates, need=(lambda rows: (rows,)) if x.rows > 1 else None, channels=columns, by_inputs=summed
        )

    # The products of a row of a picture are those of its channels: each row is turned on its own.
    order = (0, 2, 1, 3)
    cuts = x.is_picture and y.is_picture and x.rows > 1

    def scratch(rows: Rows) -> int:
        part = rows[1] - rows[0]
        return aligned(part * x.row_size) + aligned(part * y.row_size)

    def row_by_row(tile: Tile) -> list[InstructionTemplate]:
        (r0, r1), i0 = tile.rows, tile.inputs[0][0]
        part = r1 - r0
        half = aligned(part * x.row_size)
        rows = part if cuts else None
        start, offset = (r0 - i0) * x.row_size, (r0 - tile.output[0]) * y.row_size
        return [
            turned(x, order, Place("in0", start), Place("scratch"), rows),
            conv(count * part // x.rows, (0, columns), 0, half, "scratch", "scratch"),
            turned(y, order, Place("scratch", half), Place("out0", offset), rows, back=True),
        ]

    return layer(row_by_row, need=(lambda rows: (rows,)) if cuts else None, scratch=scratch)
