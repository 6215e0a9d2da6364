"""Ops that move elements: strided copies, fills and gathers of the vector engine."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine.handlers.movement import nearest_maps
from npuc.ir import Graph, top
from npuc.program.instructions import Copy, Fill, Gather
from npuc.schedule.layers import InstructionTemplate, Layer, Place, Rows, Tensor, Tile, aligned, layout
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import LIMITS, is_natural
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
    made = Copy(
        x=Place(source, x_start * unit),
        y=Place(target, y_start * unit),
        bytes=unit,
        size=tuple(axis[0] for axis in merged),
        x_stride=tuple(axis[1] for axis in merged),
        y_stride=tuple(axis[2] for axis in merged),
    )
    return InstructionTemplate(made, ((source, *spans[0]),), ((target, *spans[1]),))


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


def _whole(
    op: Any,
    x: Tensor,
    y: Tensor,
    templates: Callable[[], list[InstructionTemplate]],
    scratch: int = 0,
    kind: str | None = None,
) -> Layer:
    templates()  # so that what cannot be is known now
    return Layer(
        name=y.name, kind=kind or op.name.removeprefix("top."), inputs=(x,), outputs=(y,),
        templates=lambda tile: templates(), scratch=lambda rows: scratch, source=op,
    )  # fmt: skip


@layers_as(top.Reshape)
def reshape(op: top.Reshape, graph: Graph, tensor: Tensors) -> Layer:
    """The same elements in logical order, which is that of memory except for rank 4."""
    x, y = tensor(op.x), tensor(op.y)
    if is_view(x, y):
        return copied(op, x, y)
    if len(x.shape) != 4 or len(y.shape) != 4:
        rank4, other = (x, y) if len(x.shape) == 4 else (y, x)
        inner, dense = memory_strides(rank4), natural_strides(rank4.shape)
        forward = rank4 is x
        axes = [
            (n, a, b) if forward else (n, b, a) for n, a, b in zip(rank4.shape, inner, dense, strict=True)
        ]
        assert other.size == rank4.size
        return _whole(op, x, y, lambda: [copy(x, axes)])

    def templates() -> list[InstructionTemplate]:
        there = list(zip(x.shape, memory_strides(x), natural_strides(x.shape), strict=True))
        back = list(zip(y.shape, natural_strides(y.shape), memory_strides(y), strict=True))
        return [copy(x, there, target="scratch"), copy(x, back, source="scratch")]

    return _whole(op, x, y, templates, aligned(x.size))


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
    return _whole(op, x, y, lambda: [copy(x, axes)])


@layers_as(top.Expand)
def expand(op: top.Expand, graph: Graph, tensor: Tensors) -> Layer:
    """Broadcast."""
    x, y = tensor(op.x), tensor(op.y)
    lead = len(y.shape) - len(x.shape)
    strides = [0] * lead + [s if n > 1 else 0 for s, n in zip(memory_strides(x), x.shape, strict=True)]
    axes = sorted(zip(y.shape, strides, memory_strides(y), strict=True), key=lambda axis: -axis[2])
    return _whole(op, x, y, lambda: [copy(x, list(axes))])


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
    return _whole(op, x, y, lambda: [copy(x, axes)])


@layers_as(top.Slice)
def slice_(op: top.Slice, graph: Graph, tensor: Tensors) -> Layer:
    """A part, with steps."""
    x, y = tensor(op.x), tensor(op.y)
    return _part(op, x, (y,), [(tuple(op.offset), tuple(op.steps))])


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
    return _part(op, x, outputs, parts)


def _part(
    op: Any, x: Tensor, outputs: tuple[Tensor, ...], parts: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> Layer:
    strides = memory_strides(x)
    (offset, steps), y = parts[0], outputs[0]
    cuts = len(outputs) == 1 and x.is_picture and x.rows > 1 and y.rows > 1 and steps[2] > 0

    def need(rows: Rows) -> tuple[Rows, ...]:
        return ((offset[2] + rows[0] * steps[2], offset[2] + (rows[1] - 1) * steps[2] + 1),)

    def templates(tile: Tile) -> list[InstructionTemplate]:
        found = []
        for index, (one, (begin, step)) in enumerate(zip(outputs, parts, strict=True)):
            mine = memory_strides(one)
            sizes, first, target = list(one.shape), list(begin), 0
            if cuts:
                r0, r1 = tile.rows
                sizes[2] = r1 - r0
                first[2] += r0 * step[2] - tile.inputs[0][0]
                target = (r0 - tile.output[0]) * mine[2]
            start = sum(f * s for f, s in zip(first, strides, strict=True))
            axes = sorted(
                ((sizes[i], strides[i] * step[i], mine[i]) for i in range(len(sizes))),
                key=lambda axis: -axis[2],
            )
            found.append(copy(x, axes, start, target, target=f"out{index}"))
        return found

    return Layer(
        name=y.name, kind=op.name.removeprefix("top."), inputs=(x,), outputs=outputs, templates=templates,
        need=need if cuts else None, source=op,
    )  # fmt: skip


@layers_as(top.Concat)
def concat(op: top.Concat, graph: Graph, tensor: Tensors) -> Layer:
    """Each operand to its place; constants too."""
    y = tensor(op.y)
    axis = op.axis % len(y.shape)
    mine = memory_strides(y)
    constants: dict[str, Array] = {}
    operands: list[tuple[str, Tensor, int]] = []
    inputs: list[Tensor] = []
    start = 0
    for index, value in enumerate(op.operands):
        one, array = tensor(value), graph.constant(value)
        if array is None:
            operands.append((f"in{len(inputs)}", one, start))
            inputs.append(one)
        else:
            constants[f"c{index}"] = np.ascontiguousarray(array.transpose(one.order))
            operands.append((f"c{index}", one, start))
        start += one.shape[axis]
    places, size = layout(constants)
    cuts = len(y.shape) == 4 and y.rows > 1 and axis in (1, 3) and not constants

    def templates(tile: Tile) -> list[InstructionTemplate]:
        found = []
        for slot, one, begin in operands:
            strides, sizes = memory_strides(one), list(one.shape)
            first, target = 0, begin * mine[axis]
            if cuts:
                r0, r1 = tile.rows
                sizes[0], sizes[2] = 1, r1 - r0
                first = (r0 - tile.inputs[int(slot[2:])][0]) * strides[2]
                target += (r0 - tile.output[0]) * mine[2]
            axes = [(sizes[i], strides[i], mine[i]) for i in y.order]
            if slot in constants:
                found.append(copy(one, axes, places[slot] // one.itemsize, target, source="const"))
            else:
                found.append(copy(one, axes, first, target, source=slot))
        return found

    return Layer(
        name=y.name, kind="concat", inputs=tuple(inputs), outputs=(y,), templates=templates,
        need=(lambda rows: (rows,) * len(inputs)) if cuts else None,
        constants=lambda channels: constants, constant_size=lambda channels: size, source=op,
    )  # fmt: skip


@layers_as(top.ShuffleChannel)
def shuffle(op: top.ShuffleChannel, graph: Graph, tensor: Tensors) -> Layer:
    """Channels interleaved."""
    x, y = tensor(op.x), tensor(op.y)
    members = x.shape[1] // op.group
    strides = memory_strides(x)
    step = strides[1]
    cuts = x.is_picture and x.rows > 1

    def templates(tile: Tile) -> list[InstructionTemplate]:
        r0, r1 = tile.rows if cuts else (0, 0)
        first = (r0 - tile.inputs[0][0]) * strides[2] if cuts else 0
        target = (r0 - tile.output[0]) * strides[2] if cuts else 0
        sizes = list(x.shape)
        if cuts:
            sizes[2] = r1 - r0
        outer = [(sizes[i], strides[i], strides[i]) for i in x.order if i != 1]
        inner = [(members, step, step * op.group), (op.group, step * members, step)]
        axes = (
            sorted(outer, key=lambda a: -a[2]) + inner
            if len(x.shape) == 4
            else sorted(outer + inner, key=lambda a: -a[2])
        )
        return [copy(x, axes, first, target)]

    return Layer(
        name=y.name, kind="shuffle_channel", inputs=(x,), outputs=(y,), templates=templates,
        need=(lambda rows: (rows,)) if cuts else None, source=op,
    )  # fmt: skip


@layers_as(top.DepthToSpace)
def depth_to_space(op: top.DepthToSpace, graph: Graph, tensor: Tensors) -> Layer:
    """Channels into pixels."""
    x, y = tensor(op.x), tensor(op.y)
    n, c, h, w = x.shape
    b, depth = op.block, c // op.block**2
    down, right, deep = (b * depth, depth, 1) if op.mode == "DCR" else (b, 1, b * b)
    cuts = x.is_picture and x.rows > 1

    def templates(tile: Tile) -> list[InstructionTemplate]:
        r0, r1 = tile.rows if cuts else (0, y.shape[2])
        first = (r0 // b - tile.inputs[0][0]) * w * c if cuts else 0
        target = (r0 - tile.output[0]) * w * b * depth if cuts else 0
        axes = [
            (n, h * w * c, h * w * c), ((r1 - r0) // b, w * c, b * w * b * depth), (b, down, w * b * depth),
            (w, c, b * depth), (b, right, depth), (depth, deep, 1),
        ]  # fmt: skip
        return [copy(x, axes, first, target)]

    return Layer(
        name=y.name, kind="depth_to_space", inputs=(x,), outputs=(y,), templates=templates, granule=b,
        need=(lambda rows: ((rows[0] // b, rows[1] // b),)) if cuts else None, source=op,
    )  # fmt: skip


@layers_as(top.SpaceToDepth)
def space_to_depth(op: top.SpaceToDepth, graph: Graph, tensor: Tensors) -> Layer:
    """Pixels into channels."""
    x, y = tensor(op.x), tensor(op.y)
    n, c, h, w = x.shape
    b = op.block
    cuts = x.is_picture and x.rows > 1

    def templates(tile: Tile) -> list[InstructionTemplate]:
        r0, r1 = tile.rows if cuts else (0, y.shape[2])
        first = (r0 * b - tile.inputs[0][0]) * w * c if cuts else 0
        target = (r0 - tile.output[0]) * w * c * b if cuts else 0
        axes = [
            (n, h * w * c, h * w * c), (r1 - r0, b * w * c, b * w * c), (b, w * c, b * c),
            (w // b, b * c, b * b * c), (b * c, 1, 1),
        ]  # fmt: skip
        return [copy(x, axes, first, target)]

    return Layer(
        name=y.name, kind="space_to_depth", inputs=(x,), outputs=(y,), templates=templates,
        need=(lambda rows: ((rows[0] * b, rows[1] * b),)) if cuts else None, source=op,
    )  # fmt: skip


@layers_as(top.Gather)
def gather(op: top.Gather, graph: Graph, tensor: Tensors) -> Layer:
    """One slice as a copy; several, where the axis keeps its place, by their indices."""
    x, y = tensor(op.x), tensor(op.y)
    indices, axis = graph.constant(op.indices), op.axis % len(x.shape)
    if indices is None or not indices.size:
        raise NotHere("its indices are computed at run time")
    chosen = [int(index) % x.shape[axis] for index in indices.reshape(-1)]
    strides, mine = memory_strides(x), memory_strides(y)
    kept = [i for i in range(len(x.shape)) if i != axis]
    if indices.ndim == 0:
        axes = [(x.shape[i], strides[i], mine[n]) for n, i in enumerate(kept)]
        axes.sort(key=lambda one: -one[2])
        return _whole(op, x, y, lambda: [copy(x, axes, chosen[0] * strides[axis])])
    if indices.ndim != 1:
        raise NotHere("its indices have several axes")
    at = x.order.index(axis)
    table = {"index": np.array(chosen, "<i4")}
    _, size = layout(table)

    def templates(tile: Tile) -> list[InstructionTemplate]:
        made = Gather(
            x=Place("in0"),
            y=Place("out0"),
            index=Place("const"),
            bytes=x.itemsize,
            outer=prod(x.memory_shape[:at]),
            x_size=x.shape[axis],
            y_size=len(chosen),
            inner=prod(x.memory_shape[at + 1 :]),
        )
        reads = (("in0", 0, x.size), ("const", 0, size))
        return [InstructionTemplate(made, reads, (("out0", 0, y.size),))]

    return Layer(
        name=y.name, kind="gather", inputs=(x,), outputs=(y,), templates=templates,
        constants=lambda channels: table, constant_size=lambda channels: size, source=op,
    )  # fmt: skip


@layers_as(top.Resize)
def nearest(op: top.Resize, graph: Graph, tensor: Tensors) -> Layer:
    """Nearest neighbours: an index for each row and column."""
    x, y = tensor(op.x), tensor(op.y)
    if op.mode != "nearest" or len(x.shape) != 4 or x.shape[:2] != y.shape[:2]:
        raise NotHere(f"a resize of mode {op.mode} along these axes")
    maps = nearest_maps(op)
    return _mapped(op, x, y, maps[2], maps[3])


@layers_as(top.Pad)
def pad(op: top.Pad, graph: Graph, tensor: Tensors) -> Layer:
    """A border of one value, or of the tensor's own elements."""
    x, y = tensor(op.x), tensor(op.y)
    rank = len(x.shape)
    before, after = op.pads[:rank], op.pads[rank:]
    if op.mode != "constant":
        if rank != 4 or any(before[:2]) or any(after[:2]) or min(*before, *after) < 0:
            raise NotHere(f"a pad of mode {op.mode} along these axes")
        maps = [np.pad(np.arange(x.shape[i]), (before[i], after[i]), mode=op.mode) for i in (2, 3)]  # type: ignore[call-overload]
        return _mapped(op, x, y, *maps)
    least, most = LIMITS[x.dtype]
    border = int(min(max(np.rint(op.value / x.scale) + x.zero_point, least), most))
    strides, mine = memory_strides(x), memory_strides(y)
    cuts = x.is_picture and x.rows > 1 and y.rows > 1

    def need(rows: Rows) -> tuple[Rows, ...]:
        low = min(max(rows[0] - before[2], 0), x.shape[2] - 1)
        return ((low, max(min(rows[1] - before[2], x.shape[2]), low + 1)),)

    def templates(tile: Tile) -> list[InstructionTemplate]:
        r0, r1 = tile.rows if cuts else (0, 1)
        unit = y.itemsize
        offset = (r0 - tile.output[0]) * y.row_size if cuts else 0
        length = (r1 - r0) * y.row_size if cuts else y.size
        fill = Fill(y=Place("out0", offset), bytes=unit, count=length // unit, value=border)
        found = [InstructionTemplate(fill, (), (("out0", offset, offset + length),))]
        first, target, sizes = 0, offset // unit, []
        for axis in range(rank):
            low, high = before[axis], before[axis] + x.shape[axis]
            top_, end = (r0, r1) if cuts and axis == 2 else (0, y.shape[axis])
            a, b = max(low, top_), min(high, end)
            sizes.append(max(b - a, 0))
            base = tile.inputs[0][0] if cuts and axis == 2 else 0
            first += (a - low - base) * strides[axis]
            target += (a - top_) * mine[axis]
        if all(sizes):
            axes = [(sizes[i], strides[i], mine[i]) for i in y.order]
            found.append(copy(x, axes, first, target))
        return found

    return Layer(
        name=y.name,
        kind="pad",
        inputs=(x,),
        outputs=(y,),
        templates=templates,
        need=need if cuts else None,
        source=op,
    )


def _mapped(op: Any, x: Tensor, y: Tensor, rows: Array, columns: Array) -> Layer:
    """Rows and columns taken by index."""
    n, c, h, w = x.shape
    cuts = x.is_picture and x.rows > 1 and y.rows > 1
    columns_differ = columns.tolist() != list(range(w))

    def need(wanted: Rows) -> tuple[Rows, ...]:
        part = rows[wanted[0] : wanted[1]]
        return ((int(part.min()), int(part.max()) + 1),)

    table = {"columns": columns.astype("<i4"), "rows": rows.astype("<i4")}
    places, size = layout(table)

    def templates(tile: Tile) -> list[InstructionTemplate]:
        # The rows are copied one by one where their map is regular, so that the table need not depend on the tile.
        r0, r1 = tile.rows if cuts else (0, y.shape[2])
        a0 = need((r0, r1))[0][0] if cuts else 0
        base = tile.inputs[0][0] if cuts else 0
        offset = (r0 - tile.output[0]) * y.row_size if cuts else 0
        made: list[InstructionTemplate] = []
        a1 = need((r0, r1))[0][1] if cuts else h
        start = (a0 - base) * x.row_size if cuts else 0
        count = a1 - a0
        row, wide = w * c, y.shape[3] * c
        if columns_differ:
            slot = "scratch"
            chosen = Gather(
                x=Place("in0", start),
                y=Place("scratch"),
                index=Place("const", places["columns"]),
                bytes=x.itemsize,
                outer=n * count,
                x_size=w,
                y_size=y.shape[3],
                inner=c,
            )
            reads = ("in0", start, start + n * count * row * x.itemsize), ("const", 0, size)
            writes = ("scratch", 0, n * count * wide * x.itemsize)
            made.append(InstructionTemplate(chosen, reads, (writes,)))
            begin = 0
        else:
            slot, begin = "in0", start
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
                made.append(copy(x, axes, first, target, source=slot))
                r = end
        return made

    scratch_row = n * y.shape[3] * c * x.itemsize if columns_differ else 0

    def scratch(wanted: Rows) -> int:
        low, high = need(wanted)[0] if cuts else (0, h)
        return aligned((high - low) * scratch_row)

    return Layer(
        name=y.name, kind=op.name.removeprefix("top."), inputs=(x,), outputs=(y,), templates=templates,
        need=need if cuts else None, constants=lambda channels: table, constant_size=lambda channels: size,
        scratch=scratch, source=op,
    )  # fmt: skip
