"""What the scheduler sees of a network: tensors in memory order, and layers that can be cut into tiles.

A tensor of rank 4 is N x H x W x C in memory, so any range of its N x H rows is a dense block, and a layer may be asked for
some rows of its result at a time. A tile of a layer (some rows, some output channels) is one or a few instruction
templates: instructions whose operands are named and have no addresses yet.

What a layer computes is a record, a subclass of `LayerOp`: its tensors, window, weights, requantization and so on. It prints,
compares, and answers what the scheduler asks. A code generator for another instruction set reads its fields instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from npuc.arrays import ceil_div
from npuc.program.instruction import Place, TypedInstruction
from npuc.schedule.constants import NO_CONSTANTS, Constants

Rows = tuple[int, int]
"""A range of rows, the end excluded."""


class NotCut(Exception):
    """A layer cannot be cut into tiles of columns or channels; the text says why, after its name."""


@dataclass(frozen=True)
class Region:
    """Some columns and channels of a tensor, in all of its rows."""

    columns: Rows
    channels: Rows

    def union(self, other: Region) -> Region:
        """The least region that holds both."""
        (a, b), (c, d) = self.columns, other.columns
        (e, f), (g, h) = self.channels, other.channels
        return Region((min(a, c), max(b, d)), (min(e, g), max(f, h)))


BLOCK = 64
"""Bytes that tensors and blocks of constants are aligned to, in local memory and in DRAM."""
_REMEMBERED_TILES = 1024
"""Tiles of a layer whose instructions and operands are remembered: a search asks for the same ones over and over."""


@dataclass(frozen=True, repr=False)
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

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        view = f" view of {self.view_of.name}" if self.view_of is not None else ""
        return f"<{self.name} {self.dtype}[{shape}] scale {self.scale:g} zero point {self.zero_point}{view}>"

    @cached_property
    def storage(self) -> Tensor:
        """The tensor that has the memory."""
        return self if self.view_of is None else self.view_of.storage

    @cached_property
    def channels_last(self) -> bool:
        """Whether it lies as images do."""
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
    def is_image(self) -> bool:
        """Whether its rows are those of one image."""
        return self.channels_last and self.shape[0] == 1

    @cached_property
    def rows(self) -> int:
        """How many rows it can be cut into: those of all images, or all but the last axis of any other tensor."""
        return self.shape[0] * self.shape[2] if self.channels_last else prod(self.shape[:-1])

    @cached_property
    def columns(self) -> int:
        """The width of images; a row of any other tensor is one column."""
        return self.shape[3] if self.channels_last else 1

    @cached_property
    def channels(self) -> int:
        """How many elements lie one after the other: the channels of images, the last axis of any other tensor."""
        return (self.shape[1] if self.channels_last else self.shape[-1]) if self.shape else 1

    @property
    def region(self) -> Region:
        """All columns and channels."""
        return Region((0, self.columns), (0, self.channels))

    def part(self, region: Region) -> Tensor:
        """A tensor of some columns and channels of its own."""
        if region == self.region:
            return self
        (a, b), (c, d) = region.columns, region.channels
        name = f"{self.name}[columns {a}:{b}, channels {c}:{d}]"
        shape = (
            (self.shape[0], d - c, self.shape[2], b - a) if self.channels_last else (*self.shape[:-1], d - c)
        )
        return replace(self, name=name, shape=shape)

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
    columns: Rows | None = None
    """Of a tile of some columns, which they are; the memory of operands and result then has what the tile needs, and no
    columns or channels beside."""


@dataclass(frozen=True)
class LayerOp:
    """What a layer computes: the record of its tensors and parameters, and what the scheduler asks of it.

    A subclass has the fields of its kind of layer. Equal records compute the same, with the same numbers.
    """

    @property
    def by_rows(self) -> bool:
        """Whether a tile may be some rows of the result; otherwise the layer has to run whole."""
        return False

    def templates(self, tile: Tile) -> Sequence[InstructionTemplate]:
        """The instructions of a tile."""
        raise NotImplementedError

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The rows of each operand that some rows of the result need; asked only if `by_rows`."""
        raise NotImplementedError

    @property
    def ascending(self) -> bool:
        """Whether later rows of the result need no earlier rows of an operand than those before them; asked only if `by_rows`."""
        return True

    @property
    def shared_constants(self) -> Constants:
        """The constants of a layer all of whose tiles need the same."""
        return NO_CONSTANTS

    def constants(self, channels: Rows) -> Constants:
        """The constants that a tile of these channels needs."""
        return self.shared_constants

    def constant_size(self, channels: Rows) -> int:
        """Bytes of them."""
        return self.constants(channels).size

    def scratch(self, rows: Rows) -> int:
        """Bytes of scratch memory for some rows."""
        return 0

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """The columns and channels of each operand that some of the result need; `NotCut` if it cannot be cut so."""
        raise NotCut("is of a kind that is not cut by columns or channels")

    def part(self, region: Region) -> LayerOp:
        """The same computation of some columns and channels, on parts of its operands; asked after `operand_regions`."""
        raise NotImplementedError

    def constant_channels(self, channels: Rows) -> Rows:
        """What to ask `constants` for, to get those of a part of some channels: as a rule all tiles need the same."""
        return 0, 0

    @property
    def in_dram(self) -> bool:
        """Whether its instruction works in DRAM: operands and result are whole there, and only constants and scratch memory
        are local."""
        return False

    @property
    def workspace(self) -> int:
        """Bytes of DRAM that such an instruction needs beside."""
        return 0


