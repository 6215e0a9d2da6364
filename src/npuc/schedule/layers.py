"""What the scheduler sees of a network: tensors in memory order, and layers that can be cut into tiles.

A tensor of rank 4 is N x H x W x C in memory, so any range of its N x H rows is a dense block, and a layer may be asked for
some rows of its result at a time. A tile of a layer (some rows, some output channels) is one or a few instruction
templates: instructions whose operands are named and have no addresses yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.program.instruction import Place, TypedInstruction

Rows = tuple[int, int]
"""A range of rows, the end excluded."""

ALIGNMENT = 16
"""Bytes that the parts of a layer's constants are aligned to."""
BLOCK = 64
"""Bytes that tensors and blocks of constants are aligned to, in local memory and in DRAM."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor that instructions read and write."""

    name: str
    shape: tuple[int, ...]
    """Logical, N x C x H x W for rank 4."""
    dtype: str
    itemsize: int
    scale: float = 0.0
    zero_point: int = 0
    view_of: Tensor | None = None
    """The tensor whose bytes it shows under another shape."""
    matrices: bool = False
    """Of rank 4, but a batch of matrices: it lies in the order of its axes, as other ranks do."""

    @cached_property
    def storage(self) -> Tensor:
        """The tensor that has the memory."""
        return self if self.view_of is None else self.view_of.storage

    @cached_property
    def channels_last(self) -> bool:
        """Whether it lies as pictures do."""
        return len(self.shape) == 4 and not self.matrices

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The axes of the shape from the outermost in memory to the innermost."""
        return (0, 2, 3, 1) if self.channels_last else tuple(range(len(self.shape)))

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The shape in memory order."""
        return tuple(self.shape[axis] for axis in self.order)

    @property
    def is_picture(self) -> bool:
        """Whether its rows are those of one picture."""
        return self.channels_last and self.shape[0] == 1

    @cached_property
    def rows(self) -> int:
        """How many rows it can be cut into: those of all pictures, or all but the last axis of what is no picture."""
        return self.shape[0] * self.shape[2] if self.channels_last else prod(self.shape[:-1])

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * self.itemsize

    @cached_property
    def row_size(self) -> int:
        """Bytes of a row."""
        return self.size // self.rows


@dataclass(frozen=True)
class InstructionTemplate:
    """An instruction whose operands are names, and the bytes of them that it touches.

    A ReLU by table of 64 bytes, from the first operand of its layer to the result:

        InstructionTemplate(
            Table(source=Source(Place("in0"), ...), ..., table=Place("const"), result=Result(Place("out0"), ...)),
            reads=(("in0", 0, 64), ("const", 0, 256)),
            writes=(("out0", 0, 64),),
        )

    The same template serves wherever memory planning puts the three objects, and on whichever core.
    """

    instruction: TypedInstruction
    """Its addresses are each a `Place`, or the one that means: not there."""
    reads: tuple[tuple[str, int, int], ...]
    """Slot, first byte, end: what it may read."""
    writes: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Tile:
    """Some rows and output channels of a layer's result, and the rows of its operands that it is given.

    A tile of a group of layers is made of one such tile of each layer, or of several where channels are cut too.
    """

    rows: Rows
    channels: Rows
    inputs: tuple[Rows, ...]
    """For each operand, the rows that its memory begins and ends with."""
    output: Rows
    """The rows that the memory of the result begins and ends with; `rows` lies inside."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A step of the network on the NPU."""

    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    templates: Callable[[Tile], Sequence[InstructionTemplate]]
    """The instructions of a tile."""
    need: Callable[[Rows], tuple[Rows, ...]] | None = None
    """The rows of the operands that some rows of the result need; None if the layer has to run whole."""
    granule: int = 1
    """Rows are asked for in multiples of this."""
    channels: int = 0
    """Output channels, if a tile may be some of them; 0 otherwise."""
    channel_step: int = 1
    """Tiles begin at multiples of this many channels."""
    constants: Callable[[Rows], Mapping[str, Array]] = field(default=lambda channels: {})
    """The constants that a tile of these channels needs, by name; they are laid out one after the other."""
    constant_size: Callable[[Rows], int] = field(default=lambda channels: 0)
    scratch: Callable[[Rows], int] = field(default=lambda rows: 0)
    """Bytes of scratch memory for some rows."""
    sums: bool = False
    """Its channels are those of its only operand: a tile adds some of them to the sums of the tiles before, from slot
    `before` to slot `after`; the last tile gives the result."""
    sum_size: int = 0
    """Bytes of such sums."""
    by_inputs: Layer | None = None
    """The same layer in that form, if there is one."""
    in_place: tuple[int, ...] = ()
    """Operands that the result may take the place of."""
    source: Any = None
    """The op."""


def aligned(size: int) -> int:
    """Bytes in whole blocks of memory."""
    return ceil_div(size, BLOCK) * BLOCK


def layout(constants: Mapping[str, Array]) -> tuple[dict[str, int], int]:
    """Where each constant lies, and the bytes of all."""
    places, at = {}, 0
    for name, array in constants.items():
        places[name] = at
        at += ceil_div(array.nbytes, ALIGNMENT) * ALIGNMENT
    return places, at


def packed(constants: Mapping[str, Array]) -> Array:
    """The bytes of constants as they are laid out."""
    places, size = layout(constants)
    made = np.zeros(size, np.uint8)
    for name, array in constants.items():
        made[places[name] : places[name] + array.nbytes] = (
            np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        )
    return made


__all__ = [
    "ALIGNMENT",
    "BLOCK",
    "InstructionTemplate",
    "Layer",
    "Place",
    "Rows",
    "Tensor",
    "Tile",
    "aligned",
    "layout",
    "packed",
]
