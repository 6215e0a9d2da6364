"""Ops that move elements: strided copies, fills and gathers of the vector engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.ir import Graph, top
from npuc.ir.dtypes import QuantType, quant_of
from npuc.program.instructions import Copy, Fill, Gather
from npuc.schedule.constants import NO_CONSTANTS, Constants
from npuc.schedule.layers import InstructionTemplate, Layer, LayerOp, Place, Rows, Tensor, Tile, aligned
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import is_natural
from npuc.schedule.rules.elementwise import copied

Axis = tuple[int, int, int]
"""Size, stride in the source, stride in the destination, in elements."""


def copy(
    x: Tensor,
    axes: list[Axis],
    x_start: int = 0,
    y_start: int = 0,
    source: str = "in0",
    target: str = "out0",
) -> InstructionTemplate:
    """One copy of up to six axes; starts are in elements."""
    kept = [axis for axis in axes if axis[0] != 1]
    merged: list[Axis] = []
    for size, a, b in kept:
        if merged and merged[-1][1] == a * size and merged[-1][2] == b * size:
            merged[-1] = (merged[-1][0] * size, a, b)
        else:
            merged.append((size, a, b))
    if len(merged) > 6:
        raise NotHere("it moves elements along more axes than one copy can")
    merged = [(1, 0, 0)] * (6 - len(merged)) + merged
    unit = x.itemsize
    spans = []
    for index, start in ((1, x_start), (2, y_start)):
        low = start + sum(min(axis[index] * (axis[0] - 1), 0) for axis in merged)
        high = start + sum(max(axis[index] * (axis[0] - 1), 0) for axis in merged) + 1
        spans.append((low * unit, high * unit))
    instruction = Copy(
        x=Place(source, x_start * unit),
        y=Place(target, y_start * unit),
        bytes=unit,
        size=tuple(axis[0] for axis in merged),
        x_stride=tuple(axis[1] for axis in merged),
        y_stride=tuple(axis[2] for axis in merged),
    )
    return InstructionTemplate(instruction, ((source, *spans[0]),), ((target, *spans[1]),))


def memory_strides(tensor: Tensor) -> list[int]:
    """The stride of each logical axis in memory, in elements."""
    strides, step = [0] * len(tensor.shape), 1
    for axis in reversed(tensor.order):
        strides[axis] = step
        step *= tensor.shape[axis]
    return strides


def natural_strides(shape: tuple[int, ...]) -> list[int]:
    """The strides of a dense array."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    return strides


_ANY_TILE = Tile((0, 0), (0, 0), (), (0, 0))
"""For layers that run whole, whose instructions do not depend on the tile."""


