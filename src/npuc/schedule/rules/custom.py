"""A custom instruction as a layer: dense operands, cut by rows where the result has the rows of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value
from npuc.program.instruction import Address
from npuc.program.instructions import Custom
from npuc.program.isa import KERNEL_NAME, KERNEL_PARAMETERS
from npuc.schedule.layers import InstructionTemplate, Layer, Place, Tile, layout
from npuc.schedule.rules import NotHere, Tensors
from npuc.schedule.rules.common import ABSENT, constant


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
    blocks = (
        {} if constants is None else {"constants": np.ascontiguousarray(constants).view(np.uint8).reshape(-1)}
    )
    places, size = layout(blocks)
    cuts = by_row and y.rows > 1 and all(one.shape == y.shape for one in inputs)
    element = min(one.itemsize for one in (*inputs, y))
    name = kernel.encode().ljust(KERNEL_NAME, b"\0")

    def templates(tile: Tile) -> list[InstructionTemplate]:
        r0, r1 = tile.rows if cuts else (0, 1)
        offset, length = ((r0 - tile.output[0]) * y.row_size, (r1 - r0) * y.row_size) if cuts else (0, y.size)
        reads: list[tuple[str, int, int]] = [("const", 0, size)] if size else []
        given: list[tuple[Address, int]] = []
        for index, one in enumerate(inputs):
            start = (r0 - tile.inputs[index][0]) * one.row_size if cuts else 0
            part = (r1 - r0) * one.row_size if cuts else one.size
            given.append((Place(f"in{index}", start), part))
            reads.append((f"in{index}", start, start + part))
        (x, x_bytes), (b, b_bytes) = given if len(given) == 2 else (*given, (ABSENT, 0))
        instruction = Custom(
            kernel=tuple(name),
            x=x,
            x_bytes=x_bytes,
            b=b,
            b_bytes=b_bytes,
            constants=constant(places, "constants"),
            constant_bytes=blocks["constants"].size if blocks else 0,
            y=Place("out0", offset),
            y_bytes=length,
            work=ceil(work * (length // y.itemsize)),
            parameters=(*parameters, *(0,) * (KERNEL_PARAMETERS - len(parameters))),
            bytes=element,
        )
        return [InstructionTemplate(instruction, tuple(reads), (("out0", offset, offset + length),))]

    return Layer(
        name=y.name, kind=kernel, inputs=inputs, outputs=(y,), templates=templates,
        need=(lambda rows: (rows,) * len(inputs)) if cuts else None,
        constants=lambda channels: blocks, constant_size=lambda channels: size, source=op,
    )  # fmt: skip
