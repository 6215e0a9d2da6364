"""A custom instruction as a layer, in one of two forms.

A kernel for local memory gets dense operands there, cut by rows where the result has the rows of its operands. A kernel for
global memory gets whole tensors in DRAM. Either may have a workspace, in its memory; one for global memory also one in local
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, prod
from typing import Any, Literal, get_args

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value
from npuc.program.instruction import Address
from npuc.program.instructions import Custom, CustomGlobal, CustomLocal
from npuc.program.isa import KERNEL_NAME, KERNEL_PARAMETERS
from npuc.schedule.constants import NO_CONSTANTS, Constants
from npuc.schedule.layers import InstructionTemplate, Layer, LayerOp, Place, Rows, Tensor, Tile
from npuc.schedule.rules import NotHere, Tensors
from npuc.schedule.rules.common import ABSENT, constant

KernelMemory = Literal["local", "global"]
"""Where the operands of a kernel are."""
_LOCAL_LIMIT = 2**32
"""Local addresses and sizes have 32 bits."""


@dataclass(frozen=True)
class CustomOp(LayerOp):
    """A kernel of one or two operands."""

    inputs: tuple[Tensor, ...]
    y: Tensor
    kernel: str
    parameters: tuple[int, ...]
    data: Constants
    """`constants`, bytes that the kernel is given, if there are any; in front of them `parameters` where the instruction has no
    field for them."""
    work: float | Fraction
    """Cycles that a lane of the vector engine takes for an element of the result."""

    @property
    def shared_constants(self) -> Constants:
        """The bytes that the kernel is given."""
        return self.data

    @property
    def kernel_name(self) -> tuple[int, ...]:
        """As an instruction has it."""
        return tuple(self.kernel.encode().ljust(KERNEL_NAME, b"\0"))

    @property
    def element(self) -> int:
        """Bytes that operands and result are made of."""
        return min(tensor.itemsize for tensor in (*self.inputs, self.y))


@dataclass(frozen=True)
class LocalCustomOp(CustomOp):
    """A kernel on operands in local memory."""

    independent_rows: bool
    """Whether the kernel may be given any rows of operands that all have the shape of the result."""
    local_workspace: int = 0
    """Bytes of local memory that the kernel may use as it likes."""

    @cached_property
    def by_rows(self) -> bool:
        """Where the kernel allows it and the shapes are the same."""
        alike = all(tensor.shape == self.y.shape for tensor in self.inputs)
        return self.independent_rows and self.y.rows > 1 and alike

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows of each."""
        return (rows,) * len(self.inputs)

    def scratch(self, rows: Rows) -> int:
        """The workspace, the same for any number of rows."""
        return self.local_workspace

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
        work = ceil(self.work * (length // y.itemsize))
        result = ("out0", offset, offset + length)
        if not self.local_workspace:
            constant_bytes = block["constants"].size if block else 0
            instruction: Custom | CustomLocal = Custom(
                self.kernel_name, x, x_bytes, b, b_bytes, constant(block.places, "constants"), constant_bytes,
                Place("out0", offset), length, work, filled(self.parameters), self.element,
            )  # fmt: skip
            return [InstructionTemplate(instruction, tuple(reads), (result,))]
        instruction = CustomLocal(
            self.kernel_name, x, x_bytes, b, b_bytes, Place("const"), told_bytes(block), Place("out0", offset), length,
            Place("scratch"), self.local_workspace, work, self.element,
        )  # fmt: skip
        writes = (("scratch", 0, self.local_workspace), result)
        return [InstructionTemplate(instruction, tuple(reads), writes)]


@dataclass(frozen=True)
class GlobalCustomOp(CustomOp):
    """A kernel on whole tensors in DRAM."""

    traffic: int
    """Bytes that it moves from and to DRAM."""
    global_workspace: int = 0
    """Bytes of DRAM that it may use as it likes."""
    local_workspace: int = 0
    """The same in local memory."""

    @property
    def in_dram(self) -> bool:
        """It does."""
        return True

    @property
    def workspace(self) -> int:
        """As the plugin asks for."""
        return self.global_workspace

    def scratch(self, rows: Rows) -> int:
        """The workspace in local memory."""
        return self.local_workspace

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One instruction."""
        sizes = [tensor.size for tensor in self.inputs]
        instruction = CustomGlobal(
            kernel=self.kernel_name,
            x=Place("in0"),
            x_bytes=sizes[0],
            b=Place("in1") if len(sizes) == 2 else 0,
            b_bytes=sizes[1] if len(sizes) == 2 else 0,
            y=Place("out0"),
            y_bytes=self.y.size,
            workspace=Place("workspace") if self.global_workspace else 0,
            workspace_bytes=self.global_workspace,
            work=ceil(self.work * prod(self.y.shape)),
            traffic=self.traffic,
            constants=Place("const"),
            constant_bytes=told_bytes(self.data),
            local_workspace=Place("scratch") if self.local_workspace else ABSENT,
            local_workspace_bytes=self.local_workspace,
            x_segment=0,
            b_segment=0,
            y_segment=0,
            workspace_segment=0,
            bytes=self.element,
        )
        reads = [("const", 0, self.data.size), *((f"in{i}", 0, size) for i, size in enumerate(sizes))]
        spaces = {"scratch": self.local_workspace, "workspace": self.global_workspace}
        writes = [(slot, 0, size) for slot, size in spaces.items() if size]
        return [InstructionTemplate(instruction, tuple(reads), (*writes, ("out0", 0, self.y.size)))]


def filled(parameters: Sequence[int]) -> tuple[int, ...]:
    """The numbers that a kernel is told, as many as there always are."""
    return (*parameters, *(0,) * (KERNEL_PARAMETERS - len(parameters)))


def told_bytes(block: Constants) -> int:
    """Bytes of what a kernel is told and given, where they lie in one block."""
    return block["parameters"].nbytes + (block["constants"].size if "constants" in block else 0)


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
    work: float | Fraction = 1,
    by_row: bool = False,
    memory: KernelMemory = "local",
    workspace: int = 0,
    local_workspace: int = 0,
    traffic: int | None = None,
) -> Layer:
    """The layer of an op that one kernel computes of one or two operands.

    `work` counts the cycles that a lane of the vector engine takes for an element of the result. With `by_row`, the kernel may
    be given any rows of operands that all have the shape of the result. `memory` says where its operands are; `workspace` are
    bytes of that memory which it may use as it likes, `local_workspace` such bytes of local memory beside them. `traffic` are the
    bytes that a kernel in global memory moves; None: its operands and its result once.
    """
    if memory not in get_args(KernelMemory):
        raise ValueError(f"a kernel works in {' or '.join(get_args(KernelMemory))} memory, not in '{memory}'")
    if not 1 <= len(operands) <= 2 or len(parameters) > KERNEL_PARAMETERS:
        raise NotHere("a custom instruction has one or two operands and up to 16 parameters")
    if any(graph.constant(value) is not None for value in operands):
        raise NotHere("an operand of its custom instruction is a constant")
    in_dram = memory == "global"
    if not in_dram:
        if workspace and local_workspace:
            raise ValueError("a kernel in local memory has one workspace, which is there")
        workspace, local_workspace = 0, workspace or local_workspace
    if min(workspace, local_workspace, traffic or 0) < 0 or local_workspace >= _LOCAL_LIMIT:
        raise ValueError("a workspace or the traffic of a kernel has an impossible size")
    inputs, y = tuple(tensor(value) for value in operands), tensor(result)
    arrays: dict[str, Array] = {}
    if in_dram or local_workspace:
        arrays["parameters"] = np.array(filled(parameters), np.int32)
    if constants is not None:
        arrays["constants"] = np.ascontiguousarray(constants).view(np.uint8).reshape(-1)
    block = Constants(arrays) if arrays else NO_CONSTANTS
    shared = inputs, y, kernel, tuple(parameters), block, work
    if in_dram:
        moved = traffic if traffic is not None else sum(t.size for t in (*inputs, y))
        computed: CustomOp = GlobalCustomOp(*shared, moved, workspace, local_workspace)
    else:
        computed = LocalCustomOp(*shared, by_row, local_workspace)
    return Layer(y.name, kernel, inputs, (y,), computed, source=op)
