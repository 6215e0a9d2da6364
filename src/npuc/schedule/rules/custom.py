"""A custom instruction as a layer: dense operands, cut by rows where the result has the rows of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value
from npuc.program.instruction import Address
from npuc.program.instructions import Custom
from npuc.program.isa import KERNEL_NAME, KERNEL_PARAMETERS
from npuc.schedule.constants import NO_CONSTANTS, Constants
from npuc.schedule.layers import InstructionTemplate, Layer, LayerOp, Place, Rows, Tensor, Tile
from npuc.schedule.rules import NotHere, Tensors
from npuc.schedule.rules.common import ABSENT, constant


@dataclass(frozen=True)
class CustomOp(LayerOp):
    """A kernel of one or two operands."""

    inputs: tuple[Tensor, ...]
    y: Tensor
    kernel: str
    parameters: tuple[int, ...]
    data: Constants
    """`constants`, bytes that the kernel is given, if there are any."""
    work: float
    """Cycles that a lane of the vector engine takes for an element of the result."""
    independent_rows: bool
    """Whether the kernel may be given any rows of operands that all have the shape of the result."""

    @cached_property
    def by_rows(self) -> bool:
        """Where the kernel allows it and the shapes are the same."""
        alike = all(tensor.shape == self.y.shape for tensor in self.inputs)
        return self.independent_rows and self.y.rows > 1 and alike

    @property
    def shared_constants(self) -> Constants:
        """The bytes that the kernel is given."""
        return self.data

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows of each."""
        return (rows,) * len(self.inputs)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One instruction."""
        y, block = self.y, self.data
        r0, r1 = tile.rows if self.by_rows else (0, 1)
        offset, length = 0, y.size
        if self.by_rows:
            offset, length = (r0 - tile.output[0]) * y.row_size, (r1 - r0) * y.row_size
        reads: list[tuple[str, int, int]] = [("const", 0, block.size)] if block.size else []
        operands: list[tuple[Address, int]] = []
        for index, tensor in enumerate(self.inputs):
            start = (r0 - tile.inputs[index][0]) * tensor.row_size if self.by_rows else 0
            part = (r1 - r0) * tensor.row_size if self.by_rows else tensor.size
            operands.append((Place(f"in{index}", start), part))
            reads.append((f"in{index}", start, start + part))
        (x, x_bytes), (b, b_bytes) = operands if len(operands) == 2 else (*operands, (ABSENT, 0))
        instruction = Custom(
            kernel=tuple(self.kernel.encode().ljust(KERNEL_NAME, b"\0")),
            x=x,
            x_bytes=x_bytes,
            b=b,
            b_bytes=b_bytes,
            constants=constant(block.places, "constants"),
            constant_bytes=block["constants"].size if block else 0,
            y=Place("out0", offset),
            y_bytes=length,
            work=ceil(self.work * (length // y.itemsize)),
            parameters=(*self.parameters, *(0,) * (KERNEL_PARAMETERS - len(self.parameters))),
            bytes=min(tensor.itemsize for tensor in (*self.inputs, y)),
        )
        return [InstructionTemplate(instruction, tuple(reads), (("out0", offset, offset + length),))]


def custom_layer(
    op: Any,
    graph: Graph,
    tensor: Tensors,
    *,
    kernel: str,
    operands: Sequence[Value],
    result: Value,
    parameters: Sequence[int] = (),
    constants: Array | None = None,
    work: float = 1,
    by_row: bool = False,
) -> Layer:
    """The layer of an op that one kernel computes of one or two operands.

    `work` counts the cycles that a lane of the vector engine takes for an element of the result. With `by_row`, the kernel may
    be given any rows of operands that all have the shape of the result.
    """
    if not 1 <= len(operands) <= 2 or len(parameters) > KERNEL_PARAMETERS:
        raise NotHere("a custom instruction has one or two operands and up to 16 parameters")
    if any(graph.constant(value) is not None for value in operands):
        raise NotHere("an operand of its custom instruction is a constant")
    inputs, y = tuple(tensor(value) for value in operands), tensor(result)
    block = NO_CONSTANTS
    if constants is not None:
        block = Constants({"constants": np.ascontiguousarray(constants).view(np.uint8).reshape(-1)})
    computed = CustomOp(inputs, y, kernel, tuple(parameters), block, work, by_row)
    return Layer(y.name, kernel, inputs, (y,), computed, source=op)
