"""Elementwise arithmetic, tables and pools: the vector engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind, Rounding
from npuc.arithmetic.piecewise import pieces_of
from npuc.arrays import Array
from npuc.ir import Graph, npu, top
from npuc.program.instruction import TypedInstruction
from npuc.program.instructions import (
    Add,
    AvgPool,
    Broadcast,
    Cast,
    Copy,
    MaxPool,
    Minmax,
    Mul,
    Requant,
    Result,
    Sizes,
    Source,
    Table,
    Window,
)
from npuc.schedule.constants import Constants
from npuc.schedule.layers import (
    InstructionTemplate,
    Layer,
    LayerOp,
    NotCut,
    Place,
    Region,
    Rows,
    Tensor,
    Tile,
)
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import (
    DTYPES,
    LIMITS,
    FloatOutput,
    OutputStage,
    Requantization,
    batch_rows,
    constant,
    float_bits,
    float_output_of,
    images_of,
    requantization_of,
    result,
    second,
    source,
    window_columns,
    window_from,
    window_rows,
)


@dataclass(frozen=True)
class BinaryOp(LayerOp):
    """Elementwise arithmetic of two operands, which are broadcast by strides."""

    a: Tensor
    b: Tensor
    y: Tensor
    constant_operands: Constants
    """`a` or `b`, if it is a constant."""
    constant_offset: int = field(default=0, kw_only=True, repr=False)
    """Bytes of a constant operand before the first one that is read: a part of a layer has its constant as a whole."""

    def instruction(self, a: Place, b: Place, broadcast: Broadcast, y: Result) -> TypedInstruction:
        """The instruction of a tile."""
        raise NotImplementedError

    @property
    def shared_constants(self) -> Constants:
        """A constant operand."""
        return self.constant_operands

    @cached_property
    def operands(self) -> tuple[tuple[str, Tensor], ...]:
        """Both operands, each with its slot or, of a constant, its name."""
        second = "in1" if not self.constant_operands else "in0"
        slots = {"a": "in0", "b": second, **{name: name for name in self.constant_operands}}
        return (slots["a"], self.a), (slots["b"], self.b)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The operands that are no constants."""
        return tuple(tensor for slot, tensor in self.operands if slot not in self.constant_operands)

    @cached_property
    def strides(self) -> list[list[int]]:
        """Those of both operands along the axes of the result in memory order."""
        return [_view(tensor, self.y) for _, tensor in self.operands]

    @cached_property
    def by_rows(self) -> bool:
        """Where each operand has the rows of the result, or one row for all."""
        y = self.y
        return y.rows > 1 and all(_moves(tensor, y) or _repeats(tensor, y) for _, tensor in self.operands)

    @property
    def in_place(self) -> tuple[int, ...]:
        """The operands that the result may take the place of."""
        return tuple(
            index
            for index, tensor in enumerate(self.inputs)
            if tensor.memory_shape == self.y.memory_shape and tensor.itemsize == self.y.itemsize
        )

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows, or all of an operand that is broadcast."""
        return tuple(rows if _moves(tensor, self.y) else (0, tensor.rows) for tensor in self.inputs)

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """The same columns and channels, or all of an operand that is broadcast along them."""
        regions = {slot: _broadcast_region(tensor, self.y, region) for slot, tensor in self.operands}
        for slot, tensor in self.operands:
            if slot in self.constant_operands and regions[slot] != tensor.region and not self.y.channels_last:
                raise NotCut("has a constant operand that differs along the axis of the tiles")
        return tuple(regions[slot] for slot, _ in self.operands if slot not in self.constant_operands)

    def part(self, region: Region) -> BinaryOp:
        """On parts of those operands that are not broadcast."""
        parts, offset = [], 0
        for slot, tensor in self.operands:
            needed = _broadcast_region(tensor, self.y, region)
            if slot in self.constant_operands:
                parts.append(tensor)
                offset = (needed.columns[0] * tensor.channels + needed.channels[0]) * tensor.itemsize
            else:
                parts.append(tensor.part(needed))
        return replace(self, a=parts[0], b=parts[1], y=self.y.part(region), constant_offset=offset)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One instruction."""
        y, cuts, shape = self.y, self.by_rows, self.y.memory_shape
        places, size = self.shared_constants.places, self.shared_constants.size
        r0, r1 = tile.rows if cuts else (0, 1)
        offset = (r0 - tile.output[0]) * y.row_size if cuts else 0
        if cuts and not y.channels_last:
            part: tuple[int, ...] = (r1 - r0, shape[-1])
            sizes, strides = _merged(part, [_two(tensor, y) for _, tensor in self.operands])
        else:
            part = shape
            if cuts:
                # Rows of a batch lie one behind the other; an axis of one element has no stride.
                part = (*((1, r1 - r0) if shape[1] > 1 else (r1 - r0, 1)), *shape[2:])
            sizes, strides = _merged(part, self.strides)
        broadcast = Broadcast(_four(sizes, 1), *(_four(merged, 0) for merged in strides))
        reads: list[tuple[str, int, int]] = [("const", 0, size)] if size else []
        given = []
        for slot, tensor in self.operands:
            moves = cuts and tensor.rows > 1 and _moves(tensor, y)
            if slot in self.constant_operands:
                row = r0 * tensor.row_size if moves else 0
                given.append(Place("const", places[slot] + self.constant_offset + row))
                continue
            start = (r0 - tile.inputs[int(slot[2:])][0]) * tensor.row_size if moves else 0
            given.append(Place(slot, start))
            reads.append((slot, start, start + (r1 - r0) * tensor.row_size if moves else tensor.size))
        instruction = self.instruction(given[0], given[1], broadcast, result(y, offset))
        length = prod(part) * y.itemsize
        return [InstructionTemplate(instruction, tuple(reads), (("out0", offset, offset + length),))]

    def _first(self, place: Place) -> Source:
        return Source(place, DTYPES[self.a.dtype], self.a.zero_point)


