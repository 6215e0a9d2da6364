"""Nearest neighbours at whole factors: copies whose operand stands still along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuc.arrays import ceil_div
from npuc.ir import Graph, shape_of, top
from npuc.schedule.bm1684x.chip_ops import ChipLayer, ChipTile, chip_rule, operand
from npuc.schedule.bm1684x.layout import LARGEST, LocalTensor, Rows, aligned, channel_chunks
from npuc.schedule.bm1684x.work import COPY_FROM_OPERAND, Builder, Operand
from npuc.schedule.rules import NotHere


@dataclass(frozen=True)
class ChipUpsample(ChipLayer):
    """Every pixel becomes a block of pixels."""

    factors: tuple[int, int]

    def operand_rows(self, index: int, rows: Rows) -> Rows:
        """One for so many rows of the result."""
        return rows[0] // self.factors[0], ceil_div(rows[1], self.factors[0])

    def scratch(self, rows: int) -> int:
        """The rows of the operand of one row of channels, as wide as the result."""
        return aligned(ceil_div(rows, self.factors[0]) * self.result.shape[3])

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """Columns first, then rows, one row of channels at a time."""
        (x,), y = tile.inputs, tile.output
        down, right = self.factors
        _, _, h, w = x.shape
        wide = LocalTensor(tile.scratch, (1, 1, h, w * right))
        step = max(1, LARGEST // w)
        for n in range(y.shape[0]):
            for row, count in channel_chunks(y.shape[1], 1):
                for at in range(0, h, step):
                    rows = min(step, h - at)
                    source = Operand(x.row(n, row) + at * w, "i8", (0, 0, 1, 0), size=rows * w)
                    strides = (0, 0, right, 1)
                    target = Operand(wide.address + at * w * right, "i8", strides, size=rows * w * right)
                    build.elementwise(COPY_FROM_OPERAND, (1, count, rows * w, right), target, source)
                for line in range(down):
                    offset = line * w * right
                    source = Operand(wide.address, "i8", (0, 0, w * right, 1), size=h * w * right)
                    strides = (0, 0, down * w * right, 1)
                    place = y.row(n, row) + offset
                    target = Operand(place, "i8", strides, size=y.shape[2] * y.shape[3] - offset)
                    build.elementwise(COPY_FROM_OPERAND, (1, count, h, w * right), target, source)


@chip_rule(top.Resize)
def nearest(op: Any, graph: Graph) -> ChipLayer:
    """Factors of whole numbers, every pixel as often as the others."""
    x, y = operand(op.x), operand(op.y)
    if op.mode != "nearest" or len(shape_of(op.x)) != 4 or x.shape[:2] != y.shape[:2]:
        raise NotHere(f"npuc has no commands of the BM1684X for a resize of mode {op.mode} along these axes")
    factors = y.shape[2] // x.shape[2], y.shape[3] // x.shape[3]
    for axis, indices in zip((2, 3), op.nearest_maps()[2:], strict=True):
        factor = factors[axis - 2]
        if factor < 1 or [int(i) for i in indices] != [i // factor for i in range(y.shape[axis])]:
            raise NotHere("npuc resizes by whole factors on the BM1684X")
    if max(x.shape[3], y.shape[3]) > LARGEST:
        raise NotHere(f"an axis is longer than {LARGEST}, the largest of a command of the BM1684X")
    return ChipUpsample((x,), y, factors, granule=factors[0])
