"""Elementwise arithmetic, tables and pools: the vector engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, npu, top
from npuc.program.instruction import TypedInstruction
from npuc.program.instructions import (
    Add,
    AvgPool,
    Broadcast,
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
from npuc.schedule.layers import InstructionTemplate, Layer, Place, Rows, Tensor, Tile, layout
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import (
    DTYPES,
    LIMITS,
    batch_rows,
    constant,
    pictures_of,
    result,
    second,
    source,
    stage,
    stage_constants,
    window_rows,
)


@layers_as(npu.Add, npu.Sub, npu.Mul, top.Max, top.Min)
def binary(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Operands are broadcast by strides; a constant operand lies among the constants."""
    y = tensor(op.y)
    constants: dict[str, Array] = {}
    operands: list[tuple[str, Tensor]] = []
    inputs: list[Tensor] = []
    for letter, value in (("a", op.a), ("b", op.b)):
        one = tensor(value)
        array = graph.constant(value)
        if array is None:
            operands.append((f"in{len(inputs)}", one))
            inputs.append(one)
        else:
            order = one.order
            constants[letter] = np.ascontiguousarray(array.transpose(order))
            operands.append((letter, one))
    name = "mul" if isinstance(op, npu.Mul) else "minmax" if isinstance(op, top.Max | top.Min) else "add"
    if name == "mul":
        constants.update(stage_constants(op))
    places, size = layout(constants)
    views = [_view(one, y) for _, one in operands]
    shape = y.memory_shape
    groups = _collapsed(shape, [strides for strides in views])
    if len(groups) > 4:
        raise NotHere("its operands are broadcast along too many axes")
    cuts = y.rows > 1 and all(_moves(one, y) or _repeats(one, y) for _, one in operands)

    def at_row(one: Tensor, row: int, base: int) -> int:
        return (row - base) * one.row_size if one.rows > 1 and _moves(one, y) else 0

    def need(rows: Rows) -> tuple[Rows, ...]:
        return tuple(rows if _moves(one, y) else (0, one.rows) for one in inputs)

    def templates(tile: Tile) -> list[InstructionTemplate]:
        (r0, r1) = tile.rows if cuts else (0, 1)
        offset = (r0 - tile.output[0]) * y.row_size if cuts else 0
        if cuts and not y.channels_last:
            part: tuple[int, ...] = (r1 - r0, shape[-1])
            sizes, strides = _merged(part, [_two(one, y) for _, one in operands])
        else:
            # Rows of a batch lie one behind the other; an axis of one element has no stride.
            rows_of = (1, r1 - r0) if shape[1] > 1 else (r1 - r0, 1)
            part = (*rows_of, *shape[2:]) if cuts else shape
            sizes, strides = _merged(part, views)
        broadcast = Broadcast(_four(sizes, 1), *(_four(merged, 0) for merged in strides))
        reads: list[tuple[str, int, int]] = [("const", 0, size)] if size else []
        given = []
        for slot, one in operands:
            if slot in ("a", "b"):
                rows_in = r0 if cuts and _moves(one, y) else 0
                place = Place("const", places[slot] + rows_in * (one.row_size if one.rows > 1 else 0))
            else:
                index = int(slot[2:])
                start = at_row(one, r0, tile.inputs[index][0]) if cuts else 0
                place = Place(slot, start)
                whole = not (cuts and one.rows > 1 and _moves(one, y))
                reads.append((slot, start, one.size if whole else start + (r1 - r0) * one.row_size))
            given.append((place, one))
        made = instruction(given, broadcast, result(y, offset))
        length = prod(part) * y.itemsize
        return [InstructionTemplate(made, tuple(reads), (("out0", offset, offset + length),))]

    def instruction(
        given: list[tuple[Place, Tensor]], broadcast: Broadcast, made: Result
    ) -> TypedInstruction:
        (place_a, a), (place_b, b) = given
        x = Source(place_a, DTYPES[a.dtype], a.zero_point)
        if name == "minmax":
            low, high = LIMITS[y.dtype]
            return Minmax(x, place_b, broadcast, int(isinstance(op, top.Max)), made, low, high)
        if name == "mul":
            return Mul(x, second(b, place_b), broadcast, made, stage(op, places, 1))
        left, m_a, s_a, m_b, s_b, m, s = op.parameters
        scales = np.array(op.factors or (0.0, 0.0), "<f4").view("<i4").tolist()
        return Add(
            source=x,
            second=second(b, place_b),
            broadcast=broadcast,
            result=made,
            kind=op.kind.code,
            subtract=int(isinstance(op, npu.Sub)),
            left=left,
            multiplier=(*scales, 0) if op.kind.has_scale else (m_a, m_b, m),
            shift=(s_a, s_b, s),
            zero_point=op.to.zero_point,
            lo=op.lo,
            hi=op.hi,
        )

    alike = tuple(
        index for index, one in enumerate(inputs) if one.memory_shape == shape and one.itemsize == y.itemsize
    )
    return Layer(
        name=y.name, kind=op.name.split(".")[1], inputs=tuple(inputs), outputs=(y,), templates=templates,
        need=need if cuts else None, constants=lambda channels: constants, constant_size=lambda channels: size,
        in_place=alike, source=op,
    )  # fmt: skip


