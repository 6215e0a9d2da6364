"""Element by element: sums, products, other scales, limits, tables.

AR commands compute with 8, 16 and 32 bits and wrap; a requantization rounds. `half_up(d_a m_a + d_b m_b, shift)` is two products
and a sum of 32 bits, which 15-bit multipliers never leave, and a requantization by 1 / 2^shift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.ir import Graph, npu, shape_of, top
from npuc.program.bm1684x.commands import LANES
from npuc.schedule.bm1684x.chip_ops import (
    ChipLayer,
    ChipTile,
    TileOperand,
    chip_rule,
    operand,
    row_chunk,
    viewed,
    zero_point,
)
from npuc.schedule.bm1684x.layout import (
    LARGEST,
    LaneRecord,
    LocalTensor,
    Shape,
    aligned,
    channel_chunks,
)
from npuc.schedule.bm1684x.linear import OutputNumbers
from npuc.schedule.bm1684x.work import (
    ADD,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    SUBTRACT,
    Builder,
    Operand,
    constant,
)
from npuc.schedule.rules import NotHere
from npuc.schedule.rules.common import requantization_of


@dataclass(frozen=True)
class Elementwise(ChipLayer):
    """Chunks of channels, one after the other."""

    words = 0
    """How many planes of 32 bits a chunk needs."""

    @property
    def broadcasts(self) -> bool:
        """Whether an operand is smaller than the result."""
        return any(entry.shape != self.result.shape for entry in self.operands)

    def _chunk(self, rows: int) -> tuple[int, int]:
        plane = aligned(rows * self.result.shape[3] * 4)
        return plane, 1 if self.broadcasts else row_chunk(plane * max(self.words, 1), self.result.shape[1])

    def scratch(self, rows: int) -> int:
        """Sums of a chunk."""
        plane, chunk = self._chunk(rows)
        return plane * chunk * self.words

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """By image and rows of channels."""
        y = tile.output
        plane, chunk = self._chunk(y.shape[2])
        room = [tile.scratch + plane * chunk * i for i in range(self.words)]
        for n in range(y.shape[0]):
            for row, count in channel_chunks(y.shape[1], chunk):
                shape = (1, count, *y.shape[2:])
                given = [
                    _view(entry, x, n, row, shape)
                    for entry, x in zip(self.operands, tile.inputs, strict=True)
                ]
                self.compute(build, given, LocalTensor(y.row(n, row), shape), room, tile)

    def compute(
        self, build: Builder, given: list[Operand], y: LocalTensor, room: list[int], tile: ChipTile
    ) -> None:
        """The commands of a chunk; `room` has the addresses of planes of 32 bits."""
        raise NotImplementedError


def _view(entry: TileOperand, x: LocalTensor, n: int, row: int, shape: Shape) -> Operand:
    """An operand of a chunk, repeated along the axes that it does not have."""
    images, channels, height, width = entry.shape
    at = x.row(n if images > 1 else 0, row if channels > 1 else 0)
    rows = (shape[1] + LANES - 1) // LANES
    if (x.shape[2], x.shape[3]) == shape[2:]:
        return Operand(at, "i8", size=rows * x.pitch)
    strides = (0, 0, x.shape[3] if height > 1 else 0, 1 if width > 1 else 0)
    return Operand(at, "i8", strides, size=x.pitch)


def _plane(address: int, shape: Shape, dtype: str) -> Operand:
    return Operand(address, dtype, size=LocalTensor(0, shape, {"i16": 2, "i32": 4}[dtype]).size)


@dataclass(frozen=True)
class ChipAdd(Elementwise):
    """A sum or difference of rescaled operands."""

    multipliers: tuple[int, int]
    shift: int
    offset: int
    """What the zero points of the operands add to the sum."""
    stage: OutputNumbers
    words = 3

    def compute(
        self, build: Builder, given: list[Operand], y: LocalTensor, room: list[int], tile: ChipTile
    ) -> None:
        """Two products, their sum, what zero points add, and a requantization."""
        first, second, total = (_plane(at, y.shape, "i32") for at in room)
        for entry, factor, plane in zip(given, self.multipliers, (first, second), strict=True):
            build.elementwise(MULTIPLY, y.shape, plane, entry, constant(factor))
        build.elementwise(ADD, y.shape, total, first, second)
        if self.offset:
            build.elementwise(ADD, y.shape, first, total, constant(self.offset))
            total = first
        sums = LocalTensor(total.address, y.shape, 4)
        build.requantize(y.shape, sums, y, "i32", (1, self.shift, self.stage.zero))
        build.clip(y, self.stage.low, self.stage.high)


def binary_operands(op: Any, graph: Graph) -> tuple[TileOperand, ...]:
    """Both operands with the axes of the result."""
    y = shape_of(op.y)
    operands = []
    for value in (op.a, op.b):
        shape = shape_of(value)
        full = (1,) * (len(y) - len(shape)) + tuple(shape)
        if len(y) > 4 and full != tuple(y):
            raise NotHere("it broadcasts a tensor of more than four axes")
        result, entry = operand(op.y).shape, operand(value, full)
        if len(y) == 3:  # rows in the lanes of the result's
            n, rows, width = full
            entry = replace(entry, shape=(n, *(result[1:3] if rows > 1 else (1, 1)), width))
        if entry.shape[1] == 1 and result[1] > 1:
            operands.append(replace(entry, spread=True))
        else:
            operands.append(viewed(value, entry.shape))
    return tuple(operands)


@chip_rule(npu.Add, npu.Sub)
def add(op: Any, graph: Graph) -> ChipLayer:
    """By one shift and two multipliers."""
    if op.kind is not Kind.SINGLE_ROUNDING:
        raise NotHere(f"the BM1684X requantizes by single_rounding, and this by {op.kind}")
    _, m_a, _, m_b, _, _, shift = op.parameters
    m_b = -m_b if isinstance(op, npu.Sub) else m_b
    offset = -(zero_point(op.a) * m_a + zero_point(op.b) * m_b)
    if 255 * (abs(m_a) + abs(m_b)) + abs(offset) >= 2**31:
        raise NotHere(
            "its multipliers have so many bits that the sum leaves the 32 bits that the BM1684X adds with"
        )
    stage = OutputNumbers(np.ones(1), np.array([shift]), op.to.zero_point, op.lo, op.hi)
    return ChipAdd(binary_operands(op, graph), operand(op.y), (m_a, m_b), shift, offset, stage)


def _centred(build: Builder, entry: Operand, zero: int, shape: Shape, at: int) -> Operand:
    """An operand less its zero point, in 16 bits; as it is if that is 0."""
    if not zero:
        return entry
    plane = _plane(at, shape, "i16")
    build.elementwise(SUBTRACT, shape, plane, entry, constant(zero, "i16"))
    return plane


@dataclass(frozen=True)
class ChipMul(Elementwise):
    """A product."""

    zeros: tuple[int, int]
    stage: OutputNumbers
    words = 3

    def compute(
        self, build: Builder, given: list[Operand], y: LocalTensor, room: list[int], tile: ChipTile
    ) -> None:
        """Operands without their zero points, the product, a requantization."""
        a, b = (
            _centred(build, entry, zero, y.shape, at)
            for entry, zero, at in zip(given, self.zeros, room, strict=False)
        )
        product = _plane(room[2], y.shape, "i32")
        build.elementwise(MULTIPLY, y.shape, product, a, b)
        numbers = self.stage.constant
        assert numbers is not None
        build.requantize(y.shape, LocalTensor(room[2], y.shape, 4), y, "i32", numbers)
        build.clip(y, self.stage.low, self.stage.high)


@chip_rule(npu.Mul)
def multiply(op: Any, graph: Graph) -> ChipLayer:
    """The product of integers is exact."""
    zeros = zero_point(op.a), zero_point(op.b)
    return ChipMul(binary_operands(op, graph), operand(op.y), zeros, OutputNumbers.of(requantization_of(op)))


@dataclass(frozen=True)
class ChipRequant(Elementwise):
    """Another scale or zero point."""

    zero: int
    stage: OutputNumbers
    words = 1

    def compute(
        self, build: Builder, given: list[Operand], y: LocalTensor, room: list[int], tile: ChipTile
    ) -> None:
        """Requantization reads 16 bits at the least."""
        (entry,) = given
        plane = _plane(room[0], y.shape, "i16")
        build.elementwise(SUBTRACT, y.shape, plane, entry, constant(self.zero, "i16"))
        numbers = self.stage.constant
        assert numbers is not None
        build.requantize(y.shape, LocalTensor(room[0], y.shape, 2), y, "i16", numbers)
        build.clip(y, self.stage.low, self.stage.high)


@chip_rule(npu.Requant)
def requant(op: Any, graph: Graph) -> ChipLayer:
    """int8 to int8."""
    stage = OutputNumbers.of(requantization_of(op))
    return ChipRequant((operand(op.x),), operand(op.y), zero_point(op.x), stage)


@dataclass(frozen=True)
class ChipChoice(Elementwise):
    """The greater or the lesser of two."""

    greater: bool

    def compute(
        self, build: Builder, given: list[Operand], y: LocalTensor, room: list[int], tile: ChipTile
    ) -> None:
        """One command."""
        target = Operand(y.address, "i8", size=y.size)
        build.elementwise(MAXIMUM if self.greater else MINIMUM, y.shape, target, given[0], given[1])


@chip_rule(top.Max, top.Min)
def choice(op: Any, graph: Graph) -> ChipLayer:
    """Of two tensors of one scale."""
    return ChipChoice(binary_operands(op, graph), operand(op.y), isinstance(op, top.Max))


@dataclass(frozen=True)
class ChipTable(ChipLayer):
    """Elements looked up in a table of 256 that every lane has."""

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """By image and row of channels; a command looks up 65,535 elements of a lane at the most."""
        (x,), y = tile.inputs, tile.output
        table = tile.record(0)
        plane = y.shape[2] * y.shape[3]
        whole = plane <= LARGEST
        for n in range(y.shape[0]):
            for row, count in channel_chunks(y.shape[1], y.lane_rows if whole else 1):
                for at, width in _pieces(plane):
                    source, target = x.row(n, row) + at, y.row(n, row) + at
                    shape = (1, count, 1, width)
                    build.look_up(LocalTensor(source, shape), LocalTensor(target, shape), table)


def _pieces(plane: int) -> Iterator[tuple[int, int]]:
    step = LARGEST // 64 * 64 if plane > LARGEST else plane
    for at in range(0, plane, step):
        yield at, min(step, plane - at)


def _bytes_of_table(entries: Array) -> Array:
    """By the byte of an element: entry 128 is that of -128."""
    return np.roll(entries.astype(np.int8), -128).view(np.uint8)


@chip_rule(npu.Table)
def table(op: Any, graph: Graph) -> ChipLayer:
    """256 entries."""
    entries = graph.constant(op.table)
    if entries is None or entries.size != 256:
        raise NotHere("the BM1684X has tables of 256 entries")
    record = LaneRecord(LANES)
    record.add("table", np.tile(_bytes_of_table(entries), (LANES, 1)), 256)
    return ChipTable((operand(op.x),), operand(op.y), records=(record,), banks=True)