@dataclass(frozen=True)
class StridedCopyOp(LayerOp):
    """Each element to its place, by strides."""

    x: Tensor
    y: Tensor
    axes: tuple[Axis, ...]
    start: int = 0
    """The first element of the operand."""

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One copy."""
        return [copy(self.x, list(self.axes), self.start)]


@dataclass(frozen=True)
class ReshapeOp(LayerOp):
    """The same elements in logical order, from images to images of another shape, through scratch memory."""

    x: Tensor
    y: Tensor

    def scratch(self, rows: Rows) -> int:
        """All elements in logical order."""
        return aligned(self.x.size)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """A copy into logical order, and one from there."""
        x, y = self.x, self.y
        there = list(zip(x.shape, memory_strides(x), natural_strides(x.shape), strict=True))
        back = list(zip(y.shape, natural_strides(y.shape), memory_strides(y), strict=True))
        return [copy(x, there, target="scratch"), copy(x, back, source="scratch")]


def _whole(op: Any, computed: StridedCopyOp | ReshapeOp) -> Layer:
    """A layer that runs whole; it is an error now, and not later, if no copy can do it."""
    computed.templates(_ANY_TILE)
    x, y = computed.x, computed.y
    return Layer(y.name, op.name.removeprefix("top."), (x,), (y,), computed, source=op)


@layers_as(top.Reshape)
def reshape(op: top.Reshape, graph: Graph, tensor: Tensors) -> Layer:
    """The same elements in logical order, which is that of memory except for rank 4."""
    x, y = tensor(op.x), tensor(op.y)
    if is_view(x, y):
        return copied(op, x, y)
    if len(x.shape) == 4 and len(y.shape) == 4:
        return _whole(op, ReshapeOp(x, y))
    assert x.size == y.size
    if len(x.shape) == 4:
        axes = zip(x.shape, memory_strides(x), natural_strides(x.shape), strict=True)
    else:
        axes = zip(y.shape, natural_strides(y.shape), memory_strides(y), strict=True)
    return _whole(op, StridedCopyOp(x, y, tuple(axes)))


def is_view(x: Tensor, y: Tensor) -> bool:
    """Whether a reshape leaves every byte where it is."""
    return is_natural(x) and is_natural(y)


@layers_as(top.Permute)
def permute(op: top.Permute, graph: Graph, tensor: Tensors) -> Layer:
    """Axes in another order."""
    x, y = tensor(op.x), tensor(op.y)
    strides = memory_strides(x)
    mine = memory_strides(y)
    axes = sorted(
        ((y.shape[i], strides[axis], mine[i]) for i, axis in enumerate(op.order)), key=lambda axis: -axis[2]
    )
    return _whole(op, StridedCopyOp(x, y, tuple(axes)))


@layers_as(top.Expand)
def expand(op: top.Expand, graph: Graph, tensor: Tensors) -> Layer:
    """Broadcast."""
    x, y = tensor(op.x), tensor(op.y)
    lead = len(y.shape) - len(x.shape)
    strides = [0] * lead + [s if n > 1 else 0 for s, n in zip(memory_strides(x), x.shape, strict=True)]
    axes = sorted(zip(y.shape, strides, memory_strides(y), strict=True), key=lambda axis: -axis[2])
    return _whole(op, StridedCopyOp(x, y, tuple(axes)))


@layers_as(top.Tile)
def tile(op: top.Tile, graph: Graph, tensor: Tensors) -> Layer:
    """Repeated."""
    x, y = tensor(op.x), tensor(op.y)
    strides, mine = memory_strides(x), memory_strides(y)
    axes: list[Axis] = []
    for axis in y.order:
        axes += [
            (op.repeats[axis], 0, mine[axis] * x.shape[axis]),
            (x.shape[axis], strides[axis], mine[axis]),
        ]
    return _whole(op, StridedCopyOp(x, y, tuple(axes)))


@dataclass(frozen=True)
class SliceOp(LayerOp):
    """Parts of the operand, each a result: where it begins along each axis, and its steps."""

    x: Tensor
    outputs: tuple[Tensor, ...]
    parts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @cached_property
    def by_rows(self) -> bool:
        """One part of an image, not upside down."""
        x, outputs, (_, steps) = self.x, self.outputs, self.parts[0]
        return len(outputs) == 1 and x.is_image and x.rows > 1 and outputs[0].rows > 1 and steps[2] > 0

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """From the first that is taken to the last."""
        offset, steps = self.parts[0]
        return ((offset[2] + rows[0] * steps[2], offset[2] + (rows[1] - 1) * steps[2] + 1),)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """A copy for each part."""
        strides = memory_strides(self.x)
        templates = []
        for index, (y, (begin, step)) in enumerate(zip(self.outputs, self.parts, strict=True)):
            mine = memory_strides(y)
            sizes, first, target = list(y.shape), list(begin), 0
            if self.by_rows:
                r0, r1 = tile.rows
                sizes[2] = r1 - r0
                first[2] += r0 * step[2] - tile.inputs[0][0]
                target = (r0 - tile.output[0]) * mine[2]
            start = sum(f * s for f, s in zip(first, strides, strict=True))
            axes = sorted(
                ((sizes[i], strides[i] * step[i], mine[i]) for i in range(len(sizes))),
                key=lambda axis: -axis[2],
            )
            templates.append(copy(self.x, axes, start, target, target=f"out{index}"))
        return templates


@layers_as(top.Slice)
def slice_(op: top.Slice, graph: Graph, tensor: Tensors) -> Layer:
    """A part, with steps."""
    x, y = tensor(op.x), tensor(op.y)
    computed = SliceOp(x, (y,), ((tuple(op.offset), tuple(op.steps)),))
    return Layer(y.name, "slice", (x,), (y,), computed, source=op)


@layers_as(top.Split)
def split(op: top.Split, graph: Graph, tensor: Tensors) -> Layer:
    """Parts side by side."""
    x = tensor(op.x)
    outputs = tuple(tensor(value) for value in op.results)
    rank, axis = len(x.shape), op.axis % len(x.shape)
    parts, start = [], 0
    for size in op.sizes:
        parts.append((tuple(start if i == axis else 0 for i in range(rank)), (1,) * rank))
        start += size
    computed = SliceOp(x, outputs, tuple(parts))
    return Layer(outputs[0].name, "split", (x,), outputs, computed, source=op)


@dataclass(frozen=True)
class ConcatOp(LayerOp):
    """Operands side by side."""

    operands: tuple[tuple[str, Tensor], ...]
    """Each operand with its slot or, of a constant, its name."""
    y: Tensor
    axis: int
    constant_operands: Constants

    @property
    def shared_constants(self) -> Constants:
        """Constant operands."""
        return self.constant_operands

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The operands that are no constants."""
        return tuple(tensor for slot, tensor in self.operands if slot not in self.constant_operands)

    @cached_property
    def by_rows(self) -> bool:
        """Where every operand has the rows of the result."""
        return (
            len(self.y.shape) == 4 and self.y.rows > 1 and self.axis in (1, 3) and not self.constant_operands
        )

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows of each."""
        return (rows,) * len(self.inputs)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """A copy for each operand."""
        y, mine, places = self.y, memory_strides(self.y), self.constant_operands.places
        templates, begin = [], 0
        for slot, tensor in self.operands:
            strides, sizes = memory_strides(tensor), list(tensor.shape)
            first, target = 0, begin * mine[self.axis]
            if self.by_rows:
                r0, r1 = tile.rows
                sizes[0], sizes[2] = 1, r1 - r0
                first = (r0 - tile.inputs[int(slot[2:])][0]) * strides[2]
                target += (r0 - tile.output[0]) * mine[2]
            axes = [(sizes[i], strides[i], mine[i]) for i in y.order]
            if slot in places:
                templates.append(copy(tensor, axes, places[slot] // tensor.itemsize, target, source="const"))
            else:
                templates.append(copy(tensor, axes, first, target, source=slot))
            begin += tensor.shape[self.axis]
        return templates


@layers_as(top.Concat)
def concat(op: top.Concat, graph: Graph, tensor: Tensors) -> Layer:
    """Each operand to its place; constants too."""
    y = tensor(op.y)
    constants: dict[str, Array] = {}
    operands: list[tuple[str, Tensor]] = []
    for index, value in enumerate(op.operands):
        operand, array = tensor(value), graph.constant(value)
        if array is None:
            operands.append((f"in{len(operands) - len(constants)}", operand))
        else:
            constants[f"c{index}"] = np.ascontiguousarray(array.transpose(operand.order))
            operands.append((f"c{index}", operand))
    computed = ConcatOp(tuple(operands), y, op.axis % len(y.shape), Constants(constants))
    return Layer(y.name, "concat", computed.inputs, (y,), computed, source=op)


def turned_concat(op: top.Concat, y: Tensor, axis: int, tensor: Tensors) -> Layer:
    """A concat of operands that are turned already, along what their axis has become; none of them is a constant."""
    operands = tuple((f"in{index}", tensor(value)) for index, value in enumerate(op.operands))
    computed = ConcatOp(operands, y, axis, NO_CONSTANTS)
    return Layer(y.name, "concat", computed.inputs, (y,), computed, source=op)


@dataclass(frozen=True)
class ShuffleChannelOp(LayerOp):
    """The channels of groups interleaved."""

    x: Tensor
    y: Tensor
    groups: int

    @cached_property
    def by_rows(self) -> bool:
        """Those of an image."""
        return self.x.is_image and self.x.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows."""
        return (rows,)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One copy."""
        x, groups = self.x, self.groups
        members, strides = x.shape[1] // groups, memory_strides(x)
        step = strides[1]
        first = target = 0
        sizes = list(x.shape)
        if self.by_rows:
            r0, r1 = tile.rows
            first = (r0 - tile.inputs[0][0]) * strides[2]
            target = (r0 - tile.output[0]) * strides[2]
            sizes[2] = r1 - r0
        outer = [(sizes[i], strides[i], strides[i]) for i in x.order if i != 1]
        inner = [(members, step, step * groups), (groups, step * members, step)]
        axes = (
            sorted(outer, key=lambda a: -a[2]) + inner
            if len(x.shape) == 4
            else sorted(outer + inner, key=lambda a: -a[2])
        )
        return [copy(x, axes, first, target)]


@layers_as(top.ShuffleChannel)
def shuffle(op: top.ShuffleChannel, graph: Graph, tensor: Tensors) -> Layer:
    """Channels interleaved."""
    x, y = tensor(op.x), tensor(op.y)
    return Layer(y.name, "shuffle_channel", (x,), (y,), ShuffleChannelOp(x, y, op.group), source=op)


@dataclass(frozen=True)
class DepthToSpaceOp(LayerOp):
    """Channels into blocks of pixels."""

    x: Tensor
    y: Tensor
    block: int
    columns_first: bool
    """Whether channels count a pixel's depth innermost (DCR), and not outermost (CRD)."""

    @cached_property
    def by_rows(self) -> bool:
        """Those of an image, in whole blocks."""
        return self.x.is_image and self.x.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """A row for each row of blocks."""
        return ((rows[0] // self.block, rows[1] // self.block),)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One copy."""
        (n, c, h, w), b = self.x.shape, self.block
        depth = c // b**2
        down, right, deep = (b * depth, depth, 1) if self.columns_first else (b, 1, b * b)
        r0, r1 = tile.rows if self.by_rows else (0, self.y.shape[2])
        first = (r0 // b - tile.inputs[0][0]) * w * c if self.by_rows else 0
        target = (r0 - tile.output[0]) * w * b * depth if self.by_rows else 0
        axes = [
            (n, h * w * c, h * w * c), ((r1 - r0) // b, w * c, b * w * b * depth), (b, down, w * b * depth),
            (w, c, b * depth), (b, right, depth), (depth, deep, 1),
        ]  # fmt: skip
        return [copy(self.x, axes, first, target)]


@layers_as(top.DepthToSpace)
def depth_to_space(op: top.DepthToSpace, graph: Graph, tensor: Tensors) -> Layer:
    """Channels into pixels."""
    x, y = tensor(op.x), tensor(op.y)
    computed = DepthToSpaceOp(x, y, op.block, op.mode == "DCR")
    return Layer(y.name, "depth_to_space", (x,), (y,), computed, granule=op.block, source=op)


@dataclass(frozen=True)
class SpaceToDepthOp(LayerOp):
    """Blocks of pixels into channels."""

    x: Tensor
    y: Tensor
    block: int

    @cached_property
    def by_rows(self) -> bool:
        """Those of an image."""
        return self.x.is_image and self.x.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """A row of blocks for each row."""
        return ((rows[0] * self.block, rows[1] * self.block),)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One copy."""
        (n, c, h, w), b = self.x.shape, self.block
        r0, r1 = tile.rows if self.by_rows else (0, self.y.shape[2])
        first = (r0 * b - tile.inputs[0][0]) * w * c if self.by_rows else 0
        target = (r0 - tile.output[0]) * w * c * b if self.by_rows else 0
        axes = [
            (n, h * w * c, h * w * c), (r1 - r0, b * w * c, b * w * c), (b, w * c, b * c),
            (w // b, b * c, b * b * c), (b * c, 1, 1),
        ]  # fmt: skip
        return [copy(self.x, axes, first, target)]


@layers_as(top.SpaceToDepth)
def space_to_depth(op: top.SpaceToDepth, graph: Graph, tensor: Tensors) -> Layer:
    """Pixels into channels."""
    x, y = tensor(op.x), tensor(op.y)
    return Layer(y.name, "space_to_depth", (x,), (y,), SpaceToDepthOp(x, y, op.block), source=op)


@dataclass(frozen=True)
class GatherOp(LayerOp):
    """Slices along an axis, by their indices."""

    x: Tensor
    y: Tensor
    axis: int
    indices: Constants
    """`index`."""

    @property
    def shared_constants(self) -> Constants:
        """The indices."""
        return self.indices

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One gather."""
        x, y = self.x, self.y
        at = x.order.index(self.axis)
        instruction = Gather(
            x=Place("in0"),
            y=Place("out0"),
            index=Place("const"),
            bytes=x.itemsize,
            outer=prod(x.memory_shape[:at]),
            x_size=x.shape[self.axis],
            y_size=self.indices["index"].size,
            inner=prod(x.memory_shape[at + 1 :]),
        )
        reads = (("in0", 0, x.size), ("const", 0, self.indices.size))
        return [InstructionTemplate(instruction, reads, (("out0", 0, y.size),))]


@dataclass(frozen=True)
class LookupOp(LayerOp):
    """Slices along an axis, by indices that are known at run time: rows of a table of constants, or of an activation."""

    x: Tensor
    index: Tensor
    y: Tensor
    axis: int
    table: Constants
    """`table`: the operand, if it is a constant."""

    @property
    def shared_constants(self) -> Constants:
        """The table."""
        return self.table

    @cached_property
    def count(self) -> int:
        """Indices."""
        return prod(self.index.shape)

    def scratch(self, rows: Rows) -> int:
        """The indices with 32 bits, if they come with 64."""
        return aligned(4 * self.count) if self.index.itemsize == 8 else 0

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """A gather; before it, of 64-bit indices, a copy of their lower halves."""
        x, y = self.x, self.y
        at = x.order.index(self.axis)
        slot = "in0" if self.table else "in1"
        templates, index = [], Place(slot)
        if self.index.itemsize == 8:
            words = Copy(
                x=Place(slot),
                y=Place("scratch"),
                bytes=4,
                size=(1, 1, 1, 1, 1, self.count),
                x_stride=(0, 0, 0, 0, 0, 2),
                y_stride=(0, 0, 0, 0, 0, 1),
            )
            reads, writes = (slot, 0, self.index.size), ("scratch", 0, 4 * self.count)
            templates.append(InstructionTemplate(words, (reads,), (writes,)))
            slot, index = "scratch", Place("scratch")
        chosen = Gather(
            x=Place("const" if self.table else "in0"),
            y=Place("out0"),
            index=index,
            bytes=x.itemsize,
            outer=prod(x.memory_shape[:at]),
            x_size=x.shape[self.axis],
            y_size=self.count,
            inner=prod(x.memory_shape[at + 1 :]),
        )
        source = ("const", 0, self.table.size) if self.table else ("in0", 0, x.size)
        reads = (slot, 0, 4 * self.count)
        templates.append(InstructionTemplate(chosen, (source, reads), (("out0", 0, y.size),)))
        return templates


def _lookup(op: top.Gather, graph: Graph, tensor: Tensors) -> Layer:
    """A gather by indices that are known at run time."""
    x, index, y = tensor(op.x), tensor(op.indices), tensor(op.y)
    axis = op.axis % len(x.shape)
    if index.dtype not in ("i32", "i64"):
        raise NotHere(f"its indices are of type {index.dtype}")
    flat = len(index.shape) == 1 or not (x.channels_last or y.channels_last or index.channels_last)
    if not flat:
        raise NotHere("its indices have several axes, and its elements lie as images do")
    array = graph.constant(op.x)
    table = Constants() if array is None else Constants({"table": array.transpose(x.order)})
    computed = LookupOp(x, index, y, axis, table)
    inputs = (index,) if table else (x, index)
    return Layer(y.name, "gather", inputs, (y,), computed, source=op)


@layers_as(top.Gather)
def gather(op: top.Gather, graph: Graph, tensor: Tensors) -> Layer:
    """One slice as a copy; several, where the axis keeps its place, by their indices."""
    x, y = tensor(op.x), tensor(op.y)
    indices, axis = graph.constant(op.indices), op.axis % len(x.shape)
    if indices is None:
        return _lookup(op, graph, tensor)
    if not indices.size:
        raise NotHere("it has no indices")
    chosen = [int(index) % x.shape[axis] for index in indices.reshape(-1)]
    if indices.ndim == 0:
        strides, mine = memory_strides(x), memory_strides(y)
        kept = [i for i in range(len(x.shape)) if i != axis]
        axes = sorted(
            ((x.shape[i], strides[i], mine[n]) for n, i in enumerate(kept)), key=lambda axis: -axis[2]
        )
        return _whole(op, StridedCopyOp(x, y, tuple(axes), chosen[0] * strides[axis]))
    if indices.ndim != 1:
        raise NotHere("its indices have several axes")
    computed = GatherOp(x, y, axis, Constants({"index": np.array(chosen, "<i4")}))
    return Layer(y.name, "gather", (x,), (y,), computed, source=op)


@dataclass(frozen=True)
class PadOp(LayerOp):
    """A border of one value."""

    x: Tensor
    y: Tensor
    before: tuple[int, ...]
    """Elements in front of each axis; some may be cut away instead."""
    value: int

    @cached_property
    def by_rows(self) -> bool:
        """Those of an image."""
        return self.x.is_image and self.x.rows > 1 and self.y.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """Those inside of the border, one at least."""
        height, before = self.x.shape[2], self.before[2]
        low = min(max(rows[0] - before, 0), height - 1)
        return ((low, max(min(rows[1] - before, height), low + 1)),)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """A fill, and a copy of what is inside."""
        x, y, cuts = self.x, self.y, self.by_rows
        strides, mine = memory_strides(x), memory_strides(y)
        r0, r1 = tile.rows if cuts else (0, 1)
        unit = y.itemsize
        offset = (r0 - tile.output[0]) * y.row_size if cuts else 0
        length = (r1 - r0) * y.row_size if cuts else y.size
        fill = Fill(y=Place("out0", offset), bytes=unit, count=length // unit, value=self.value)
        templates = [InstructionTemplate(fill, (), (("out0", offset, offset + length),))]
        first, target, sizes = 0, offset // unit, []
        for axis, low in enumerate(self.before):
            high = low + x.shape[axis]
            begin, end = (r0, r1) if cuts and axis == 2 else (0, y.shape[axis])
            a, b = max(low, begin), min(high, end)
            sizes.append(max(b - a, 0))
            base = tile.inputs[0][0] if cuts and axis == 2 else 0
            first += (a - low - base) * strides[axis]
            target += (a - begin) * mine[axis]
        if all(sizes):
            axes = [(sizes[i], strides[i], mine[i]) for i in y.order]
            templates.append(copy(x, axes, first, target))
        return templates


@layers_as(top.Pad)
def pad(op: top.Pad, graph: Graph, tensor: Tensors) -> Layer:
    """A border of one value, or of the tensor's own elements."""
    x, y = tensor(op.x), tensor(op.y)
    rank = len(x.shape)
    before, after = tuple(op.pads[:rank]), tuple(op.pads[rank:])
    if op.mode != "constant":
        if not op.frames_images:
            raise NotHere(f"a pad of mode {op.mode} along these axes")
        maps = [np.pad(np.arange(x.shape[i]), (before[i], after[i]), mode=op.mode) for i in (2, 3)]  # type: ignore[call-overload]
        return _by_index(op, x, y, *maps)
    computed = PadOp(x, y, before, _stored(op.value, x, quant_of(op.x)))
    return Layer(y.name, "pad", (x,), (y,), computed, source=op)


def _stored(value: float, tensor: Tensor, kind: QuantType | None) -> int:
    """The integer that stands for a real number in a tensor, within the bits that it has; of floats, its bits."""
    if kind is None:
        stored = np.array(value).astype(np.float32).astype(dtype_of(tensor.dtype).numpy)
        return int(stored.view(np.int16 if tensor.itemsize == 2 else np.int32))
    least, most = kind.dtype.limits
    return int(min(max(np.rint(value / kind.scale) + kind.zero_point, least), most))


@layers_as(top.Resize)
def nearest(op: top.Resize, graph: Graph, tensor: Tensors) -> Layer:
    """Nearest neighbours: an index for each row and column."""
    x, y = tensor(op.x), tensor(op.y)
    if op.mode != "nearest" or len(x.shape) != 4 or x.shape[:2] != y.shape[:2]:
        raise NotHere(f"a resize of mode {op.mode} along these axes")
    maps = op.nearest_maps()
    return _by_index(op, x, y, maps[2], maps[3])


def _by_index(op: Any, x: Tensor, y: Tensor, rows: Array, columns: Array) -> Layer:
    maps = Constants({"columns": columns.astype("<i4"), "rows": rows.astype("<i4")})
    return Layer(y.name, op.name.removeprefix("top."), (x,), (y,), IndexedPixelsOp(x, y, maps), source=op)


@dataclass(frozen=True)
class IndexedPixelsOp(LayerOp):
    """Rows and columns of images, taken by index."""

    x: Tensor
    y: Tensor
    maps: Constants
    """`columns` and `rows`: the column or row of the operand for each of the result."""

    @property
    def shared_constants(self) -> Constants:
        """The maps."""
        return self.maps

    @cached_property
    def by_rows(self) -> bool:
        """Those of an image."""
        return self.x.is_image and self.x.rows > 1 and self.y.rows > 1

    @cached_property
    def rows(self) -> Array:
        """The row of the operand for each of the result."""
        return self.maps["rows"]

    @cached_property
    def ascending(self) -> bool:
        """Not where a border mirrors the image."""
        return bool((np.diff(self.rows) >= 0).all())

    @cached_property
    def columns_differ(self) -> bool:
        """Whether columns are to be gathered too."""
        return bool(self.maps["columns"].tolist() != list(range(self.x.shape[3])))

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """From the first that is taken to the last."""
        part = self.rows[rows[0] : rows[1]]
        return ((int(part.min()), int(part.max()) + 1),)

    def scratch(self, rows: Rows) -> int:
        """The rows of the operand with the columns of the result."""
        if not self.columns_differ:
            return 0
        low, high = self.operand_rows(rows)[0] if self.by_rows else (0, self.x.shape[2])
        return aligned((high - low) * self.x.shape[0] * self.y.shape[3] * self.x.shape[1] * self.x.itemsize)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """A gather of columns if they differ, and copies of runs of rows.

        Rows are copied one by one where their map is regular, so that the table need not depend on the tile.
        """
        x, y, rows = self.x, self.y, self.rows
        n, c, h, w = x.shape
        r0, r1, a0, a1 = 0, y.shape[2], 0, h
        start = offset = 0
        if self.by_rows:
            r0, r1 = tile.rows
            ((a0, a1),) = self.operand_rows(tile.rows)
            start = (a0 - tile.inputs[0][0]) * x.row_size
            offset = (r0 - tile.output[0]) * y.row_size
        count = a1 - a0
        row, wide = w * c, y.shape[3] * c
        templates: list[InstructionTemplate] = []
        slot, begin = "in0", start
        if self.columns_differ:
            slot, begin = "scratch", 0
            chosen = Gather(
                x=Place("in0", start),
                y=Place("scratch"),
                index=Place("const", self.maps.places["columns"]),
                bytes=x.itemsize,
                outer=n * count,
                x_size=w,
                y_size=y.shape[3],
                inner=c,
            )
            reads = ("in0", start, start + n * count * row * x.itemsize), ("const", 0, self.maps.size)
            writes = ("scratch", 0, n * count * wide * x.itemsize)
            templates.append(InstructionTemplate(chosen, reads, (writes,)))
        for image in range(n):
            r = r0
            while r < r1:
                end = r + 1
                while end < r1 and rows[end] == rows[r]:
                    end += 1
                # Runs of rows: the same source row repeated, or ascending one by one.
                if end - r == 1:
                    while end < r1 and rows[end] == rows[end - 1] + 1:
                        end += 1
                    axes = [(end - r, wide, wide), (wide, 1, 1)]
                else:
                    axes = [(end - r, 0, wide), (wide, 1, 1)]
                first = begin // x.itemsize + (image * count + int(rows[r]) - a0) * wide
                target = offset // x.itemsize + (image * (r1 - r0) + r - r0) * wide
                templates.append(copy(x, axes, first, target, source=slot))
                r = end
        return templates
