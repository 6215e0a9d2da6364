"""Softmax, integer by integer as docs/arithmetic-softmax.md has it for one rounding.

Exponentials are looked up as 32-bit numbers. Their sum may have more than 32 bits, and is made of two: that of their upper and
that of their lower 15 bits. Of its reciprocal every bit counts, as graph mode divides exactly: Newton's steps come close to it,
and what is left of the dividend, known exactly, tells by how much they miss it. Products have 64 bits before they are shifted,
which is the chip's own arithmetic, so the last steps are those of graph mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.ir import Graph, npu, shape_of
from npuc.program.bm1684x.commands import LANE_BYTES, LANES
from npuc.schedule.bm1684x.chip_ops import (
    ChipLayer,
    ChipTile,
    chip_rule,
    lane_need,
    viewed,
    zero_point,
)
from npuc.schedule.bm1684x.layout import (
    LARGEST,
    LaneRecord,
    LocalTensor,
    Shape,
    rows_in_lanes,
)
from npuc.schedule.bm1684x.planes import Plane, greatest, halves, total
from npuc.schedule.bm1684x.straight_line import Step, StraightLine
from npuc.schedule.bm1684x.work import (
    ADD,
    ADD_WITHIN,
    AND,
    FLOOR,
    HALF_UP,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    SHIFT,
    SUBTRACT,
    Builder,
    constant,
    shift_by,
)
from npuc.schedule.rules import NotHere

_LOWER = 15
"""Bits of the lower part of an exponential."""
_LONGEST = 8192
"""Elements of a row."""


def reciprocals(width: int, multiplier: int) -> StraightLine:
    """From the sums `high` and `low` of a row, of upper and lower bits, to `factor` and `shift` of its results.

    With S the sum, b its bits and t = b - 31: the divisor S' has 32 bits, S' = 2^31 + a; its inverse r, the whole number next to
    2^62 / S', is 2^31 - n, and n the one next to 2^31 a / S'. The rest of a quotient n is 2^31 (a - n) - n a, of which the
    upper bits tell how far n is off, and in the end all bits whether it is one too low.
    """
    return StraightLine(
        (*_divisor(width), *_quotient(), *_results(multiplier)), ("high", "low"), ("factor", "shift")
    )


def _divisor(width: int) -> Iterator[Step]:
    """`t`, and `a` within 31 bits: a divisor of 2^32 has the inverse of 2^32 - 1."""
    yield Step("carry", SHIFT, "low", -_LOWER)
    yield Step("upper", ADD, "high", "carry")
    yield Step("lower", AND, "low", (1 << _LOWER) - 1)
    counted = width.bit_length() - 1
    if not counted:
        yield Step("t", AND, "low", 0)
    for bit in range(counted):  # whether the sum has more bits than 31 + bit
        yield Step(f"above {bit}", SHIFT, "upper", -(31 - _LOWER + bit))
        yield Step(f"bit {bit}" if bit or counted > 1 else "t", MINIMUM, f"above {bit}", 1)
        if bit:
            before = "bit 0" if bit == 1 else f"count {bit - 1}"
            yield Step("t" if bit == counted - 1 else f"count {bit}", ADD, before, f"bit {bit}")
    yield Step("left", SUBTRACT, 31 - _LOWER, "t")
    yield Step("shifted", SHIFT, "upper", "left")
    yield Step("most", ADD, "shifted", -(1 << 31))
    yield Step("right", SUBTRACT, 1, "t")
    yield Step("rest", SHIFT, "lower", "right", rounding=HALF_UP)
    yield Step("a", ADD_WITHIN, "most", "rest")


def _quotient() -> Iterator[Step]:
    """`n` of `a`."""
    unit = 1 << 30
    yield Step("minus a", SUBTRACT, 0, "a")
    yield Step("slope", MULTIPLY, "a", round(unit * 8 / 17), right=31)
    yield Step("v 0", SUBTRACT, round(unit * 16 / 17), "slope")  # of 1 / (1 + a), 30 bits behind the point
    for i in range(3):
        yield Step(f"part {i}", MULTIPLY, "a", f"v {i}", right=31)
        yield Step(f"product {i}", ADD, f"part {i}", f"v {i}")
        yield Step(f"error {i}", SUBTRACT, unit, f"product {i}")
        yield Step(f"step {i}", MULTIPLY, f"v {i}", f"error {i}", right=30)
        yield Step(f"v {i + 1}", ADD, f"v {i}", f"step {i}")
    yield Step("half n", SUBTRACT, unit, "v 3")
    yield Step("n 0", ADD, "half n", "half n")
    yield from _upper_rest("0")
    # The rest over the divisor, rounded, but not up where it is close to one half.
    yield Step("steps", MULTIPLY, "upper rest 0", "v 3", right=25)
    yield Step("biased", ADD, "steps", (1 << 19) - (1 << 7))
    yield Step("correction", SHIFT, "biased", -20)
    yield Step("n 1", ADD, "n 0", "correction")
    yield from _upper_rest("1")
    yield Step("low product", MULTIPLY, "n 1", "minus a")
    yield Step("lower rest", AND, "low product", 0xFFFF)
    yield Step("half a", SHIFT, "a", -1)
    yield Step("half", ADD, "half a", unit)
    yield Step("upper half", SHIFT, "half", -16)
    yield Step("lower half", AND, "half", 0xFFFF)
    yield Step("upper gap", SUBTRACT, "upper rest 1", "upper half")
    yield Step("near gap", MAXIMUM, "upper gap", -(1 << 14))
    yield Step("wide gap", SHIFT, "near gap", 16)
    yield Step("lower gap", SUBTRACT, "lower rest", "lower half")
    yield Step("gap", ADD, "wide gap", "lower gap")
    yield Step("positive", MAXIMUM, "gap", 0)
    yield Step("one more", MINIMUM, "positive", 1)
    yield Step("n", ADD, "n 1", "one more")


def _upper_rest(which: str) -> Iterator[Step]:
    """(2^31 (a - n) - n a) / 2^16, rounded down."""
    yield Step(f"difference {which}", SUBTRACT, "a", f"n {which}")
    yield Step(f"raised {which}", SHIFT, f"difference {which}", 15)
    yield Step(f"taken {which}", MULTIPLY, f"n {which}", "minus a", right=16)
    yield Step(f"upper rest {which}", ADD, f"raised {which}", f"taken {which}")


def _results(multiplier: int) -> Iterator[Step]:
    """half_up(r m, 31), and how far products of it go to the left after all that they have in common."""
    yield Step("less", MULTIPLY, "n", -multiplier, right=31, rounding=HALF_UP)
    yield Step("factor", ADD, "less", multiplier)
    yield Step("shift", SUBTRACT, -1, "t")


@dataclass(frozen=True)
class ChipSoftmax(ChipLayer):
    """Rows along the innermost axis."""

    multiplier: int
    right: int
    zero: int
    low: int
    high: int

    @property
    def numbers(self) -> StraightLine:
        """What becomes of the sums of a row."""
        return reciprocals(self.result.shape[3], self.multiplier)

    def scratch(self, rows: int) -> int:
        """Planes of a tile."""
        return sum(self._sizes(self._shape(rows)))

    def _shape(self, rows: int) -> Shape:
        return self.tile_shape(rows)

    def _sizes(self, shape: Shape) -> list[int]:
        """Bytes of a lane: the greatest elements in halves, distances from them, exponentials, parts of these, sums in halves,
        numbers of rows."""
        words = LocalTensor(0, shape, 4).size
        numbers = self.numbers.planes * LocalTensor(0, (*shape[:3], 1), 4).size
        return [
            *halves(shape, "i8"),
            LocalTensor(0, shape).size,
            words,
            words,
            *halves(shape, "i32"),
            numbers,
        ]

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """Rows in lanes."""
        (x,), y = tile.inputs, tile.output
        self.rows(build, x, y, tile.record(0), tile.scratch)

    def rows(self, build: Builder, x: LocalTensor, y: LocalTensor, table: int, room: int) -> None:
        """The softmax of rows (1, c, rows, columns)."""
        shape = x.shape
        places = []
        for size in self._sizes(shape):
            places.append(room)
            room += size
        tops, distances_at, words_at, parts_at, sums, numbers_at = (
            (places[0], places[1]), places[2], places[3], places[4], (places[5], places[6]), places[7],
        )  # fmt: skip
        given, distances = Plane(x.address, shape, "i8"), Plane(distances_at, shape, "i8")
        top = greatest(build, given, (tops[0], tops[1]))
        build.elementwise(SUBTRACT, shape, distances.whole, top.spread, given.whole)
        exponentials, parts = Plane(words_at, shape, "i32"), Plane(parts_at, shape, "i32")
        build.look_up(distances.tensor, exponentials.tensor, table)
        numbers = self.numbers
        step = LocalTensor(0, (*shape[:3], 1), 4).size
        columns = [Plane(numbers_at + i * step, (*shape[:3], 1), "i32") for i in range(numbers.planes)]
        build.elementwise(SHIFT, shape, parts.whole, exponentials.whole, shift_by(-_LOWER), rounding=FLOOR)
        total(build, parts, sums, columns[numbers.places["high"]])
        build.elementwise(AND, shape, parts.whole, exponentials.whole, constant((1 << _LOWER) - 1))
        total(build, parts, sums, columns[numbers.places["low"]])
        numbers.emit(build, columns)
        factor, shift = (columns[numbers.places[name]].spread for name in ("factor", "shift"))
        build.elementwise(MULTIPLY, shape, parts.whole, exponentials.whole, factor, right=self.right, rounding=FLOOR)  # fmt: skip
        build.elementwise(SHIFT, shape, exponentials.whole, parts.whole, shift, rounding=HALF_UP)
        result = Plane(y.address, shape, "i8")
        build.elementwise(ADD_WITHIN, shape, result.whole, exponentials.whole, constant(self.zero))
        build.clip(y, self.low, self.high)


@dataclass(frozen=True)
class ChipSoftmaxOfChannels(ChipSoftmax):
    """Channels of each pixel: pixels become the lanes, and channels again."""

    def _shape(self, rows: int) -> Shape:
        _, c, _, w = self.result.shape
        return 1, rows * w, 1, c

    @property
    def numbers(self) -> StraightLine:
        """What becomes of the sums of a pixel."""
        return reciprocals(self.result.shape[1], self.multiplier)

    def scratch(self, rows: int) -> int:
        """The same of pixels, and these twice."""
        shape = self._shape(rows)
        return sum(self._sizes(shape)) + 2 * LocalTensor(0, shape).size

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """Image by image."""
        (x,), y = tile.inputs, tile.output
        table = tile.record(0)
        shape = self._shape(y.shape[2])
        turned, done = (LocalTensor(tile.scratch + i * LocalTensor(0, shape).size, shape) for i in (0, 1))
        flat = (1, y.shape[1], 1, shape[1])
        for n in range(y.shape[0]):
            build.transpose(LocalTensor(x.row(n, 0), flat), turned)
            self.rows(build, turned, done, table, done.address + done.size)
            build.transpose(done, LocalTensor(y.row(n, 0), flat))


@chip_rule(npu.Softmax)
def softmax(op: Any, graph: Graph) -> ChipLayer:
    """Along any axis."""
    shape = shape_of(op.x)
    axis = op.axis % len(shape)
    multiplier, shift = op.parameters[:2]
    if op.kind is not Kind.SINGLE_ROUNDING:
        raise NotHere(f"the softmax of the BM1684X has the rounding single_rounding, and this {op.kind}")
    if shape[axis] > _LONGEST:
        raise NotHere(
            f"npuc has commands of the BM1684X for rows of up to {_LONGEST:,} elements of a softmax"
        )
    if not 1 <= shift <= 33:
        raise NotHere("the scale of its result is too far from those of probabilities")
    fine = graph.constant(op.fine)
    assert fine is not None
    record = LaneRecord(LANES)
    record.add("exponentials", np.tile(_words(fine), (LANES, 1)), 1024)
    numbers = (multiplier, 29 + shift, zero_point(op.y), op.lo, op.hi)
    for kind, view in _views(shape, axis):
        if max(view) > LARGEST:
            continue
        layer = kind((viewed(op.x, view),), viewed(op.y, view), *numbers, records=(record,), banks=True)
        if lane_need(layer, 1, view[2]) + record.size <= LANE_BYTES:
            return layer
    raise NotHere("its rows do not fit the lanes of the BM1684X")


def _views(shape: Sequence[int], axis: int) -> Iterator[tuple[type[ChipSoftmax], Shape]]:
    """Its tensors as four axes, the better ones first."""
    outer, width, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    if inner == 1:
        yield ChipSoftmax, (1, *rows_in_lanes(outer), width)
        yield ChipSoftmax, (1, 1, outer, width)
        return
    if len(shape) == 4 and axis == 1:
        yield ChipSoftmaxOfChannels, (shape[0], shape[1], shape[2], shape[3])
    yield ChipSoftmaxOfChannels, (outer, width, inner, 1)


def _words(fine: Array) -> Array:
    """Exponentials by the distance from the greatest element, which fits a byte."""
    return fine.astype("<u4").reshape(1, -1).view(np.uint8)
