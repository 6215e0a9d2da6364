"""Softmax, normalization, reductions and bilinear resize: the vector engine over rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.ir import Graph, npu, top
from npuc.kernels.resampling import interpolation
from npuc.program.instruction import TypedInstruction
from npuc.program.instructions import Norm, Reduce, Resize, Result, Sizes, Softmax, Source, Stage, Topk
from npuc.schedule.constants import NO_CONSTANTS, Constants
from npuc.schedule.layers import InstructionTemplate, Layer, LayerOp, Place, Rows, Tensor, Tile, aligned
from npuc.schedule.rules import NotHere, Tensors, layers_as
from npuc.schedule.rules.common import (
    ABSENT,
    Requantization,
    batch_rows,
    constant,
    float_bits,
    images_of,
    is_float,
    requantization_of,
    result,
    source,
    turned,
)
from npuc.schedule.rules.movement import copy, memory_strides, natural_strides

_FLOAT_SOFTMAX, _FLOAT_NORM_BY_MEAN, _FLOAT_NORM_BY_SUM, _FLOAT_MEAN = 3, 2, 3, 5
"""Forms of the instructions `softmax` and `norm`, and a mode of `reduce`, that are of floats."""


@dataclass(frozen=True)
class RowwiseOp(LayerOp):
    """A layer that takes its operand with the logical axes in a certain order in memory, and gives its result so.

    Where memory has that order already, it is one instruction; otherwise copies through scratch memory stand around it.
    """

    x: Tensor
    y: Tensor
    order: tuple[int, ...]
    """The axes from the outermost in memory to the innermost."""
    total: int
    """Rows in that order: the last one or more axes are the elements of a row."""
    independent_rows: bool
    """Whether the rows of the tensor do not depend on each other, and may come a few at a time."""
    tables: Constants

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], rows: int) -> TypedInstruction:
        """The instruction of so many rows, with constants at `places`."""
        raise NotImplementedError

    @property
    def shared_constants(self) -> Constants:
        """The tables."""
        return self.tables

    @cached_property
    def in_order(self) -> bool:
        """Whether memory has the order."""
        return self.x.order == self.order or _same_bytes(self.x, self.order)

    @cached_property
    def by_rows(self) -> bool:
        """Where rows are independent and whole ones of the order."""
        x = self.x
        possible = self.independent_rows and x.rows > 1 and not self.total % x.rows
        return possible and x.shape == self.y.shape and (self.in_order or x.is_image)

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows."""
        return (rows,)

    def scratch(self, rows: Rows) -> int:
        """The operand and the result in the order of the instruction."""
        part = rows[1] - rows[0]
        return 0 if self.in_order else aligned(part * self.x.row_size) + aligned(part * self.y.row_size)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One instruction, perhaps between two copies."""
        x, y, order, block = self.x, self.y, self.order, self.tables
        (r0, r1), i0 = tile.rows, tile.inputs[0][0]
        start, offset = (r0 - i0) * x.row_size, (r0 - tile.output[0]) * y.row_size
        length = (r1 - r0) * x.row_size
        half = aligned(length)
        before, after = ("in0", start), ("out0", offset)
        if not self.in_order:
            before, after = ("scratch", 0), ("scratch", half)
        end = after[1] + (r1 - r0) * y.row_size
        count = self.total // x.rows * (r1 - r0) if self.by_rows else self.total
        computation = InstructionTemplate(
            self.instruction(source(x, *before), result(y, after[1], after[0]), block.places, count),
            (
                (before[0], before[1], before[1] + length),
                *((("const", 0, block.size),) if block.size else ()),
            ),
            ((*after, end),),
        )
        if self.in_order:
            return [computation]
        rows = r1 - r0 if self.by_rows else None
        return [
            turned(x, order, Place("in0", start), Place("scratch"), rows),
            computation,
            turned(y, order, Place("scratch", half), Place("out0", offset), rows, back=True),
        ]


def _inner(x: Tensor, axis: int) -> tuple[tuple[int, ...], bool]:
    """An order of the axes with one of them innermost, and whether the rows of an image are apart in it."""
    if axis == x.order[-1]:
        return x.order, True
    rest = [i for i in ((0, 2, 1, 3) if len(x.shape) == 4 else range(len(x.shape))) if i != axis]
    return (*rest, axis), len(x.shape) == 4 and axis != 2


def _same_bytes(x: Tensor, order: tuple[int, ...]) -> bool:
    long = [axis for axis in x.order if x.shape[axis] > 1]
    return long == [axis for axis in order if x.shape[axis] > 1]


@dataclass(frozen=True)
class SoftmaxOp(RowwiseOp):
    """Softmax along the innermost axis of the order."""

    kind: Kind
    width: int
    form: int
    """0: by two tables of exponentials, 1 and 2: as TFLite computes it, of 8 and of 16 bits."""
    multiplier: int
    shift: int
    diff_min: int
    lo: int
    hi: int

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], rows: int) -> Softmax:
        """The instruction of so many rows."""
        return Softmax(
            source=x,
            rows=rows,
            width=self.width,
            form=self.form,
            coarse=constant(places, "coarse"),
            fine=constant(places, "fine"),
            multiplier=self.multiplier,
            shift=self.shift,
            diff_min=self.diff_min,
            rounding=self.kind.row_rounding.code,
            result=y,
            zero_point=self.y.zero_point,
            lo=self.lo,
            hi=self.hi,
        )


@layers_as(npu.Softmax)
def softmax(op: npu.Softmax, graph: Graph, tensor: Tensors) -> Layer:
    """Along one axis, which becomes the innermost."""
    x, y = tensor(op.x), tensor(op.y)
    axis = op.axis % len(x.shape)
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
    computed = SoftmaxOp(
        x, y, order, x.size // x.itemsize // width, apart, Constants(tables),
        op.kind, width, form, multiplier, left if form == 1 else shift, diff_min, op.lo, op.hi,
    )  # fmt: skip
    return Layer(y.name, "softmax", (x,), (y,), computed, source=op)


@dataclass(frozen=True)
class FloatSoftmaxOp(RowwiseOp):
    """Softmax of floats along the innermost axis of the order."""

    width: int

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], rows: int) -> Softmax:
        """The instruction of so many rows."""
        return Softmax(
            source=x,
            rows=rows,
            width=self.width,
            form=_FLOAT_SOFTMAX,
            coarse=ABSENT,
            fine=ABSENT,
            multiplier=0,
            shift=0,
            diff_min=0,
            rounding=0,
            result=y,
            zero_point=0,
            lo=0,
            hi=0,
        )


@layers_as(npu.FloatSoftmax)
def float_softmax(op: npu.FloatSoftmax, graph: Graph, tensor: Tensors) -> Layer:
    """Along one axis, which becomes the innermost."""
    x, y = tensor(op.x), tensor(op.y)
    axis = op.axis % len(x.shape)
    order, apart = _inner(x, axis)
    width = x.shape[axis]
    computed = FloatSoftmaxOp(x, y, order, x.size // x.itemsize // width, apart, NO_CONSTANTS, width)
    return Layer(y.name, "softmax", (x,), (y,), computed, source=op)


@dataclass(frozen=True)
class NormOp(RowwiseOp):
    """A normalization of each row, then a gain and a bias for each entry of their tables."""

    kind: Kind
    width: int
    center: bool
    """Whether the mean is subtracted."""
    epsilon: int
    shift: int
    entry: tuple[int, int, int]
    """The entry of row r and column c, by (m, f, d): r % m * f + c // d."""
    lo: int
    hi: int
    form: int
    """As the instruction has it: 0 the general one, 1 TFLite's L2 of 8 bits, which has no tables."""

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], rows: int) -> Norm:
        """The instruction of so many rows."""
        return Norm(
            source=x,
            rows=rows,
            width=self.width,
            form=self.form,
            center=int(self.center),
            epsilon=self.epsilon,
            row_modulus=self.entry[0],
            row_factor=self.entry[1],
            column_divisor=self.entry[2],
            entries=self.tables["gain"].size if self.tables else 0,
            gain=constant(places, "gain"),
            bias=constant(places, "bias"),
            shift=self.shift,
            rounding=self.kind.row_rounding.code,
            result=y,
            zero_point=self.y.zero_point,
            lo=self.lo,
            hi=self.hi,
        )