def _moves(one: Tensor, y: Tensor) -> bool:
    """Whether an operand has the rows of the result, rather than one for all."""
    if not y.channels_last:
        return one.shape == y.shape
    return len(one.shape) == 4 and one.shape[0::2] == y.shape[0::2] and y.rows > 1


def _repeats(one: Tensor, y: Tensor) -> bool:
    """Whether an operand is the same for every row."""
    if not y.channels_last:
        return prod(one.shape[:-1]) == 1
    return len(one.shape) < 2 or (one.shape[-2] == 1 and (len(one.shape) < 4 or one.shape[0] == 1))


def _two(one: Tensor, y: Tensor) -> list[int]:
    """The strides of an operand along rows and elements of a row."""
    inner = 1 if one.shape and one.shape[-1] > 1 else 0
    return [y.shape[-1] if one.shape == y.shape else 0, inner]


def _view(one: Tensor, y: Tensor) -> list[int]:
    """The strides of an operand along the axes of the result in memory order, in elements."""
    rank = len(y.shape)
    dense: dict[int, int] = {}
    step = 1
    for axis in reversed(one.order):
        dense[axis + rank - len(one.shape)] = step if one.shape[axis] > 1 else 0
        step *= one.shape[axis]
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


def _collapsed(shape: tuple[int, ...], views: list[list[int]]) -> list[int]:
    return _merged(shape, views)[0]


def _four(values: list[int], fill: int) -> tuple[int, ...]:
    return (*(fill,) * (4 - len(values)), *values)


def _unary(
    op: Any,
    graph: Graph,
    tensor: Tensors,
    instruction: Callable[[Source, Result, Mapping[str, int], int], TypedInstruction],
    constants: dict[str, Array],
    by_row: bool = True,
) -> Layer:
    """A layer that works on dense elements, any rows of them at a time unless `by_row` is false.

    `instruction` makes its instruction of the operand, the result, the places of the constants and the number of elements.
    """
    x, y = tensor(op.x), tensor(op.y)
    places, size = layout(constants)
    cuts = by_row and x.rows > 1 and x.shape == y.shape

    def templates(tile: Tile) -> list[InstructionTemplate]:
        r0, r1 = tile.rows if cuts else (0, 1)
        start = (r0 - tile.inputs[0][0]) * x.row_size if cuts else 0
        offset = (r0 - tile.output[0]) * y.row_size if cuts else 0
        elements = (r1 - r0) * (x.row_size if cuts else x.size) // x.itemsize
        made = instruction(source(x, offset=start), result(y, offset), places, elements)
        reads = (("in0", start, start + elements * x.itemsize), *((("const", 0, size),) if size else ()))
        return [InstructionTemplate(made, reads, (("out0", offset, offset + elements * y.itemsize),))]

    return Layer(
        name=y.name, kind=op.name.removeprefix("npu."), inputs=(x,), outputs=(y,), templates=templates,
        need=(lambda rows: (rows,)) if cuts else None,
        constants=lambda channels: constants, constant_size=lambda channels: size,
        in_place=(0,) if x.itemsize == y.itemsize else (), source=op,
    )  # fmt: skip


@layers_as(npu.Requant)
def requant(op: npu.Requant, graph: Graph, tensor: Tensors) -> Layer:
    """Another scale or type."""

    def instruction(x: Source, y: Result, places: Mapping[str, int], elements: int) -> Requant:
        return Requant(x, elements, y, stage(op, places, 1))

    return _unary(op, graph, tensor, instruction, stage_constants(op))


@layers_as(npu.Table)
def table(op: npu.Table, graph: Graph, tensor: Tensors) -> Layer:
    """One table."""
    entries = graph.constant(op.table)
    assert entries is not None

    def instruction(x: Source, y: Result, places: Mapping[str, int], elements: int) -> Table:
        return Table(x, elements, 1, 1, constant(places, "table"), y)

    return _unary(op, graph, tensor, instruction, {"table": entries})


