"""What the scheduler asks of a layer that computes, and the rules that make such layers of ops.

A layer computes rows of its result from rows of its operands, all of them in local memory. The scheduler has it compute all rows
at once from tensors that are there whole, or some at a time from parts that it loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.ir import Graph, Value, shape_of
from npuc.ir.dtypes import quant_of
from npuc.program.bm1684x.commands import LANES
from npuc.registries import Registry
from npuc.schedule.bm1684x.layout import (
    LaneRecord,
    LocalTensor,
    Rows,
    Shape,
    aligned,
    canonical,
    dense_strides,
    lane_bytes,
)
from npuc.schedule.bm1684x.work import Builder
from npuc.schedule.rules import NotHere

ACCUMULATORS = 32 * 1024
"""Bytes of a lane for sums, as far as one row of channels does not need more."""


@dataclass(frozen=True)
class TileOperand:
    """An operand of a layer."""

    value: Value
    shape: Shape
    ddr_strides: Shape | None = None
    """Elements between neighbours in DDR, where they are not those of a dense tensor of this shape; such an operand is not kept
    in local memory."""
    spread: bool = False
    """One channel that every lane needs."""


@dataclass(frozen=True)
class ChipLayer:
    """A layer that computes rows of its result."""

    operands: tuple[TileOperand, ...]
    result: TileOperand
    records: tuple[LaneRecord, ...] = field(default=(), kw_only=True)
    """Constants, in parts that can be loaded one by one."""
    granule: int = field(default=1, kw_only=True)
    """Tiles have multiples of so many rows."""
    banks: bool = field(default=False, kw_only=True)
    """Whether its commands take longer if their operands, constants and result share banks."""

    def operand_rows(self, index: int, rows: Rows) -> Rows:
        """The rows of an operand that some rows of the result need: the same, or its only one."""
        return rows if self.operands[index].shape[2] > 1 else (0, 1)

    def scratch(self, rows: int) -> int:
        """Bytes of each lane for so many rows of the result."""
        return 0

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """The commands of a tile."""
        raise NotImplementedError

    def tile_shape(self, rows: int) -> Shape:
        """That of some rows of the result."""
        n, c, _, w = self.result.shape
        return n, c, rows, w

    def operand_shape(self, index: int, rows: Rows) -> Shape:
        """That of the rows of an operand that rows of the result need."""
        n, c, _, w = self.operands[index].shape
        low, high = self.operand_rows(index, rows)
        if self.operands[index].spread:
            c = min(self.result.shape[1], LANES)
        return n, c, high - low, w


@dataclass(frozen=True)
class ChipTile:
    """Where the parts of a tile are."""

    rows: Rows
    inputs: tuple[LocalTensor, ...]
    given: tuple[Rows, ...]
    """The rows that each of them holds: those that the tile needs, or more."""
    output: LocalTensor
    scratch: int
    record: Callable[[int], int]
    """Makes sure that a part of the constants is in local memory, and says where."""


Rule = Callable[[Any, Graph], ChipLayer]
RULES: Registry[type, Rule] = Registry(
    "commands of the BM1684X for the op",
    provider=tuple(
        f"npuc.schedule.bm1684x.{name}"
        for name in ("linear", "elementwise", "pooling", "reductions", "resize", "softmax", "bilinear")
    ),
)
"""Op class to its rule."""
chip_rule = RULES.register
"""Register the rule that makes layers of op classes."""


def operand(value: Value, shape: Sequence[int] | None = None) -> TileOperand:
    """An operand or result as four axes; a shape with more axes than the value has broadcasts it."""
    kind = quant_of(value)
    if kind is None or kind.dtype.name != "i8":
        raise NotHere("the commands of the BM1684X that npuc uses compute with int8")
    return TileOperand(value, canonical(shape_of(value) if shape is None else shape))


def viewed(value: Value, shape: Shape) -> TileOperand:
    """An operand or result as axes that it may have in DDR only."""
    return replace(
        operand(value), shape=shape, ddr_strides=None if canonical(shape_of(value)) == shape else dense_strides(shape)
    )  # fmt: skip


def zero_point(value: Value) -> int:
    """That of a value."""
    kind = quant_of(value)
    assert kind is not None
    return kind.zero_point


def row_chunk(plane: int, c: int) -> int:
    """Rows of channels whose 32-bit sums, of so many bytes each, fit the accumulators; one at the least."""
    return max(1, min(ceil_div(c, LANES), ACCUMULATORS // aligned(plane)))


def requantization_bytes(multiplier: Array, shift: Array, zero: int, channels: int) -> Array:
    """The table of a requantization by channel: multiplier, shift to the left, zero point."""
    table = np.zeros((channels, 3), "<i4")
    table[:, 0], table[:, 1], table[:, 2] = multiplier.reshape(-1), -shift.reshape(-1), zero
    return table.view(np.uint8)


def lane_need(layer: ChipLayer, rows: int, height: int) -> int:
    """Bytes of each lane for tiles of so many rows, two of which are there at a time."""
    span = (0, rows)
    if layer.operands and height > rows:
        middle = min(max(0, height // 2), height - rows)
        span = (middle, middle + rows)
    inputs = sum(lane_bytes(layer.operand_shape(i, span)) for i in range(len(layer.operands)))
    outputs = lane_bytes(layer.tile_shape(rows))
    copies = 2 if rows < height else 1
    return copies * (inputs + outputs) + aligned(layer.scratch(rows))
