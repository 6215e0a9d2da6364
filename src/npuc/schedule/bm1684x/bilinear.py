"""Bilinear resize, exact until its one rounding: columns are blended to 32 bits, then rows, then all of it is rounded.

A command blends many elements by the same two weights if they are equally far apart in operand and result. A whole factor repeats
its weights, so that one command serves every so many columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from npuc.arithmetic.kinds import Kind
from npuc.arrays import ceil_div
from npuc.ir import Graph, npu, shape_of
from npuc.kernels.resampling import Interpolation, interpolation
from npuc.schedule.bm1684x.chip_ops import ChipLayer, ChipTile, chip_rule, operand
from npuc.schedule.bm1684x.layout import LARGEST, LocalTensor, Rows, aligned, channel_chunks
from npuc.schedule.bm1684x.work import ADD, MULTIPLY, Builder, Operand, constant
from npuc.schedule.rules import NotHere

_MOST_RUNS = 40
"""Of an axis: each is up to three commands."""


@dataclass(frozen=True)
class Run:
    """Elements of the result that are equally far apart, and so are their neighbours in the operand."""

    first: int
    step: int
    count: int
    low: int
    high: int
    operand_step: int
    weight: int
    """Of the neighbour above, in 2048ths."""


def runs(table: Interpolation, rows: Rows, factor: int) -> Iterator[Run]:
    """Those of some elements of an axis: equal neighbours first, then every so many."""
    entries = [(int(table.low[i]), int(table.high[i]), int(table.weight[i])) for i in range(*rows)]
    at = 0
    edges: list[tuple[int, int]] = [(0, 0)]
    while at < len(entries):  # elements beyond an end of the operand are all the same
        last = at
        while last + 1 < len(entries) and entries[last + 1] == entries[at]:
            last += 1
        if last > at:
            yield _run(rows[0] + at, 1, last - at + 1, entries[at], 0)
            edges.append((at, last + 1))
        at = last + 1
    for (_, begin), (end, _) in zip(edges, [*edges[1:], (len(entries), 0)], strict=True):
        for phase in range(begin, min(begin + factor, end)):
            yield from _phase(entries, rows[0], range(phase, end, factor), factor)


def _phase(entries: list[tuple[int, int, int]], first: int, places: range, factor: int) -> Iterator[Run]:
    start = 0
    for i in range(1, len(places) + 1):
        before = entries[places[i - 1]]
        if i < len(places) and entries[places[i]] == (before[0] + 1, before[1] + 1, before[2]):
            continue
        yield _run(first + places[start], factor, i - start, entries[places[start]], 1)
        start = i


def _run(first: int, step: int, count: int, entry: tuple[int, int, int], operand_step: int) -> Run:
    return Run(first, step, count, *entry[:2], operand_step, entry[2])


@dataclass(frozen=True)
class ChipBilinear(ChipLayer):
    """Blends of four neighbours."""

    tables: tuple[Interpolation, Interpolation]
    factors: tuple[int, int]

    def operand_rows(self, index: int, rows: Rows) -> Rows:
        """From the first neighbour to the last."""
        table = self.tables[0]
        return int(min(table.low[rows[0] : rows[1]])), int(max(table.high[rows[0] : rows[1]])) + 1

    def _planes(self, rows: int) -> tuple[int, int]:
        """Bytes of blended columns and of blended rows, of one row of channels."""
        height, width = self.operands[0].shape[2], self.result.shape[3]
        given = min(height, ceil_div(rows * height, self.result.shape[2]) + 2)
        return aligned(given * width * 4), aligned(max(given, rows) * width * 4)

    def scratch(self, rows: int) -> int:
        """Blended columns, blended rows, and two products."""
        columns, blended = self._planes(rows)
        return columns + 3 * blended

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """One row of channels at a time."""
        (x,), y = tile.inputs, tile.output
        columns, blended = self._planes(y.shape[2])
        wide, sums, room = tile.scratch, tile.scratch + columns, tile.scratch + columns + blended
        begin, height, width = tile.given[0][0], x.shape[2], y.shape[3]
        for n in range(y.shape[0]):
            for row, count in channel_chunks(y.shape[1], 1):
                for run in runs(self.tables[1], (0, width), self.factors[1]):
                    sides = [
                        Operand(
                            x.row(n, row) + at, "i8", (0, 0, x.shape[3], run.operand_step), size=x.pitch - at
                        )
                        for at in (run.low, run.high)
                    ]
                    target = Operand(
                        wide + 4 * run.first,
                        "i32",
                        (0, 0, width, run.step),
                        size=4 * (height * width - run.first),
                    )
                    shape = (1, count, height, run.count)
                    _blend(build, shape, sides, run.weight, target, (room, room + blended))
                for run in runs(self.tables[0], tile.rows, self.factors[0]):
                    sides = []
                    for line in (run.low - begin, run.high - begin):
                        last = (line + (run.count - 1) * run.operand_step + 1) * width
                        strides = (0, 0, run.operand_step * width, 1)
                        sides.append(
                            Operand(wide + 4 * line * width, "i32", strides, size=4 * (last - line * width))
                        )
                    first = (run.first - tile.rows[0]) * width
                    size = 4 * ((run.count - 1) * run.step + 1) * width
                    target = Operand(sums + 4 * first, "i32", (0, 0, run.step * width, 1), size=size)
                    shape = (1, count, run.count, width)
                    _blend(build, shape, sides, run.weight, target, (room, room + blended))
                shape = (1, count, *y.shape[2:])
                bits = self.tables[0].bits + self.tables[1].bits
                build.requantize(
                    shape, LocalTensor(sums, shape, 4), LocalTensor(y.row(n, row), shape), "i32", (1, bits, 0)
                )


def _blend(
    build: Builder,
    shape: tuple[int, int, int, int],
    sides: list[Operand],
    weight: int,
    target: Operand,
    room: tuple[int, int],
) -> None:
    """`low (2048 - weight) + high weight`."""
    whole = 1 << 11
    if weight in (0, whole):
        build.elementwise(MULTIPLY, shape, target, sides[weight // whole], constant(whole))
        return
    size = LocalTensor(0, shape, 4).size
    products = [Operand(at, "i32", size=size) for at in room]
    for side, factor, product in zip(sides, (whole - weight, weight), products, strict=True):
        build.elementwise(MULTIPLY, shape, product, side, constant(factor))
    build.elementwise(ADD, shape, target, products[0], products[1])


@chip_rule(npu.ResizeBilinear)
def bilinear(op: Any, graph: Graph) -> ChipLayer:
    """By whole factors, whose weights repeat."""
    x, y = operand(op.x), operand(op.y)
    if op.kind is not Kind.SINGLE_ROUNDING or x.shape[:2] != y.shape[:2]:
        raise NotHere(
            f"npuc has no commands of the BM1684X for a bilinear resize of {op.kind} along these axes"
        )
    tables, factors = [], []
    for axis in (2, 3):
        scale = op.scales[axis] if op.scales else None
        tables.append(interpolation(op.kind, x.shape[axis], y.shape[axis], op.coordinates, scale))
        factors.append(max(1, y.shape[axis] // x.shape[axis]))
        count = sum(1 for _ in runs(tables[-1], (0, y.shape[axis]), factors[-1]))
        if count > _MOST_RUNS:
            raise NotHere(
                f"its weights do not repeat: {y.shape[axis]} elements of {x.shape[axis]} take more than {_MOST_RUNS} commands"
            )
    if max(*shape_of(op.x), *shape_of(op.y)) > LARGEST:
        raise NotHere(f"an axis is longer than {LARGEST}, the largest of a command of the BM1684X")
    return ChipBilinear((x,), y, (tables[0], tables[1]), (factors[0], factors[1]))