@dataclass(frozen=True)
class FloatNormOp(RowwiseOp):
    """A normalization of floats, then a gain and a bias for each entry of their tables."""

    width: int
    center: bool
    """Whether the mean is subtracted."""
    by_sum: bool
    """Whether rows are divided by the root of the sum of their squares, not of the mean."""
    epsilon: float
    entry: tuple[int, int, int]
    """The entry of row r and column c, by (m, f, d): r % m * f + c // d."""

    def instruction(self, x: Source, y: Result, places: Mapping[str, int], rows: int) -> Norm:
        """The instruction of so many rows."""
        return Norm(
            source=x,
            rows=rows,
            width=self.width,
            form=_FLOAT_NORM_BY_SUM if self.by_sum else _FLOAT_NORM_BY_MEAN,
            center=int(self.center),
            epsilon=float_bits(self.epsilon),
            row_modulus=self.entry[0],
            row_factor=self.entry[1],
            column_divisor=self.entry[2],
            entries=self.tables["gain"].size,
            gain=constant(places, "gain"),
            bias=constant(places, "bias"),
            shift=0,
            rounding=0,
            result=y,
            zero_point=0,
            lo=0,
            hi=0,
        )


@dataclass(frozen=True)
class NormRows:
    """How the elements of a tensor form the rows of a normalization."""

    order: tuple[int, ...]
    """The axes from the outermost in memory to the innermost."""
    rows: int
    width: int
    independent: bool
    """Whether rows of the tensor do not depend on each other."""
    entry: tuple[int, int, int]
    """The entry of gain and bias of row r and column c, by (m, f, d): r % m * f + c // d."""