@layers_as(npu.ChannelTable)
def channel_table(op: npu.ChannelTable, graph: Graph, tensor: Tensors) -> Layer:
    """A table for each channel, which is innermost in memory for rank 4."""
    entries = graph.constant(op.table)
    assert entries is not None
    x = tensor(op.x)
    inner = 1 if len(x.shape) == 4 else prod(x.shape[2:])
    channels = x.shape[1]

    def instruction(x: Source, y: Result, places: Mapping[str, int], elements: int) -> Table:
        return Table(x, elements // (channels * inner), channels, inner, constant(places, "table"), y)

    # Of ranks 3 and 5 a row has a channel of its own.
    by_row = len(x.shape) != 3 and len(x.shape) < 5
    return _unary(op, graph, tensor, instruction, {"table": entries}, by_row)


@layers_as(npu.Reinterpret)
def reinterpret(op: npu.Reinterpret, graph: Graph, tensor: Tensors) -> Layer:
    """The same bytes: a copy."""
    x = tensor(op.x)
    return copied(op, x, tensor(op.y))


def copied(op: Any, x: Tensor, y: Tensor) -> Layer:
    """The bytes of x as they are."""
    elements = x.size // x.itemsize

    def templates(tile: Tile) -> list[InstructionTemplate]:
        copy = Copy(
            x=Place("in0"),
            y=Place("out0"),
            bytes=x.itemsize,
            size=(1, 1, 1, 1, 1, elements),
            x_stride=(0, 0, 0, 0, 0, 1),
            y_stride=(0, 0, 0, 0, 0, 1),
        )
        return [InstructionTemplate(copy, (("in0", 0, x.size),), (("out0", 0, y.size),))]

    return Layer(
        name=y.name, kind="copy", inputs=(x,), outputs=(y,), templates=templates, in_place=(), source=op
    )


@layers_as(npu.AvgPool, top.MaxPool)
def pool(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Windows over rows and columns."""
    x, y = tensor(op.x), tensor(op.y)
    if len(x.shape) != 4:
        raise NotHere("it is not a pool over pictures")
    average = isinstance(op, npu.AvgPool)
    kernel, strides, pads = op.kernel, op.strides, op.pads
    dilations = (1, 1) if average else tuple(op.dilations)
    constants = stage_constants(op) if average else {}
    places, size = layout(constants)
    channels, height, width, out_h = *x.shape[1:], y.shape[2]
    count = max((array.size for array in constants.values()), default=0)

    def of_picture(rows: Rows) -> Rows:
        return window_rows(rows, height, kernel[0], strides[0], dilations[0], pads[0])

    def need(rows: Rows) -> tuple[Rows, ...]:
        return (batch_rows(rows, out_h, height, of_picture),)

    def templates(tile: Tile) -> list[InstructionTemplate]:
        return [one(tile, *part) for part in pictures_of(tile.rows, out_h)]

    def one(tile: Tile, picture: int, n: int, rows: Rows) -> InstructionTemplate:
        r0, r1 = rows
        a0, a1 = (0, height) if n > 1 else of_picture(rows)
        start = (picture * height + a0 - tile.inputs[0][0]) * x.row_size
        offset = (picture * out_h + r0 - tile.output[0]) * y.row_size
        wrote = n * (r1 - r0) * y.row_size
        x_, y_ = source(x, offset=start), result(y, offset)
        sizes = Sizes(n, a1 - a0, width, channels, r1 - r0, y.shape[3])
        window = Window(tuple(kernel), tuple(strides), dilations, (pads[0] + a0 - r0 * strides[0], pads[1]))
        made: TypedInstruction
        if average:
            made = AvgPool(x_, sizes, window, int(op.count_include_pad), y_, stage(op, places, count))
        else:
            made = MaxPool(x_, sizes, window, y_)
        read = start + n * (a1 - a0) * x.row_size
        reads = (("in0", start, read), *((("const", 0, size),) if size else ()))
        return InstructionTemplate(made, reads, (("out0", offset, offset + wrote),))

    # With padding that counts, what is padding depends on where the picture ends.
    counted = average and op.count_include_pad and any(pads)
    cut = need if x.rows > 1 and y.rows > 1 and not counted else None
    return Layer(
        name=y.name, kind="avg_pool" if average else "max_pool", inputs=(x,), outputs=(y,), templates=templates, need=cut,
        constants=lambda channels: constants, constant_size=lambda channels: size, source=op,
    )  # fmt: skip
