"""Pools: windows of one channel each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuc.ir import Graph, npu, shape_of, top
from npuc.program.bm1684x.commands import TYPE_CODES
from npuc.schedule.bm1684x.chip_ops import ChipLayer, ChipTile, chip_rule, operand, zero_point
from npuc.schedule.bm1684x.layout import LocalTensor, channel_chunks
from npuc.schedule.bm1684x.linear import ChipWindow, OutputNumbers, WindowLayer, WindowSums
from npuc.schedule.bm1684x.work import Builder, lanes, sizes
from npuc.schedule.rules import NotHere
from npuc.schedule.rules.common import requantization_of

_MAX_POOL, _DEPTHWISE = 4, 0


@dataclass(frozen=True)
class ChipMaxPool(WindowLayer):
    """The greatest element of each window."""

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """One command; what is padded is less than any element, or the same as the least."""
        (x,), y = tile.inputs, tile.output
        window = self.window.fields(
            tile.rows, self.operand_rows(0, tile.rows), tile.given[0], x.shape[3], y.shape[3]
        )
        build.tiu(
            "PORD", [lanes(x.address, x.size)], [lanes(y.address, y.size)],
            tsk_eu_typ=_MAX_POOL, opd0_sign=1, opd3_const=1, opd3_addr=0x80, opd0_addr=x.address, res0_addr=y.address,
            **window, **sizes("res0", y.shape),
        )  # fmt: skip


@chip_rule(top.MaxPool)
def max_pool(op: Any, graph: Graph) -> ChipLayer:
    """Of images."""
    x, y = operand(op.x), operand(op.y)
    if len(shape_of(op.x)) != 4:
        raise NotHere("it is not a pool over images")
    window = ChipWindow(tuple(op.kernel), tuple(op.strides), tuple(op.dilations), tuple(op.pads[:2]))
    window.check(x.shape, y.shape)
    window.check_whole(x.shape, y.shape)
    return ChipMaxPool((x,), y, window)


@dataclass(frozen=True)
class ChipAvgPool(WindowSums):
    """The average of each window: a depthwise convolution by ones whose bias takes the zero points away."""

    zero: int

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """By image and rows of channels: sums, requantization, limits."""
        (x,), y = tile.inputs, tile.output
        inputs = self.operand_rows(0, tile.rows)
        window = self.window.fields(tile.rows, inputs, tile.given[0], x.shape[3], y.shape[3])
        kernel = self.window.kernel[0] * self.window.kernel[1]
        numbers = self.stage.constant
        assert numbers is not None
        _, chunk = self.chunk(y.shape[2])
        for n in range(y.shape[0]):
            for row, count in channel_chunks(y.shape[1], chunk):
                shape = (1, count, *y.shape[2:])
                sums, out = LocalTensor(tile.scratch, shape, 4), LocalTensor(y.row(n, row), shape)
                at = x.row(n, row)
                build.tiu(
                    "PORD", [lanes(at, sums.lane_rows * x.pitch)],
                    [lanes(sums.address, sums.size)],
                    tsk_eu_typ=_DEPTHWISE, opd0_sign=1, opd1_sign=1, opd2_sign=1, opd1_const=1, opd1_addr=1, opd2_const=1,
                    opd2_addr=(-kernel * self.zero) & 0xFFFFFFFF, opd3_const=1, opd3_addr=self.zero & 0xFF,
                    res0_prec=TYPE_CODES["i32"], opd0_addr=at, res0_addr=sums.address, **window, **sizes("res0", shape),
                )  # fmt: skip
                build.requantize(shape, sums, out, "i32", numbers)
                build.clip(out, self.stage.low, self.stage.high)


@chip_rule(npu.AvgPool)
def avg_pool(op: Any, graph: Graph) -> ChipLayer:
    """Windows that all count the same positions."""
    x, y = operand(op.x), operand(op.y)
    if len(shape_of(op.x)) != 4:
        raise NotHere("it is not a pool over images")
    window = ChipWindow(tuple(op.kernel), tuple(op.strides), (1, 1), tuple(op.pads[:2]))
    window.check(x.shape, y.shape)
    window.check_whole(x.shape, y.shape)
    stage = OutputNumbers.of(requantization_of(op))
    padded = any(window.pad) or any(
        window.reach(i, y.shape[2 + i], x.shape[2 + i], window.pad[i]) for i in (0, 1)
    )
    kernel = window.kernel[0] * window.kernel[1]
    if padded and not op.count_include_pad:
        raise NotHere(
            "its windows count different numbers of elements, and those of the BM1684X all the same"
        )
    if stage.multiplier.size > 1:
        entry = min(kernel, stage.multiplier.size) - 1
        stage = OutputNumbers(
            stage.multiplier[entry : entry + 1],
            stage.shift[entry : entry + 1],
            stage.zero,
            stage.low,
            stage.high,
        )
    if padded and op.ceil_mode:
        raise NotHere(
            "its windows count different numbers of elements, and those of the BM1684X all the same"
        )
    return ChipAvgPool((x,), y, window, stage, zero_point(op.x))
