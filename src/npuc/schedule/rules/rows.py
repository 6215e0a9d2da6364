"""Softmax, normalization, reductions and bilinear resize: the vector engine over rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.ir import Graph, npu, top
from npuc.kernels.resampling import interpolation
from npuc.program.instruction import TypedInstruction
from npuc.program.instructions import Norm, Reduce, Resize, Result, Sizes, Softmax, Source, Stage
from npuc.schedule.layers import InstructionTemplate, Layer, Place, Rows, Tensor, Tile, aligned, layout
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import (
    ABSENT,
    batch_rows,
    constant,
    pictures_of,
    result,
    source,
    stage,
    stage_constants,
    turned,
)
from npuc.schedule.rules.movement import copy, memory_strides, natural_strides


def _around(
    op: Any,
    x: Tensor,
    y: Tensor,
    order: tuple[int, ...],
    total: int,
    core: Callable[[Source, Result, Mapping[str, int], int], TypedInstruction],
    constants: dict[str, Array],
    kind: str,
    by_row: bool = True,
) -> Layer:
    """A layer that wants its operand with the logical axes in `order` in memory, and gives its result so.

    Where memory has that order already, it is one instruction; otherwise copies through scratch memory stand around it.
    Rows of the tensor that do not depend on each other (`by_row`) may come a few at a time. `core` makes the instruction of the
    operand, the result, the places of the constants and how many of the `total` rows in that order it works on.
    """
    places, size = layout(constants)
    reads_const = (("const", 0, size),) if size else ()
    same = x.order == order or _same_bytes(x, order)
    per_row, rest = divmod(total, x.rows)
    cuts = by_row and x.rows > 1 and not rest and x.shape == y.shape and (same or x.is_picture)

    def templates(tile: Tile) -> list[InstructionTemplate]:
        (r0, r1), i0 = tile.rows, tile.inputs[0][0]
        start, offset = (r0 - i0) * x.row_size, (r0 - tile.output[0]) * y.row_size
        length = (r1 - r0) * x.row_size
        half = aligned(length)
        before, after = (("in0", start), ("out0", offset)) if same else (("scratch", 0), ("scratch", half))
        end = after[1] + (r1 - r0) * y.row_size
        count = per_row * (r1 - r0) if cuts else total
        made = InstructionTemplate(
            core(source(x, *before), result(y, after[1], after[0]), places, count),
            ((before[0], before[1], before[1] + length), *reads_const),
            ((*after, end),),
        )
        if same:
            return [made]
        rows = r1 - r0 if cuts else None
        return [
            turned(x, order, Place("in0", start), Place("scratch"), rows),
            made,
            turned(y, order, Place("scratch", half), Place("out0", offset), rows, back=True),
        ]

    def scratch(rows: Rows) -> int:
        part = rows[1] - rows[0]
        return 0 if same else aligned(part * x.row_size) + aligned(part * y.row_size)

    return Layer(
        name=y.name, kind=kind, inputs=(x,), outputs=(y,), templates=templates, need=(lambda rows: (rows,)) if cuts else None,
        constants=lambda channels: constants, constant_size=lambda channels: size, scratch=scratch, source=op,
    )  # fmt: skip


def _inner(x: Tensor, axis: int) -> tuple[tuple[int, ...], bool]:
    """An order of the axes with one of them innermost, and whether the rows of a picture are apart in it."""
    if axis == x.order[-1]:
        return x.order, True
    rest = [i for i in ((0, 2, 1, 3) if len(x.shape) == 4 else range(len(x.shape))) if i != axis]
    return (*rest, axis), len(x.shape) == 4 and axis != 2


def _same_bytes(x: Tensor, order: tuple[int, ...]) -> bool:
    long = [axis for axis in x.order if x.shape[axis] > 1]
    return long == [axis for axis in order if x.shape[axis] > 1]


@layers_as(npu.Softmax)
def softmax(op: npu.Softmax, graph: Graph, tensor: Tensors) -> Layer:
    """Along one axis, which is made the innermost."""
    x, y = tensor(op.x), tensor(op.y)
    rank = len(x.shape)
    axis = op.axis % rank
    order, apart = _inner(x, axis)
    multiplier, shift, left, diff_min = op.parameters
    width = x.shape[axis]
    tables = {}
    for name, value in (("coarse", op.coarse), ("fine", op.fine)):
        array = graph.constant(value)
        if array is not None:
            tables[name] = array
    if op.kind is Kind.DOUBLE_ROUNDING:
        form = 2 if x.dtype == "i16" else 1
        if form == 2 and not tables:
            from npuc.kernels.softmax import tflite_tables

            exps, reciprocals = tflite_tables()
            tables = {"coarse": np.array(exps, "<i2"), "fine": np.array(reciprocals, "<i2")}
        tables = {name: array.astype("<i2") for name, array in tables.items()} if form == 2 else {}
    else:
        form = 0
        tables = {name: array.astype("<u4") for name, array in tables.items()}

    def core(x: Source, made: Result, places: Mapping[str, int], rows: int) -> Softmax:
        return Softmax(
            source=x,
            rows=rows,
            width=width,
            form=form,
            coarse=constant(places, "coarse"),
            fine=constant(places, "fine"),
            multiplier=multiplier,
            shift=left if form == 1 else shift,
            diff_min=diff_min,
            rounding=op.kind.row_rounding.code,
            result=made,
            zero_point=y.zero_point,
            lo=op.lo,
            hi=op.hi,
        )

    return _around(op, x, y, order, x.size // x.itemsize // width, core, tables, "softmax", apart)


@layers_as(npu.Norm)
def norm(op: npu.Norm, graph: Graph, tensor: Tensors) -> Layer:
    """All kinds of norm."""
    x, y = tensor(op.x), tensor(op.y)
    rank = len(x.shape)
    gain, bias = graph.constant(op.gain), graph.constant(op.bias)
    assert gain is not None and bias is not None
    shift, epsilon, width = op.parameters
    entries = gain.size
    axis = op.axis % rank
    natural, apart = tuple(range(rank)), True
    if op.mode in ("instance", "group"):
        if rank != 4:
            raise NotHere(f"a norm of mode {op.mode} that is not over pictures")
        _, c, h, w = x.shape
        order, rows, apart = natural, x.shape[0] * op.groups, False
        by_channel = gain.size > 1
        entry = (op.groups, c // op.groups, h * w) if by_channel else (1, 0, c // op.groups * h * w)
    elif op.mode == "l2":
        order, apart = _inner(x, axis)
        rows = prod(x.shape) // x.shape[axis]
        entry = (1, 0, 1) if gain.size > 1 else (1, 0, max(width, 1))
    else:
        order, rows = natural, prod(x.shape[:axis])
        if rank == 4:
            order, apart = _inner(x, 3) if axis == 3 else (natural, False)
        entry = (1, 0, 1) if gain.size > 1 else (1, 0, max(width, 1))

    def core(x: Source, made: Result, places: Mapping[str, int], rows: int) -> Norm:
        return Norm(
            source=x,
            rows=rows,
            width=width,
            form=0,
            center=int(op.mode in ("layer", "instance", "group")),
            epsilon=epsilon,
            row_modulus=entry[0],
            row_factor=entry[1],
            column_divisor=entry[2],
            entries=entries,
            gain=constant(places, "gain"),
            bias=constant(places, "bias"),
            shift=shift,
            rounding=op.kind.row_rounding.code,
            result=made,
            zero_point=y.zero_point,
            lo=op.lo,
            hi=op.hi,
        )

    constants = {"gain": gain.astype("<i4"), "bias": bias.astype("<i8")}
    return _around(op, x, y, order, rows, core, constants, "norm", apart)


@layers_as(npu.ReduceSum, top.Reduce, top.ArgReduce)
def reduce(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Over axes that lie side by side in memory, or are brought there."""
    x, y = tensor(op.x), tensor(op.results[0])
    rank = len(x.shape)
    named = (op.axis,) if isinstance(op, top.ArgReduce) else tuple(op.axes)
    axes = tuple(sorted(axis % rank for axis in named)) or tuple(range(rank))
    if isinstance(op, npu.ReduceSum):
        mode, constants = 0, stage_constants(op)
    elif isinstance(op, top.Reduce):
        if op.kind not in ("max", "min"):
            raise NotHere(f"a reduction of kind {op.kind} has no integer form")
        mode, constants = (1 if op.kind == "max" else 2), {}
    else:
        mode, constants = (3 if op.max else 4), {}
    places, size = layout(constants)
    places_of = [x.order.index(axis) for axis in axes]
    together = [p for p in sorted(places_of) if x.memory_shape[p] > 1]
    dense = not together or together == list(range(together[0], together[-1] + 1))
    kept = [axis for axis in range(rank) if axis not in axes]
    # The result is in the memory order of what is kept; it has to be that of its own tensor.
    made_order = [axis for axis in (x.order if dense else kept) if axis not in axes and x.shape[axis] > 1]
    keepdims = op.keepdims
    back = [kept[axis] if not keepdims else axis for axis in y.order] if len(kept) or keepdims else []
    wanted_order = [axis for axis in back if axis not in axes and x.shape[axis] > 1]
    if made_order != wanted_order:
        dense = False
        made_order = [axis for axis in kept if x.shape[axis] > 1]
    count = prod(x.shape[axis] for axis in axes)
    if dense:
        low = together[0] if together else 0
        high = together[-1] + 1 if together else 0
        outer, inner = prod(x.memory_shape[:low]), prod(x.memory_shape[high:])
        if not together:
            outer, inner = 1, prod(x.memory_shape)
    else:
        order = (*kept, *axes)
        outer, inner = prod(x.shape[a] for a in kept), 1
    half = aligned(x.size)
    reorder = not dense and made_order != wanted_order

    finish = stage(op, places, 1) if mode == 0 else Stage(0, 0, ABSENT, ABSENT, 0, 0, 0)
    last = int(getattr(op, "select_last", False))

    # Rows of the operand that do not meet in a sum are rows of the result, and may come a few at a time.
    by_row = dense and x.rows == y.rows > 1 and outer % x.rows == 0

    def templates(tile: Tile) -> list[InstructionTemplate]:
        consts = (("const", 0, size),) if size else ()
        if dense:
            start, offset, parts, part = 0, 0, x.rows, outer
            if by_row:
                (r0, r1), parts = tile.rows, tile.rows[1] - tile.rows[0]
                start, offset = (r0 - tile.inputs[0][0]) * x.row_size, (r0 - tile.output[0]) * y.row_size
                part = outer // x.rows * (r1 - r0)
            made = Reduce(source(x, "in0", start), mode, last, part, count, inner, result(y, offset), finish)
            ends = start + parts * x.row_size, offset + (parts * y.row_size if by_row else y.size)
            reads = (("in0", start, ends[0]), *consts)
            return [InstructionTemplate(made, reads, (("out0", offset, ends[1]),))]
        moved = natural_strides(tuple(x.shape[axis] for axis in order))
        there = [(x.shape[axis], memory_strides(x)[axis], moved[i]) for i, axis in enumerate(order)]
        slot, at = ("scratch", half) if reorder else ("out0", 0)
        made = Reduce(source(x, "scratch"), mode, last, outer, count, inner, result(y, at, slot), finish)
        found = [
            copy(x, there, target="scratch"),
            InstructionTemplate(made, (("scratch", 0, x.size), *consts), ((slot, at, at + y.size),)),
        ]
        if reorder:
            dense_y = natural_strides(tuple(x.shape[a] for a in kept))
            by_axis = dict(zip(kept, dense_y, strict=True))
            logical = list(range(rank)) if keepdims else kept
            mine = memory_strides(y)
            axes_y = [(y.shape[i], by_axis.get(axis, 0), mine[i]) for i, axis in enumerate(logical)]
            found.append(copy(y, sorted(axes_y, key=lambda a: -a[2]), half // y.itemsize, source="scratch"))
        return found

    return Layer(
        name=y.name, kind="reduce", inputs=(x,), outputs=(y,), templates=templates,
        need=(lambda rows: (rows,)) if by_row else None,
        constants=lambda channels: constants, constant_size=lambda channels: size,
        scratch=lambda rows: 0 if dense else half + aligned(y.size), source=op,
    )  # fmt: skip


_WHOLE = 8 * 1024
"""Bytes of operand and result below which a resize is not worth the tables of its rows."""
_BLOCK = 16 * 1024
"""Bytes of the result that an instruction makes at least, where it makes some rows."""


@layers_as(npu.ResizeBilinear)
def resize_bilinear(op: npu.ResizeBilinear, graph: Graph, tensor: Tensors) -> Layer:
    """Whole pictures, or blocks of rows.

    An instruction has a table of the rows that it blends. That of a block counts from the first row that the block
    reads, so that blocks which lie alike between the rows of the operand share one.
    """
    x, y = tensor(op.x), tensor(op.y)
    tables = [
        interpolation(
            op.kind, x.shape[axis], op.sizes[axis], op.coordinates, op.scales[axis] if op.scales else None
        )
        for axis in (2, 3)
    ]
    constants = {
        name: np.concatenate([table.low, table.high, table.weight]).astype("<i4")
        for name, table in zip(("rows", "columns"), tables, strict=True)
    }
    n, c, h, w = x.shape
    out_h = y.shape[2]
    low, high, weight = tables[0].low, tables[0].high, tables[0].weight
    cuts = x.size + y.size > _WHOLE and y.rows > 1
    # Blocks of several pictures would not begin where pictures do.
    step = max(1, min(8, _BLOCK // y.row_size)) if n == 1 else 1
    shared: dict[bytes, int] = {}
    blocks: list[tuple[int, int, int]] = []
    """Of each block of a picture's rows: the first row that it reads, how many, and which table it has."""
    for r0 in range(0, out_h if cuts else 0, step):
        part = slice(r0, min(r0 + step, out_h))
        first, last = int(low[part].min()), int(high[part].max())
        entries = np.concatenate([low[part] - first, high[part] - first, weight[part]]).astype("<i4")
        if shared.setdefault(entries.tobytes(), len(shared)) == len(shared) - 1:
            constants.setdefault(f"rows{len(shared) - 1}", entries)
        blocks.append((first, last - first + 1, shared[entries.tobytes()]))
    places, size = layout(constants)

    def resize(
        pictures: int, rows: Rows, taken: int, table: str, start: int, offset: int
    ) -> InstructionTemplate:
        made = Resize(
            source=source(x, "in0", start),
            sizes=Sizes(pictures, taken, w, c, rows[1] - rows[0], y.shape[3]),
            rows=constant(places, table),
            columns=constant(places, "columns"),
            bits=tables[0].bits,
            rounding=op.kind.shift_rounding.code,
            result=result(y, offset),
        )
        reads = ("in0", start, start + pictures * taken * x.row_size)
        end = offset + pictures * (rows[1] - rows[0]) * y.row_size
        return InstructionTemplate(made, (reads, ("const", 0, size)), (("out0", offset, end),))

    def templates(tile: Tile) -> list[InstructionTemplate]:
        found = []
        for picture, count, (r0, r1) in pictures_of(tile.rows, out_h):
            before = picture * h - tile.inputs[0][0]
            offset = (picture * out_h + r0 - tile.output[0]) * y.row_size
            if (r0, r1) == (0, out_h):
                found.append(resize(count, (r0, r1), h, "rows", before * x.row_size, offset))
                continue
            for at in range(r0, r1, step):
                first, taken, table = blocks[at // step]
                rows = at, min(at + step, out_h)
                place = offset + (at - r0) * y.row_size
                found.append(resize(1, rows, taken, f"rows{table}", (before + first) * x.row_size, place))
        return found

    def need(rows: Rows) -> tuple[Rows, ...]:
        def one(part: Rows) -> Rows:
            return (0, h) if part == (0, out_h) else (int(low[part[0]]), int(high[part[1] - 1]) + 1)

        return (batch_rows(rows, out_h, h, one),)

    return Layer(
        name=y.name, kind="resize", inputs=(x,), outputs=(y,), templates=templates, need=need if cuts else None, granule=step,
        constants=lambda channels: constants, constant_size=lambda channels: size, source=op,
    )  # fmt: skip