def _norm_rows(op: npu.Norm | npu.FloatNorm, x: Tensor, entries: int) -> NormRows:
    """Rows by the mode of a norm, whose gain and bias have so many entries."""
    rank = len(x.shape)
    axis, natural, several = op.axis % rank, tuple(range(rank)), entries > 1
    if op.mode in ("instance", "group"):
        if rank != 4:
            raise NotHere(f"a norm of mode {op.mode} that is not over images")
        n, c, h, w = x.shape
        each = c // op.groups
        entry = (op.groups, each, h * w) if several else (1, 0, each * h * w)
        return NormRows(natural, n * op.groups, each * h * w, False, entry)
    if op.mode == "l2":
        order, apart = _inner(x, axis)
        rows, width = prod(x.shape) // x.shape[axis], x.shape[axis]
    else:
        order, apart, rows, width = natural, True, prod(x.shape[:axis]), prod(x.shape[axis:])
        if rank == 4:
            order, apart = _inner(x, 3) if axis == 3 else (natural, False)
    return NormRows(order, rows, width, apart, (1, 0, 1) if several else (1, 0, max(width, 1)))


_CENTERED = ("layer", "instance", "group")
"""Modes of a norm that subtract the mean."""


@layers_as(npu.Norm, npu.FloatNorm)
def norm(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """All kinds of norm."""
    x, y = tensor(op.x), tensor(op.y)
    gain, bias = graph.constant(op.gain), graph.constant(op.bias)
    assert gain is not None and bias is not None
    rows = _norm_rows(op, x, gain.size)
    where = x, y, rows.order, rows.rows, rows.independent
    center = op.mode in _CENTERED
    computed: RowwiseOp
    if isinstance(op, npu.FloatNorm):
        tables = Constants({"gain": gain.astype("<f4"), "bias": bias.astype("<f4")})
        computed = FloatNormOp(*where, tables, rows.width, center, op.mode == "l2", op.epsilon, rows.entry)
    else:
        shift, epsilon, width = op.parameters
        form = int(op.mode == "l2" and op.kind is Kind.DOUBLE_ROUNDING and x.itemsize == 1)
        arrays = {} if form else {"gain": gain.astype("<i4"), "bias": bias.astype("<i8")}
        computed = NormOp(
            *where, Constants(arrays), op.kind, width, center, epsilon, shift, rows.entry, op.lo, op.hi, form
        )
    return Layer(y.name, "norm", (x,), (y,), computed, source=op)


@dataclass(frozen=True)
class ReduceOp(LayerOp):
    """A sum, an extreme or its index over some axes.

    The axes lie side by side in memory and the result comes out in the order of its own memory, or the operand is brought
    into an order in which that holds, in scratch memory.
    """

    x: Tensor
    y: Tensor
    mode: int
    """As the instruction has it: 0 a sum, 1 and 2 the greatest and the least, 3 and 4 the index of those, 5 a mean of floats."""
    axes: tuple[int, ...]
    keepdims: bool
    select_last: bool
    """Of several equal extremes, the index of the last."""
    requantization: Requantization | None
    """Of a sum."""

    @property
    def shared_constants(self) -> Constants:
        """The requantization of a sum."""
        return NO_CONSTANTS if self.requantization is None else self.requantization.parameters

    @cached_property
    def kept(self) -> list[int]:
        """The axes that are left."""
        return [axis for axis in range(len(self.x.shape)) if axis not in self.axes]

    @cached_property
    def _together(self) -> list[int]:
        """Where the axes are in memory, but for those of one element."""
        places = sorted(self.x.order.index(axis) for axis in self.axes)
        return [place for place in places if self.x.memory_shape[place] > 1]

    def _long(self, axes: Iterable[int]) -> list[int]:
        """Those of some axes that are left and have several elements."""
        return [axis for axis in axes if axis not in self.axes and self.x.shape[axis] > 1]

    @cached_property
    def _result_order(self) -> list[int]:
        """The axes of the operand in the order of the result's memory."""
        if not self.kept and not self.keepdims:
            return []
        return self._long(axis if self.keepdims else self.kept[axis] for axis in self.y.order)

    @cached_property
    def dense(self) -> bool:
        """Whether one instruction does it, on the operand as it lies."""
        together = self._together
        side_by_side = not together or together == list(range(together[0], together[-1] + 1))
        if is_float(self.x) and self.mode in (0, _FLOAT_MEAN):
            # The order of a sum of floats is that of the logical axes.
            logical = sorted(axis for axis in self.axes if self.x.shape[axis] > 1)
            side_by_side = side_by_side and [self.x.order[place] for place in together] == logical
        return side_by_side and self._long(self.x.order) == self._result_order

    @cached_property
    def reorders_result(self) -> bool:
        """Whether the result has to be brought into order too."""
        return not self.dense and self._long(self.kept) != self._result_order

    @cached_property
    def loops(self) -> tuple[int, int]:
        """Elements outside of the axes and inside of them, in memory."""
        x, together = self.x, self._together
        if not self.dense:
            return prod(x.shape[axis] for axis in self.kept), 1
        if not together:
            return 1, prod(x.memory_shape)
        return prod(x.memory_shape[: together[0]]), prod(x.memory_shape[together[-1] + 1 :])

    @cached_property
    def by_rows(self) -> bool:
        """Rows of the operand that do not meet in a sum are rows of the result."""
        return self.dense and self.x.rows == self.y.rows > 1 and self.loops[0] % self.x.rows == 0

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows."""
        return (rows,)

    def scratch(self, rows: Rows) -> int:
        """The operand and the result in the order of the instruction."""
        return 0 if self.dense else aligned(self.x.size) + aligned(self.y.size)

    def _instruction(self, x: Source, outer: int, y: Result) -> Reduce:
        count = prod(self.x.shape[axis] for axis in self.axes)
        stage = Stage(0, 0, ABSENT, ABSENT, 0, 0, 0)
        if self.requantization is not None:
            stage = self.requantization.stage(self.shared_constants.places)
        return Reduce(x, self.mode, int(self.select_last), outer, count, self.loops[1], y, stage)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One instruction, perhaps between copies."""
        x, y = self.x, self.y
        size, outer = self.shared_constants.size, self.loops[0]
        constants = (("const", 0, size),) if size else ()
        if self.dense:
            start, offset, rows = 0, 0, x.rows
            if self.by_rows:
                r0, rows = tile.rows[0], tile.rows[1] - tile.rows[0]
                start, offset = (r0 - tile.inputs[0][0]) * x.row_size, (r0 - tile.output[0]) * y.row_size
                outer = outer // x.rows * rows
            reduction = self._instruction(source(x, "in0", start), outer, result(y, offset))
            ends = start + rows * x.row_size, offset + (rows * y.row_size if self.by_rows else y.size)
            reads = (("in0", start, ends[0]), *constants)
            return [InstructionTemplate(reduction, reads, (("out0", offset, ends[1]),))]
        order = (*self.kept, *self.axes)
        moved = natural_strides(tuple(x.shape[axis] for axis in order))
        there = [(x.shape[axis], memory_strides(x)[axis], moved[i]) for i, axis in enumerate(order)]
        half = aligned(x.size)
        slot, at = ("scratch", half) if self.reorders_result else ("out0", 0)
        reduction = self._instruction(source(x, "scratch"), outer, result(y, at, slot))
        templates = [
            copy(x, there, target="scratch"),
            InstructionTemplate(reduction, (("scratch", 0, x.size), *constants), ((slot, at, at + y.size),)),
        ]
        if self.reorders_result:
            dense_y = natural_strides(tuple(x.shape[axis] for axis in self.kept))
            by_axis = dict(zip(self.kept, dense_y, strict=True))
            logical = list(range(len(x.shape))) if self.keepdims else self.kept
            mine = memory_strides(y)
            axes_y = [(y.shape[i], by_axis.get(axis, 0), mine[i]) for i, axis in enumerate(logical)]
            back = sorted(axes_y, key=lambda axis: -axis[2])
            templates.append(copy(y, back, half // y.itemsize, source="scratch"))
        return templates


@layers_as(npu.ReduceSum, npu.FloatReduce, top.Reduce, top.ArgReduce)
def reduce(op: Any, graph: Graph, tensor: Tensors) -> Layer:
    """Over axes that lie side by side in memory, or are brought there."""
    x, y = tensor(op.x), tensor(op.results[0])
    rank = len(x.shape)
    named = (op.axis,) if isinstance(op, top.ArgReduce) else tuple(op.axes)
    axes = tuple(sorted(axis % rank for axis in named)) or tuple(range(rank))
    requantization = None
    if isinstance(op, npu.ReduceSum):
        mode, requantization = 0, requantization_of(op)
    elif isinstance(op, npu.FloatReduce):
        mode = {"sum": 0, "max": 1, "min": 2, "mean": _FLOAT_MEAN}[op.kind]
    elif isinstance(op, top.Reduce):
        if op.kind not in ("max", "min"):
            raise NotHere(f"a reduction of kind {op.kind} has no integer form")
        mode = 1 if op.kind == "max" else 2
    else:
        mode = 3 if op.max else 4
    last = bool(getattr(op, "select_last", False))
    computed = ReduceOp(x, y, mode, axes, bool(op.keepdims), last, requantization)
    return Layer(y.name, "reduce", (x,), (y,), computed, source=op)


@dataclass(frozen=True)
class TopKOp(LayerOp):
    """The best along an axis, in order, and their places, as far as they are needed."""

    x: Tensor
    outputs: tuple[Tensor, ...]
    places: tuple[bool, ...]
    """Of each output, whether it has places."""
    axis: int
    k: int
    largest: bool

    @cached_property
    def _at(self) -> int:
        """Where the axis lies in memory."""
        return self.x.order.index(self.axis)

    @cached_property
    def by_rows(self) -> bool:
        """A row has all that it chooses from."""
        inside = self._at >= (2 if self.x.channels_last else len(self.x.shape) - 1)
        return len(self.outputs) == 1 and inside and self.x.rows > 1

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """The same rows."""
        return (rows,)

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """One instruction for each output."""
        x, rows, start = self.x, self.x.rows, 0
        outer = prod(x.memory_shape[: self._at])
        if self.by_rows:
            rows = tile.rows[1] - tile.rows[0]
            start = (tile.rows[0] - tile.inputs[0][0]) * x.row_size
            outer = outer // x.rows * rows
        templates = []
        for index, (y, places) in enumerate(zip(self.outputs, self.places, strict=True)):
            offset = (tile.rows[0] - tile.output[0]) * y.row_size if self.by_rows else 0
            size = rows * y.row_size if self.by_rows else y.size
            best = Topk(
                source(x, "in0", start),
                int(places),
                int(self.largest),
                outer,
                x.shape[self.axis],
                prod(x.memory_shape[self._at + 1 :]),
                self.k,
                result(y, offset, f"out{index}"),
            )
            read = ("in0", start, start + rows * x.row_size)
            templates.append(InstructionTemplate(best, (read,), ((f"out{index}", offset, offset + size),)))
        return templates


@layers_as(top.TopK)
def top_k(op: top.TopK, graph: Graph, tensor: Tensors) -> Layer:
    """The values, the places, or both: what nobody reads is not made."""
    x = tensor(op.x)
    needed = [index for index, part in enumerate(op.parts) if part.first_use is not None] or [0]
    outputs = tuple(tensor(op.parts[index]) for index in needed)
    places = tuple(index == 1 for index in needed)
    computed = TopKOp(x, outputs, places, op.axis % len(x.shape), op.k, op.largest)
    return Layer(outputs[0].name, "topk", (x,), outputs, computed, source=op)


_WHOLE = 8 * 1024
"""Bytes of operand and result below which a resize is not worth the tables of its rows."""
_BLOCK = 16 * 1024
"""Bytes of the result that an instruction makes at least, where it makes some rows."""


@dataclass(frozen=True)
class ResizeOp(LayerOp):
    """A bilinear resize of whole images, or of blocks of rows.

    An instruction has a table of the rows that it blends. That of a block counts from the first row that the block
    reads, so that blocks which lie alike between the rows of the operand share one.
    """

    x: Tensor
    y: Tensor
    kind: Kind
    bits: int
    """Of the weights."""
    maps: Constants
    """`rows` and `columns`, each with three numbers for every row or column of the result: those of the operand before and
    behind, and the weight of the second."""

    @cached_property
    def by_rows(self) -> bool:
        """Where that is worth the tables."""
        return self.x.size + self.y.size > _WHOLE and self.y.rows > 1

    @cached_property
    def step(self) -> int:
        """Rows of a block. Blocks of several images would not begin where images do."""
        return max(1, min(8, _BLOCK // self.y.row_size)) if self.x.shape[0] == 1 else 1

    @cached_property
    def _row_map(self) -> Array:
        """Of each row of an image: the row before, the row behind, and the weight."""
        return self.maps["rows"].reshape(3, -1)

    @cached_property
    def _tables(self) -> tuple[Constants, list[tuple[int, int, int]]]:
        """The constants, and of each block of an image's rows: the first row that it reads, how many, and which table it
        has."""
        constants, tables = dict(self.maps), dict[bytes, int]()
        blocks = []
        for r0 in range(0, self.y.shape[2] if self.by_rows else 0, self.step):
            low, high, weight = self._row_map[:, r0 : r0 + self.step]
            first, last = int(low.min()), int(high.max())
            entries = np.concatenate([low - first, high - first, weight])
            number = tables.setdefault(entries.tobytes(), len(tables))
            constants.setdefault(f"rows{number}", entries)
            blocks.append((first, last - first + 1, number))
        return Constants(constants), blocks

    @property
    def shared_constants(self) -> Constants:
        """The maps, and those of blocks."""
        return self._tables[0]

    def operand_rows(self, rows: Rows) -> tuple[Rows, ...]:
        """Those that the rows lie between."""
        return (batch_rows(rows, self.y.shape[2], self.x.shape[2], self._image_rows),)

    def _image_rows(self, rows: Rows) -> Rows:
        """The same for one image."""
        if rows == (0, self.y.shape[2]):
            return 0, self.x.shape[2]
        low, high, _ = self._row_map
        return int(low[rows[0]]), int(high[rows[1] - 1]) + 1

    def _resize(
        self, images: int, rows: int, taken: int, table: str, start: int, offset: int
    ) -> InstructionTemplate:
        x, y, block = self.x, self.y, self.shared_constants
        resize = Resize(
            source=source(x, "in0", start),
            sizes=Sizes(images, taken, x.shape[3], x.shape[1], rows, y.shape[3]),
            rows=constant(block.places, table),
            columns=constant(block.places, "columns"),
            bits=self.bits,
            rounding=self.kind.shift_rounding.code,
            result=result(y, offset),
        )
        reads = ("in0", start, start + images * taken * x.row_size)
        end = offset + images * rows * y.row_size
        return InstructionTemplate(resize, (reads, ("const", 0, block.size)), (("out0", offset, end),))

    def templates(self, tile: Tile) -> list[InstructionTemplate]:
        """An instruction for every run of whole images, and for every block of rows before and behind."""
        x, y, step = self.x, self.y, self.step
        height, blocks = y.shape[2], self._tables[1]
        templates = []
        for image, count, (r0, r1) in images_of(tile.rows, height):
            before = image * x.shape[2] - tile.inputs[0][0]
            offset = (image * height + r0 - tile.output[0]) * y.row_size
            if (r0, r1) == (0, height):
                start = before * x.row_size
                templates.append(self._resize(count, height, x.shape[2], "rows", start, offset))
                continue
            for at in range(r0, r1, step):
                first, taken, table = blocks[at // step]
                rows = min(at + step, height) - at
                start, place = (before + first) * x.row_size, offset + (at - r0) * y.row_size
                templates.append(self._resize(1, rows, taken, f"rows{table}", start, place))
        return templates


@layers_as(npu.ResizeBilinear)
def resize_bilinear(op: npu.ResizeBilinear, graph: Graph, tensor: Tensors) -> Layer:
    """Whole images, or blocks of rows."""
    x, y = tensor(op.x), tensor(op.y)
    rows, columns = (
        interpolation(
            op.kind, x.shape[axis], op.sizes[axis], op.coordinates, op.scales[axis] if op.scales else None
        )
        for axis in (2, 3)
    )
    maps = {
        name: np.concatenate([table.low, table.high, table.weight]).astype("<i4")
        for name, table in (("rows", rows), ("columns", columns))
    }
    computed = ResizeOp(x, y, op.kind, rows.bits, Constants(maps))
    return Layer(y.name, "resize", (x,), (y,), computed, granule=computed.step, source=op)
