"""Block floating point: packing rows is the vector engine's, products of packed operands are the matrix engine's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from npuc.ir import Graph, npu
from npuc.program.instructions import Cast, Conv, Window
from npuc.schedule.constants import Constants
from npuc.schedule.layers import InstructionTemplate, Layer, LayerOp, Rows, Tensor, Tile
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import DTYPES, float_output_of, is_natural, result, source
from npuc.schedule.rules.linear import ConvOp, FullyConnectedOp
from npuc.schedule.rules.weights import Weights


@dataclass(frozen=True)
class PackOp(LayerOp):
    """Rows of floats as packed blocks."""

    x: Tensor
    y: Tensor
    width: int
    """Numbers of a row."""
    format: str

    @cached_property
    def by_rows(self) -> bool:
        """Where there are several."""
        return self.x.rows == self.y.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows."""
        return (rows,)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One instruction."""
        x, y, cuts = self.x, self.y, self.by_rows
        r0, r1 = tile.rows if cuts else (0, 1)
        start = (r0 - tile.inputs[0][0]) * x.row_size if cuts else 0
        offset = (r0 - tile.output[0]) * y.row_size if cuts else 0
        read, written = ((r1 - r0) * x.row_size, (r1 - r0) * y.row_size) if cuts else (x.size, y.size)
        cast = Cast(
            source=source(x, offset=start),
            elements=read // x.itemsize,
            result=replace(result(y, offset), y_dtype=DTYPES[self.format]),
            scale=0,
            rounding=0,
            zero_point=0,
            lo=self.width,
            hi=0,
        )
        spans = ("in0", start, start + read), ("out0", offset, offset + written)
        return [InstructionTemplate(cast, (spans[0],), (spans[1],))]


@layers_as(npu.BlockPack)
def pack(op: npu.BlockPack, graph: Graph, tensor: Tensors) -> Layer:
    """Along the axis that is innermost in memory."""
    x, y = tensor(op.x), tensor(op.y)
    if op.axis != x.order[-1] and not is_natural(x):
        raise NotHere("blocks lie along an axis that is not innermost in memory")
    return Layer(y.name, "block_pack", (x,), (y,), PackOp(x, y, x.shape[op.axis], op.format), source=op)


def _packed(template: InstructionTemplate, inputs: int, code: int) -> InstructionTemplate:
    """The product of an instruction whose operands are bytes, as one of the numbers that they hold."""
    conv = template.instruction
    assert isinstance(conv, Conv)
    numbers = replace(
        conv,
        source=replace(conv.source, x_dtype=code),
        sizes=replace(conv.sizes, c=inputs),
        w_dtype=code,
    )
    return InstructionTemplate(numbers, template.reads, template.writes)


@dataclass(frozen=True)
class BlockConvOp(ConvOp):
    """A convolution of packed images."""

    inputs: int = 0
    code: int = 0

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """Those of the bytes, which lie as channels do."""
        return [_packed(template, self.inputs, self.code) for template in super().templates(tile)]


@dataclass(frozen=True)
class BlockFullyConnectedOp(FullyConnectedOp):
    """A product of packed rows."""

    inputs: int = 0
    code: int = 0

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """Those of the bytes, which lie as elements of rows do."""
        return [_packed(template, self.inputs, self.code) for template in super().templates(tile)]


def _weights(op: Any, graph: Graph) -> Weights:
    weight, bias = graph.constant(op.weight), graph.constant(op.bias)
    assert weight is not None
    biases = {} if bias is None else {"bias": bias.astype("<f4")}
    arrays = Constants({"weight": np.ascontiguousarray(weight), **biases})
    return Weights(arrays, 0, False, float_output_of(op), op.format)


@layers_as(npu.BlockConv)
def convolution(op: npu.BlockConv, graph: Graph, tensor: Tensors) -> Layer:
    """Rows and output channels at will."""
    x, y, weights = tensor(op.x), tensor(op.y), _weights(op, graph)
    out_c, *kernel, _ = weights.arrays["weight"].shape
    window = Window(tuple(kernel), tuple(op.strides), tuple(op.dilations), tuple(op.pads[:2]))
    computed = BlockConvOp(x, y, weights, window, inputs=op.inputs, code=DTYPES[op.format])
    return Layer(y.name, "conv", (x,), (y,), computed, channels=out_c, source=op)


@layers_as(npu.BlockMatMul)
def product(op: npu.BlockMatMul, graph: Graph, tensor: Tensors) -> Layer:
    """A fully connected layer over rows that lie one behind the other."""
    x, y = tensor(op.x), tensor(op.y)
    if not (is_natural(x) and is_natural(y) and x.rows == y.rows):
        raise NotHere("its rows do not lie one behind the other in memory")
    computed = BlockFullyConnectedOp(x, y, _weights(op, graph), inputs=op.inputs, code=DTYPES[op.format])
    return Layer(y.name, "matmul", (x,), (y,), computed, channels=y.shape[-1], source=op)