@dataclass(frozen=True)
class AddOp(BinaryOp):
    """A sum or a difference: each operand is rescaled, the sum is too."""

    kind: Kind
    subtract: bool
    left: int
    """Bits that both operands are shifted up by before."""
    multiplier: tuple[int, ...]
    """Of the operands and of the sum; under a float scale, the bits of the scales."""
    shift: tuple[int, ...]
    lo: int
    hi: int

    def instruction(self, a: Place, b: Place, broadcast: Broadcast, y: Result) -> Add:
        """The instruction of a tile."""
        return Add(
            source=self._first(a),
            second=second(self.b, b),
            broadcast=broadcast,
            result=y,
            kind=self.kind.code,
            subtract=int(self.subtract),
            left=self.left,
            multiplier=self.multiplier,
            shift=self.shift,
            zero_point=self.y.zero_point,
            lo=self.lo,
            hi=self.hi,
        )


@dataclass(frozen=True)
class FloatAddOp(BinaryOp):
    """A sum or a difference of floats."""

    subtract: bool
    output: FloatOutput

    def instruction(self, a: Place, b: Place, broadcast: Broadcast, y: Result) -> Add:
        """The instruction of a tile."""
        stage = self.output.stage({})
        return Add(
            source=self._first(a),
            second=second(self.b, b),
            broadcast=broadcast,
            result=y,
            kind=0,
            subtract=int(self.subtract),
            left=0,
            multiplier=(0, 0, 0),
            shift=(0, 0, 0),
            zero_point=0,
            lo=stage.lo,
            hi=stage.hi,
        )


@dataclass(frozen=True)
class MulOp(BinaryOp):
    """A product."""

    requantization: OutputStage

    @cached_property
    def shared_constants(self) -> Constants:
        """A constant operand, then the requantization."""
        return Constants({**self.constant_operands, **self.requantization.parameters})

    def instruction(self, a: Place, b: Place, broadcast: Broadcast, y: Result) -> Mul:
        """The instruction of a tile."""
        stage = self.requantization.stage(self.shared_constants.places)
        return Mul(self._first(a), second(self.b, b), broadcast, y, stage)


@dataclass(frozen=True)
class MinMaxOp(BinaryOp):
    """The greater of two elements, or the lesser."""

    greater: bool

    def instruction(self, a: Place, b: Place, broadcast: Broadcast, y: Result) -> Minmax:
        """The instruction of a tile."""
        low, high = LIMITS.get(self.y.dtype, (0, 0))  # floats have no limits
        return Minmax(self._first(a), b, broadcast, int(self.greater), y, low, high)