@dataclass(frozen=True)
class Layer:
    """A step of the network on the NPU."""

    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    op: LayerOp
    """What it computes."""
    granule: int = 1
    """Tiles have multiples of so many rows."""
    matrix_rows: int = 1
    """Of products: rows of a matrix. A layer that runs whole is cut between matrices, not through them."""
    channels: int = 0
    """Output channels, if a tile may be some of them; 0 otherwise."""
    sums: bool = False
    """Its channels are those of its only operand: a tile adds some of them to the sums of the tiles before, from slot
    `before` to slot `after`; the last tile gives the result."""
    sum_size: int = 0
    """Bytes of such sums."""
    by_inputs: Layer | None = None
    """The same layer in that form, if there is one."""
    in_place: tuple[int, ...] = ()
    """Operands that the result may take the place of."""
    source: Any = field(default=None, compare=False, repr=False)
    """The op of the program that it came from."""

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def by_rows(self) -> bool:
        """Whether a tile may be some rows of the result; otherwise the layer has to run whole."""
        return self.op.by_rows

    @cached_property
    def templates(self) -> Callable[[Tile], Sequence[InstructionTemplate]]:
        """The instructions of a tile."""
        return lru_cache(_REMEMBERED_TILES)(self.op.templates)

    @cached_property
    def operand_rows(self) -> Callable[[Rows], tuple[Rows, ...]]:
        """The rows of each operand that some rows of the result need; asked only if `by_rows`."""
        return lru_cache(_REMEMBERED_TILES)(self.op.operand_rows)

    def constants(self, channels: Rows) -> Constants:
        """The constants that a tile of these channels needs."""
        return self.op.constants(channels)

    def constant_size(self, channels: Rows) -> int:
        """Bytes of them."""
        return self.op.constant_size(channels)

    def scratch(self, rows: Rows) -> int:
        """Bytes of scratch memory for some rows."""
        return self.op.scratch(rows)


def aligned(size: int) -> int:
    """Bytes in whole blocks of memory."""
    return ceil_div(size, BLOCK) * BLOCK


__all__ = [
    "BLOCK",
    "InstructionTemplate",
    "Layer",
    "LayerOp",
    "NotCut",
    "Place",
    "Region",
    "Rows",
    "Tensor",
    "Tile",
    "aligned",
]
