"""Products of two activations, or of one and a constant: the matrix engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.ir import Graph, npu
from npuc.program.instructions import Matmul
from npuc.schedule.constants import Constants
from npuc.schedule.layers import InstructionTemplate, Layer, LayerOp, Place, Rows, Tensor, Tile, aligned
from npuc.schedule.rules import NotHere, Tensors
from npuc.schedule.rules.common import (
    LIMITS,
    OutputStage,
    float_output_of,
    is_float,
    is_natural,
    requantization_of_operands,
    result,
    second,
    source,
    turned,
)

_NATURAL = (0, 1, 2, 3)
"""The order of matrices of rank 4 in memory."""


@dataclass(frozen=True)
class ProductOp(LayerOp):
    """The products of two batches of matrices, one of which may be constant.

    Operands whose matrices do not lie in natural order are brought into it in scratch memory.
    """

    x: Tensor
    b: Tensor
    y: Tensor
    constant_operands: Constants
    """`x` or `b`, if it is a constant."""
    requantization: OutputStage
    transpose_b: bool

    @cached_property
    def shared_constants(self) -> Constants:
        """The requantization, then a constant operand."""
        return Constants({**self.requantization.parameters, **self.constant_operands})

    @property
    def _constant_reads(self) -> tuple[tuple[str, int, int], ...]:
        """The constants, where there are some: a product of floats has no requantization."""
        size = self.shared_constants.size
        return (("const", 0, size),) if size else ()

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The operands that are no constants."""
        return tuple(
            tensor for name, tensor in (("x", self.x), ("b", self.b)) if name not in self.constant_operands
        )

    @cached_property
    def batch(self) -> int:
        """Products."""
        return prod(self.y.shape[:-2])

    @cached_property
    def steps(self) -> tuple[int, int]:
        """Elements from each matrix of an operand to the next; 0 if there is one for all."""
        x, b = (
            0 if prod(tensor.shape[:-2]) == 1 and self.batch > 1 else tensor.shape[-1] * tensor.shape[-2]
            for tensor in (self.x, self.b)
        )
        return x, b

    @cached_property
    def wide(self) -> bool:
        """Whether sums may leave 32 bits."""
        return not is_float(self.x) and self.x.shape[-1] * _largest(self.x) * _largest(self.b) >= 2**31

    @cached_property
    def natural(self) -> tuple[bool, bool, bool]:
        """Whether the first operand, the second and the result lie in natural order.

        A second operand that is a constant always does: it is read whole, and written so from the start.
        """
        return is_natural(self.x), "b" in self.constant_operands or is_natural(self.b), is_natural(self.y)

    @cached_property
    def by_rows(self) -> bool:
        """Some rows of the matrices at a time: those of an image, or of the only matrix."""
        x, y = self.x, self.y
        images = x.is_image and y.is_image
        return x.rows == y.rows == x.shape[-2] > 1 and (images or (self.batch == 1 and not y.channels_last))

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows of the first operand, and all of the second."""
        needs = (("x", rows), ("b", (0, self.b.rows)))
        return tuple(need for name, need in needs if name not in self.constant_operands)

    def _sizes(self, part: int) -> tuple[int, int]:
        """Bytes of the first operand and of the result."""
        x, y = self.x, self.y
        return (part * x.row_size, part * y.row_size) if self.by_rows else (x.size, y.size)

    def _places_in_scratch(self, part: int) -> tuple[int, int, int]:
        """Where the second operand and the result are, and the end of both; the first is at 0."""
        x_size, y_size = self._sizes(part)
        x_natural, b_natural, y_natural = self.natural
        at_b = 0 if x_natural else aligned(x_size)
        at_y = at_b + (0 if b_natural else aligned(self.b.size))
        return at_b, at_y, at_y + (0 if y_natural else aligned(y_size))

    def scratch(self, rows: Rows) -> int:
        """What is brought into natural order."""
        return self._places_in_scratch(rows[1] - rows[0])[2]

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """The product, and copies that bring operands or the result into order."""
        x, b, y = self.x, self.b, self.y
        x_natural, b_natural, y_natural = self.natural
        places = self.shared_constants.places
        x_constant = "x" in places
        (r0, r1), i0 = tile.rows, 0 if x_constant else tile.inputs[0][0]
        part = r1 - r0
        rows = part if self.by_rows else None
        offset = (r0 - tile.output[0]) * y.row_size
        from_x = ("const", places["x"]) if x_constant else ("in0", 0)
        from_x = from_x[0], from_x[1] + (r0 - i0) * x.row_size
        from_b = ("const", places["b"]) if "b" in places else (f"in{len(self.inputs) - 1}", 0)
        at_b, at_y, _ = self._places_in_scratch(part)
        first = from_x if x_natural else ("scratch", 0)
        other = from_b if b_natural else ("scratch", at_b)
        out = ("out0", offset) if y_natural else ("scratch", at_y)
        m = part if self.by_rows else x.shape[-2]
        templates = []
        if not x_natural:
            templates.append(turned(x, _NATURAL, Place(*from_x), Place(*first), rows))
        if not b_natural:
            templates.append(turned(b, _NATURAL, Place(*from_b), Place(*other)))
        product = Matmul(
            source=source(x, *first),
            second=second(b, Place(*other)),
            batch=self.batch,
            m=m,
            k=x.shape[-1],
            cols=y.shape[-1],
            a_step=self.steps[0] // x.shape[-2] * m,
            b_step=self.steps[1],
            transposed_b=int(self.transpose_b),
            wide=int(self.wide),
            result=result(y, out[1], out[0]),
            stage=self.requantization.stage(places, self.requantization.entries),
        )
        x_size, y_size = self._sizes(part)
        operands = ((first[0], first[1], first[1] + x_size), (other[0], other[1], other[1] + b.size))
        reads = (
            *(span for span in operands if span[0] != "const"),
            *self._constant_reads,
        )
        templates.append(InstructionTemplate(product, reads, ((out[0], out[1], out[1] + y_size),)))
        if not y_natural:
            templates.append(turned(y, _NATURAL, Place(*out), Place("out0", offset), rows, back=True))
        return templates


@dataclass(frozen=True)
class BatchedProductOp(ProductOp):
    """Products whose matrices lie one behind the other, all in natural order: some rows at a time, of one or of several.

    Six heads of 197 rows on four cores: the first core has the first matrix and 98 rows of the second, the next core the other
    99 rows of that and the third matrix, and so on.
    """

    @cached_property
    def by_rows(self) -> bool:
        """Rows of all matrices, counted through."""
        return True

    @property
    def height(self) -> int:
        """Rows of a matrix of the result."""
        return self.y.shape[-2]

    @cached_property
    def step(self) -> int:
        """Elements from a matrix of the second operand to the next; 0 if it has one for all."""
        each = self.b.shape[-1] * self.b.shape[-2]
        return each if self.b.size > each * self.b.itemsize else 0

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows of the first operand, and the matrices of the second that go with them."""
        b, height = self.b, self.height
        b_rows, rest = divmod(b.rows * height, self.y.rows)  # of a matrix of the second operand
        first, last = rows[0] // height, ceil_div(rows[1], height)
        of_b = (first * b_rows, last * b_rows) if self.step > 0 and not rest else (0, b.rows)
        return (rows, of_b)[: len(self.inputs)]

    def scratch(self, rows: Rows) -> int:
        """None: all is in order."""
        return 0

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """A product for the rest of one matrix, a batch for the whole ones behind it, and one for the beginning of the last."""
        (low, high), height = tile.rows, self.height
        first, last = ceil_div(low, height) * height, high // height * height
        cuts = sorted({low, *(cut for cut in (first, last) if low < cut < high), high})
        return [self._rows_of(tile, rows) for rows in pairwise(cuts)]

    def _rows_of(self, tile: Tile, rows: Rows) -> InstructionTemplate:
        """The products of some whole matrices, or of some rows of one."""
        x, b, y, height, step = self.x, self.b, self.y, self.height, self.step
        places = self.shared_constants.places
        r0, r1 = rows
        start, offset = (r0 - tile.inputs[0][0]) * x.row_size, (r0 - tile.output[0]) * y.row_size
        count, at = max((r1 - r0) // height, 1), r0 // height * step * b.itemsize
        m = (r1 - r0) // count
        slot = "in1" if len(self.inputs) > 1 else "const"
        at += -tile.inputs[1][0] * b.row_size if len(self.inputs) > 1 else places["b"]
        product = Matmul(
            source=source(x, "in0", start),
            second=second(b, Place(slot, at)),
            batch=count,
            m=m,
            k=x.shape[-1],
            cols=y.shape[-1],
            a_step=m * x.shape[-1],
            b_step=step,
            transposed_b=int(self.transpose_b),
            wide=int(self.wide),
            result=result(y, offset),
            stage=self.requantization.stage(places, self.requantization.entries),
        )
        reads = [("in0", start, start + (r1 - r0) * x.row_size), *self._constant_reads]
        if len(self.inputs) > 1:
            matrices = count if step else 1
            reads.insert(1, (slot, at, at + matrices * b.shape[-1] * b.shape[-2] * b.itemsize))
        writes = ("out0", offset, offset + (r1 - r0) * y.row_size)
        return InstructionTemplate(product, tuple(reads), (writes,))


def product_of_activations(op: npu.MatMul | npu.FloatMatMul, graph: Graph, tensor: Tensors) -> Layer:
    """Two activations, or one and a constant, which lies among the constants."""
    x, b, y = tensor(op.x), tensor(op.weight), tensor(op.y)
    if op.bias is not None:
        raise NotHere("it is a product of two activations with a bias")
    if any(prod(operand.shape[:-2]) not in (1, prod(y.shape[:-2])) for operand in (x, b)):
        raise NotHere("its batch axes are broadcast in a way that one step cannot say")
    left, right = graph.constant(op.x), graph.constant(op.weight)
    constants: dict[str, Array] = {}
    if left is not None:
        constants["x"] = np.ascontiguousarray(left.transpose(x.order))
    if right is not None:
        constants["b"] = np.ascontiguousarray(right)
    floats = isinstance(op, npu.FloatMatMul)
    requantization = float_output_of(op) if floats else requantization_of_operands(op, graph)
    computed = ProductOp(x, b, y, Constants(constants), requantization, bool(op.transpose_b))
    matrix_rows = 1
    if (
        all(computed.natural)
        and left is None
        and x.rows == y.rows == computed.batch * y.shape[-2] > y.shape[-2]
    ):
        computed = BatchedProductOp(x, b, y, Constants(constants), requantization, bool(op.transpose_b))
        matrix_rows = y.shape[-2]
    return Layer(y.name, "product", computed.inputs, (y,), computed, matrix_rows=matrix_rows, source=op)


def _largest(tensor: Tensor) -> int:
    """The largest distance of an element from the zero point."""
    low, high = LIMITS[tensor.dtype]
    return int(max(high - tensor.zero_point, tensor.zero_point - low))