@layers_as(
    npu.Add,
    npu.Sub,
    npu.Mul,
    npu.FloatAdd,
    npu.FloatSub,
    npu.FloatMul,
    npu.FloatMax,
    npu.FloatMin,
    top.Max,
    top.Min,
)
def binary(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """A constant operand lies among the constants."""
    y = tensor(op.y)
    constants: dict[str, Array] = {}
    for name, value in (("a", op.a), ("b", op.b)):
        array = graph.constant(value)
        if array is not None:
            constants[name] = np.ascontiguousarray(array.transpose(tensor(value).order))
    tensors = tensor(op.a), tensor(op.b), y, Constants(constants)
    computed: BinaryOp
    if isinstance(op, npu.Mul):
        computed = MulOp(*tensors, requantization_of(op))
    elif isinstance(op, npu.FloatMul):
        computed = MulOp(*tensors, float_output_of(op))
    elif isinstance(op, npu.FloatAdd | npu.FloatSub):
        computed = FloatAddOp(*tensors, isinstance(op, npu.FloatSub), float_output_of(op))
    elif isinstance(op, top.Max | top.Min | npu.FloatMax | npu.FloatMin):
        computed = MinMaxOp(*tensors, isinstance(op, top.Max | npu.FloatMax))
    else:
        left, m_a, s_a, m_b, s_b, m, s = op.parameters
        scales = np.array(op.factors or (0.0, 0.0), "<f4").view("<i4").tolist()
        multiplier = (*scales, 0) if op.kind.has_scale else (m_a, m_b, m)
        subtract = isinstance(op, npu.Sub)
        computed = AddOp(*tensors, op.kind, subtract, left, multiplier, (s_a, s_b, s), op.lo, op.hi)
    if len(_merged(y.memory_shape, computed.strides)[0]) > 4:
        raise NotHere("its operands are broadcast along too many axes")
    return Layer(
        y.name, op.name.split(".")[1], computed.inputs, (y,), computed, in_place=computed.in_place, source=op
    )


def _moves(operand: Tensor, y: Tensor) -> bool:
    """Whether an operand has the rows of the result, rather than one for all."""
    if not y.channels_last:
        return operand.shape == y.shape
    return len(operand.shape) == 4 and operand.shape[0::2] == y.shape[0::2] and y.rows > 1


def _repeats(operand: Tensor, y: Tensor) -> bool:
    """Whether an operand is the same for every row."""
    if not y.channels_last:
        return prod(operand.shape[:-1]) == 1
    return len(operand.shape) < 2 or (
        operand.shape[-2] == 1 and (len(operand.shape) < 4 or operand.shape[0] == 1)
    )


def _broadcast_region(operand: Tensor, y: Tensor, region: Region) -> Region:
    """The columns and channels of an operand that some of the result need."""
    if operand.size == operand.itemsize:
        return operand.region
    if len(operand.shape) != len(y.shape) or operand.channels_last != y.channels_last:
        raise NotCut(f"has an operand '{operand.name}' of another rank")
    columns = region.columns if operand.columns == y.columns else (0, 1)
    channels = region.channels if operand.channels == y.channels else (0, 1)
    return Region(columns, channels)


def _two(operand: Tensor, y: Tensor) -> list[int]:
    """The strides of an operand along rows and elements of a row."""
    inner = 1 if operand.shape and operand.shape[-1] > 1 else 0
    return [y.shape[-1] if operand.shape == y.shape else 0, inner]


def _view(operand: Tensor, y: Tensor) -> list[int]:
    """The strides of an operand along the axes of the result in memory order, in elements."""
    rank = len(y.shape)
    dense: dict[int, int] = {}
    step = 1
    for axis in reversed(operand.order):
        dense[axis + rank - len(operand.shape)] = step if operand.shape[axis] > 1 else 0
        step *= operand.shape[axis]
    return [dense.get(axis, 0) for axis in y.order]


def _merged(shape: tuple[int, ...], views: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Axes that lie one in the other for all operands become one."""
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for axis, size in enumerate(shape):
        if size == 1 and sizes:
            continue
        fits = sizes and all(
            list_[-1] == view[axis] * size if size > 1 else True
            for list_, view in zip(strides, views, strict=True)
        )
        if fits:
            sizes[-1] *= size
            for list_, view in zip(strides, views, strict=True):
                list_[-1] = view[axis]
        else:
            sizes.append(size)
            for list_, view in zip(strides, views, strict=True):
                list_.append(view[axis])
    return sizes, strides


def _four(values: list[int], fill: int) -> tuple[int, ...]:
    return (*(fill,) * (4 - len(values)), *values)


@dataclass(frozen=True)
class UnaryOp(LayerOp):
    """A layer that works on dense elements, any rows of them at a time if shapes allow."""

    x: Tensor
    y: Tensor

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], elements: int) -> TypedInstruction:
        """The instruction of so many elements, with constants at `places`."""
        raise NotImplementedError

    @cached_property
    def by_rows(self) -> bool:
        """Where there are several."""
        return self.x.rows > 1 and self.x.shape == self.y.shape

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows."""
        return (rows,)

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """The same columns and channels."""
        if self.x.shape != self.y.shape:
            raise NotCut("reads its operand under another shape")
        return (region,)

    def part(self, region: Region) -> UnaryOp:
        """On a part of its operand."""
        return replace(self, x=self.x.part(region), y=self.y.part(region))

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One instruction."""
        x, y, cuts, block = self.x, self.y, self.by_rows, self.shared_constants
        r0, r1 = tile.rows if cuts else (0, 1)
        start = (r0 - tile.inputs[0][0]) * x.row_size if cuts else 0
        offset = (r0 - tile.output[0]) * y.row_size if cuts else 0
        elements = (r1 - r0) * (x.row_size if cuts else x.size) // x.itemsize
        instruction = self.instruction(source(x, offset=start), result(y, offset), block.places, elements)
        constants = (("const", 0, block.size),) if block.size else ()
        reads = (("in0", start, start + elements * x.itemsize), *constants)
        return [InstructionTemplate(instruction, reads, (("out0", offset, offset + elements * y.itemsize),))]


@dataclass(frozen=True)
class RequantOp(UnaryOp):
    """Another scale or type."""

    requantization: Requantization

    @property
    def shared_constants(self) -> Constants:
        """The parameters."""
        return self.requantization.parameters

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], elements: int) -> Requant:
        """The instruction of a tile."""
        return Requant(x, elements, y, self.requantization.stage(places))


@dataclass(frozen=True)
class TableOp(UnaryOp):
    """Elements looked up in a table."""

    table: Constants
    """`table`, whose entries lie in the order of the numbers that an element may be."""

    @property
    def shared_constants(self) -> Constants:
        """The table."""
        return self.table

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], elements: int) -> Table:
        """The instruction of a tile."""
        entries = self.table["table"]
        pieces = pieces_of(entries) if self.x.dtype == "f32" else 0
        segments = segments_of(entries, self.x.dtype)
        return Table(x, elements, 1, 1, constant(places, "table"), y, segments, pieces)


def segments_of(entries: Array, dtype: str) -> int:
    """The field of the instruction for a table of a type: 0 for the usual sizes.

    >>> segments_of(np.zeros(256), "i8"), segments_of(np.zeros(513), "i16"), segments_of(np.zeros(2049), "i16")
    (0, 0, 11)
    """
    usual = {"i8": 256, "ui8": 256, "i16": 513}.get(dtype, entries.size)
    return 0 if entries.size == usual else entries.size.bit_length() - 1


@dataclass(frozen=True)
class ChannelTableOp(TableOp):
    """Elements looked up in a table for each channel."""

    channels: int
    inner: int
    """Elements that lie one after the other and have the same channel."""

    @cached_property
    def by_rows(self) -> bool:
        """Of ranks 3 and 5 a row has a channel of its own."""
        rank = len(self.x.shape)
        return super().by_rows and rank != 3 and rank < 5

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """The same columns of all channels."""
        if region.channels != self.y.region.channels:
            raise NotCut("has a table for each channel")
        return super().operand_regions(region)

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], elements: int) -> Table:
        """The instruction of a tile."""
        count = elements // (self.channels * self.inner)
        return Table(x, count, self.channels, self.inner, constant(places, "table"), y, 0, 0)


def _unary(op: Any, computed: UnaryOp) -> Layer:
    x, y = computed.x, computed.y
    in_place = (0,) if x.itemsize == y.itemsize else ()
    return Layer(y.name, op.name.removeprefix("npu."), (x,), (y,), computed, in_place=in_place, source=op)


@layers_as(npu.Requant)
def requant(op: npu.Requant, graph: Graph, tensor: Tensors) -> Layer:
    """Another scale or type."""
    return _unary(op, RequantOp(tensor(op.x), tensor(op.y), requantization_of(op)))


@dataclass(frozen=True)
class CastOp(UnaryOp):
    """Elements as another type: between floats, or between floats and integers, whose tensor has the scale."""

    rounding: Rounding = Rounding.HALF_AWAY
    """Of floats to integers."""

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], elements: int) -> Cast:
        """The instruction of a tile."""
        scale = float_bits(self.x.scale or self.y.scale)
        lo, hi = LIMITS.get(self.y.dtype, (0, 0))
        return Cast(x, elements, y, scale, self.rounding.code, self.y.zero_point, lo, hi)


@layers_as(npu.Cast, npu.Dequantize)
def cast(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Between f32, bf16 and f16, or integers as f32."""
    return _unary(op, CastOp(tensor(op.x), tensor(op.y)))


@layers_as(npu.Quantize)
def quantize(op: npu.Quantize, graph: Graph, tensor: Tensors) -> Layer:
    """f32 as integers."""
    return _unary(op, CastOp(tensor(op.x), tensor(op.y), Rounding(op.rounding)))


@layers_as(npu.Table, npu.FloatTable)
def table(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """One table."""
    entries = graph.constant(op.table)
    assert entries is not None
    return _unary(op, TableOp(tensor(op.x), tensor(op.y), Constants({"table": entries})))


@layers_as(npu.ChannelTable)
def channel_table(op: npu.ChannelTable, graph: Graph, tensor: Tensors) -> Layer:
    """A table for each channel, which is innermost in memory for rank 4."""
    entries = graph.constant(op.table)
    assert entries is not None
    x = tensor(op.x)
    inner = 1 if len(x.shape) == 4 else prod(x.shape[2:])
    return _unary(op, ChannelTableOp(x, tensor(op.y), Constants({"table": entries}), x.shape[1], inner))


@dataclass(frozen=True)
class CopyOp(LayerOp):
    """The bytes as they are."""

    x: Tensor
    y: Tensor

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One copy."""
        x, y = self.x, self.y
        copy = Copy(
            x=Place("in0"),
            y=Place("out0"),
            bytes=x.itemsize,
            size=(1, 1, 1, 1, 1, x.size // x.itemsize),
            x_stride=(0, 0, 0, 0, 0, 1),
            y_stride=(0, 0, 0, 0, 0, 1),
        )
        return [InstructionTemplate(copy, (("in0", 0, x.size),), (("out0", 0, y.size),))]


@layers_as(npu.Reinterpret)
def reinterpret(op: npu.Reinterpret, graph: Graph, tensor: Tensors) -> Layer:
    """The same bytes: a copy."""
    return copied(op, tensor(op.x), tensor(op.y))


def copied(op: Any, x: Tensor, y: Tensor) -> Layer:
    """The bytes of x as they are."""
    return Layer(y.name, "copy", (x,), (y,), CopyOp(x, y), source=op)


@dataclass(frozen=True)
class PoolOp(LayerOp):
    """Windows over rows and columns of images."""

    x: Tensor
    y: Tensor
    window: Window

    def instruction(self, x: Source, sizes: Sizes, window: Window, y: Result) -> TypedInstruction:
        """The instruction of some rows; its window is padded as those rows need."""
        raise NotImplementedError

    @cached_property
    def by_rows(self) -> bool:
        """Where there are some to choose from."""
        return self.x.rows > 1 and self.y.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """Those that the windows of the rows cover."""
        return (batch_rows(rows, self.y.shape[2], self.x.shape[2], self._image_rows),)

    def _image_rows(self, rows: Rows) -> Rows:
        """The same for one image."""
        window = self.window
        return window_rows(
            rows, self.x.shape[2], window.kernel[0], window.stride[0], window.dilation[0], window.pad[0]
        )

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """The columns that the windows cover, of the same channels."""
        return (Region(window_columns(self.window, region.columns, self.x.columns), region.channels),)

    def part(self, region: Region) -> PoolOp:
        """With padding only where the image ends."""
        (operand,) = self.operand_regions(region)
        window = window_from(self.window, region.columns, operand.columns)
        return replace(self, x=self.x.part(operand), y=self.y.part(region), window=window)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """An instruction for every run of whole images, and for the rows before and behind."""
        return [self._template(tile, *part) for part in images_of(tile.rows, self.y.shape[2])]

    def _template(self, tile: Tile, image: int, n: int, rows: Rows) -> InstructionTemplate:
        x, y, window, block = self.x, self.y, self.window, self.shared_constants
        (r0, r1), height = rows, x.shape[2]
        a0, a1 = (0, height) if n > 1 else self._image_rows(rows)
        start = (image * height + a0 - tile.inputs[0][0]) * x.row_size
        offset = (image * y.shape[2] + r0 - tile.output[0]) * y.row_size
        sizes = Sizes(n, a1 - a0, x.shape[3], x.shape[1], r1 - r0, y.shape[3])
        pad = window.pad[0] + a0 - r0 * window.stride[0], window.pad[1]
        padded = Window(window.kernel, window.stride, window.dilation, pad)
        instruction = self.instruction(source(x, offset=start), sizes, padded, result(y, offset))
        constants = (("const", 0, block.size),) if block.size else ()
        reads = (("in0", start, start + n * (a1 - a0) * x.row_size), *constants)
        end = offset + n * (r1 - r0) * y.row_size
        return InstructionTemplate(instruction, reads, (("out0", offset, end),))


@dataclass(frozen=True)
class MaxPoolOp(PoolOp):
    """The greatest element of each window."""

    def instruction(self, x: Source, sizes: Sizes, window: Window, y: Result) -> MaxPool:
        """The instruction of some rows."""
        return MaxPool(x, sizes, window, y)


@dataclass(frozen=True)
class AvgPoolOp(PoolOp):
    """The average of each window."""

    count_include_pad: bool
    padded: bool
    """Whether there is any padding."""
    requantization: OutputStage

    @property
    def shared_constants(self) -> Constants:
        """The requantization."""
        return self.requantization.parameters

    @cached_property
    def by_rows(self) -> bool:
        """With padding that counts, what is padding depends on where the image ends."""
        return super().by_rows and not (self.count_include_pad and self.padded)

    def operand_regions(self, region: Region) -> tuple[Region, ...]:
        """As of any pool, with the same exception."""
        if self.count_include_pad and self.padded and region.columns != self.y.region.columns:
            raise NotCut("counts its padding, and what is padding depends on where the image ends")
        return super().operand_regions(region)

    def instruction(self, x: Source, sizes: Sizes, window: Window, y: Result) -> AvgPool:
        """The instruction of some rows."""
        stage = self.requantization.stage(self.shared_constants.places, self.requantization.entries)
        return AvgPool(x, sizes, window, int(self.count_include_pad), y, stage)


@layers_as(npu.AvgPool, npu.FloatAvgPool, npu.FloatMaxPool, top.MaxPool)
def pool(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Windows over rows and columns."""
    x, y = tensor(op.x), tensor(op.y)
    if len(x.shape) != 4:
        raise NotHere("it is not a pool over images")
    average, floats = isinstance(op, npu.AvgPool | npu.FloatAvgPool), isinstance(op, npu.FloatAvgPool)
    dilations = (1, 1) if isinstance(op, npu.AvgPool) else tuple(op.dilations)
    window = Window(tuple(op.kernel), tuple(op.strides), dilations, tuple(op.pads[:2]))
    computed: PoolOp = MaxPoolOp(x, y, window)
    if average:
        output = float_output_of(op) if floats else requantization_of(op)
        computed = AvgPoolOp(x, y, window, bool(op.count_include_pad), any(op.pads), output)
    return Layer(y.name, "avg_pool" if average else "max_pool", (x,), (y,), computed, source=op)
