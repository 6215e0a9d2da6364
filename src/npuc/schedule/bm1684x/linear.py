"""Convolutions and products with constants.

CONV sums products of int8 into int32 and knows no zero point of its operand: `sum (x - z) w = sum x w - z sum w`, and the second
term is part of the bias. Padded positions hold z. The bias is copied to where the sums are, and the convolution adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array, ceil_div
from npuc.ir import Graph, npu, shape_of
from npuc.program.bm1684x.commands import LANE_BYTES, LANES, STRIDED, TYPE_CODES
from npuc.schedule.bm1684x.chip_ops import (
    ChipLayer,
    ChipTile,
    TileOperand,
    chip_rule,
    operand,
    requantization_bytes,
    row_chunk,
    zero_point,
)
from npuc.schedule.bm1684x.layout import (
    LARGEST,
    LaneRecord,
    LocalTensor,
    Rows,
    aligned,
    channel_chunks,
    close_weights,
    conv_weights,
    lane_bytes,
)
from npuc.schedule.bm1684x.packed import PackedWeights
from npuc.schedule.bm1684x.work import COPY_FROM_OPERAND, Builder, Operand, lanes, sizes
from npuc.schedule.rules import NotHere
from npuc.schedule.rules.common import Requantization, requantization_of_operands, window_rows
from npuc.schedule.rules.weights import weights_of

MOST_PAD = MOST_STRIDE = 15
MOST_DILATION = 16
RECORD = 48 * 1024
"""Bytes of a lane of a part of the constants, as far as one row of channels does not need more."""
MOST_RECORD = 128 * 1024
ROOMY = LANE_BYTES // 4
"""Bytes of a lane for operand and result, of layers that have room for weights as DDR has them and as the command has them."""
STAGE = 64
"""Bytes of a lane from the requantization of a row of channels to that of the next."""


@dataclass(frozen=True)
class ChipWindow:
    """Where a kernel looks."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    """Above and left."""

    def reach(self, axis: int, results: int, size: int, before: int) -> int:
        """Positions that windows look at behind the end of the operand."""
        last = (results - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis]
        return max(0, last + 1 - size - before)

    def rows(self, rows: Rows, size: int) -> Rows:
        """The rows of the operand for rows of the result."""
        return window_rows(rows, size, self.kernel[0], self.stride[0], self.dilation[0], self.pad[0])

    def used(self, axis: int, results: int, size: int, before: int) -> int:
        """Positions of the operand that a command is told of: all, unless it would compute more results from them."""
        extent = (self.kernel[axis] - 1) * self.dilation[axis] + 1
        last = (results - 1) * self.stride[axis] + extent - before
        return size if size - last < self.stride[axis] else max(last, 1)

    def fields(self, rows: Rows, inputs: Rows, given: Rows, in_w: int, out_w: int) -> dict[str, int]:
        """The window of some rows as a command has it.

        Its operand has the rows `given`, of which the windows need `inputs`; it begins with the first of these.
        """
        up = max(0, self.pad[0] + inputs[0] - rows[0] * self.stride[0])
        count, left = rows[1] - rows[0], self.pad[1]
        height = self.used(0, count, given[1] - inputs[0], up)
        width = self.used(1, out_w, in_w, left)
        return {
            "opd1_h": self.kernel[0],
            "opd1_w": self.kernel[1],
            "res_op_y_str": self.stride[0],
            "res_op_x_str": self.stride[1],
            "opd1_y_ins0": self.dilation[0] - 1,
            "opd1_x_ins0": self.dilation[1] - 1,
            "opd0_up_pad": up,
            "opd0_dn_pad": self.reach(0, count, height, up),
            "opd0_lf_pad": left,
            "opd0_rt_pad": self.reach(1, out_w, width, left),
            "opd0_h": height,
            "opd0_w": width,
        }

    def check_whole(self, x: Sequence[int], y: Sequence[int]) -> None:
        """`NotHere` if the windows leave out a part of the operand, which a command without strides cannot."""
        for axis in (0, 1):
            if self.used(axis, y[2 + axis], x[2 + axis], self.pad[axis]) != x[2 + axis]:
                raise NotHere("its windows leave out the end of its operand")

    def check(self, x: Sequence[int], y: Sequence[int]) -> None:
        """`NotHere` if a field of a command cannot hold it."""
        behind = [self.reach(axis, y[2 + axis], x[2 + axis], self.pad[axis]) for axis in (0, 1)]
        if max(*self.pad, *behind) > MOST_PAD:
            raise NotHere(f"it pads by {max(*self.pad, *behind)}, and a command of the BM1684X by {MOST_PAD}")
        if max(self.stride) > MOST_STRIDE:
            raise NotHere(
                f"its stride is {max(self.stride)}, and that of a command of the BM1684X {MOST_STRIDE}"
            )
        if max(self.dilation) > MOST_DILATION:
            raise NotHere(
                f"its dilation is {max(self.dilation)}, and that of a command of the BM1684X {MOST_DILATION}"
            )
        if max(*x, *y, *self.kernel) > LARGEST:
            raise NotHere(f"an axis is longer than {LARGEST}, the largest of a command of the BM1684X")
        if min(self.pad) < 0:
            raise NotHere("it cuts its operand")
        extents = [(self.kernel[axis] - 1) * self.dilation[axis] + 1 for axis in (0, 1)]
        if any(max(self.pad[axis], behind[axis]) >= extents[axis] for axis in (0, 1)):
            raise NotHere("some of its windows see padding alone")


@dataclass(frozen=True)
class OutputNumbers:
    """What becomes of sums: one set of numbers, or a table of channels."""

    multiplier: Array
    shift: Array
    zero: int
    low: int
    high: int

    @staticmethod
    def of(stage: Requantization) -> OutputNumbers:
        """Those of an op; `NotHere` if the chip rounds otherwise."""
        if stage.kind is not Kind.SINGLE_ROUNDING or stage.dtype != "i8":
            raise NotHere(
                f"the BM1684X requantizes by single_rounding to int8, and this by {stage.kind} to {stage.dtype}"
            )
        multiplier, shift = stage.parameters["multiplier"].reshape(-1), stage.parameters["shift"].reshape(-1)
        return OutputNumbers(multiplier, shift, stage.zero_point, stage.lo, stage.hi)

    @property
    def constant(self) -> tuple[int, int, int] | None:
        """Multiplier, shift and zero point, if all channels have the same."""
        if (self.multiplier != self.multiplier[0]).any() or (self.shift != self.shift[0]).any():
            return None
        return int(self.multiplier[0]), int(self.shift[0]), self.zero

    def table(self, channels: Rows) -> Array:
        """Those of some channels."""
        part = slice(*channels)
        return requantization_bytes(
            self.multiplier[part], self.shift[part], self.zero, channels[1] - channels[0]
        )


@dataclass(frozen=True)
class WindowLayer(ChipLayer):
    """A layer whose results each look at a window of the operand."""

    window: ChipWindow

    def operand_rows(self, index: int, rows: Rows) -> Rows:
        """Those that the windows look at."""
        return self.window.rows(rows, self.operands[0].shape[2])


@dataclass(frozen=True)
class WindowSums(WindowLayer):
    """A layer that sums over windows in 32 bits, some rows of channels at a time, and requantizes the sums."""

    stage: OutputNumbers

    def chunk(self, rows: int) -> tuple[int, int]:
        """Bytes of the sums of a row of channels, and how many rows of channels are summed at a time."""
        plane = aligned(rows * self.result.shape[3] * 4)
        return plane, row_chunk(plane, self.result.shape[1])

    def scratch(self, rows: int) -> int:
        """The sums of some rows of channels."""
        plane, chunk = self.chunk(rows)
        return plane * chunk


@dataclass(frozen=True)
class ChipConv(WindowSums):
    """A convolution over all input channels, or one of each channel (depthwise)."""

    depthwise: bool
    has_bias: bool
    pad_value: int
    parts: tuple[Rows, ...]
    """Channels of each record."""
    line: int
    """Bytes of the weights of an output channel, as the command has them."""
    bias_step: int
    """Bytes from the bias of a row of channels to that of the next."""
    packed: PackedWeights | None = None
    """How weights lie in the records, if not as the command has them."""

    def scratch(self, rows: int) -> int:
        """Sums, and weights as the command has them."""
        sums = super().scratch(rows)
        if self.packed is None:
            return sums
        return aligned(sums) + self.line * max(record.rows for record in self.records)

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """By image and rows of channels: bias, sums, requantization, limits."""
        (x,), y = tile.inputs, tile.output
        for number, part in enumerate(self.parts):
            base = tile.record(number)
            record = self.records[number]
            place = {name: base + at for name, at in record.offsets.items()}
            _, chunk = self.chunk(y.shape[2])
            if self.packed is not None:
                unpacked = tile.scratch + aligned(super().scratch(y.shape[2]))
                self.packed.emit(build, part[1] - part[0], place["weight"], unpacked)
                place["weight"] = unpacked
            for n in range(y.shape[0]):
                for first, count in channel_chunks(part[1] - part[0], chunk):
                    self._chunk_commands(build, tile, x, y, n, part[0] // LANES + first, first, count, place)

    def _chunk_commands(
        self,
        build: Builder,
        tile: ChipTile,
        x: LocalTensor,
        y: LocalTensor,
        n: int,
        row: int,
        first: int,
        count: int,
        place: dict[str, int],
    ) -> None:
        _, _, oh, ow = y.shape
        shape = (1, count, oh, ow)
        sums = LocalTensor(tile.scratch, shape, 4)
        out = LocalTensor(y.row(n, row), shape)
        inputs, given = self.operand_rows(0, tile.rows), tile.given[0]
        window = self.window.fields(tile.rows, inputs, given, x.shape[3], ow)
        written = lanes(sums.address, sums.size)
        bias = place["bias"] + self.bias_step * first if self.has_bias else 0
        rows = sums.lane_rows
        common = {
            "opd0_sign": 1, "opd1_sign": 1, "opd2_sign": 1, "res0_prec": TYPE_CODES["i32"], "opd3_const": 1,
            "opd3_addr": self.pad_value & 0xFF, "res0_addr": sums.address, **window, **sizes("res0", shape),
        }  # fmt: skip
        if self.depthwise:
            kernel = self.window.kernel[0] * self.window.kernel[1]
            at, weights = x.row(n, row), place["weight"] + first * kernel
            reads = [lanes(at, rows * x.pitch), lanes(weights, rows * kernel)]
            values = {"opd2_addr": bias} if self.has_bias else {"opd2_const": 1}
            if self.has_bias:
                reads.append(lanes(bias, 4 * rows))
            build.tiu("PORD", reads, [written], **common, **values, opd0_addr=at, opd1_addr=weights)
        else:
            if self.has_bias:
                strides = (0, self.bias_step // 4, 0, 0)
                values_at = Operand(bias, "i32", strides, size=self.bias_step * (rows - 1) + 4)
                target = Operand(sums.address, "i32", size=sums.size)
                build.elementwise(COPY_FROM_OPERAND, shape, target, values_at)
            at, line = x.row(n, 0), self.line
            weights = place["weight"] + first * line
            if (window["opd0_h"], window["opd0_w"]) != x.shape[2:]:
                at += (inputs[0] - given[0]) * x.shape[3]
                pitch = x.pitch if x.lane_rows > 1 else 0
                common |= {
                    "opd0_str": STRIDED,
                    "opd0_c_str": pitch,
                    "opd0_h_str": x.shape[3],
                    "opd0_w_str": 1,
                }
            reads = [
                lanes(at, x.lane_rows * x.pitch),
                lanes(weights, rows * line),
                *([written] if self.has_bias else []),
            ]
            build.tiu(
                "CONV", reads, [written], **common, opd2_const=1, res_add=int(self.has_bias), opd0_c=x.shape[1],
                opd0_addr=at, opd1_addr=weights,
            )  # fmt: skip
        constant = self.stage.constant
        build.requantize(shape, sums, out, "i32", constant or place["stage"] + STAGE * first)
        build.clip(out, self.stage.low, self.stage.high)


def conv_layer(
    x: TileOperand,
    y: TileOperand,
    weight: Array,
    bias: Array,
    window: ChipWindow,
    depthwise: bool,
    stage: OutputNumbers,
    zero: int,
) -> ChipConv:
    """The layer of weights (outputs, inputs, kh, kw) and biases that zero points are folded into."""
    outputs = weight.shape[0]
    rows = weight.reshape(outputs, -1).astype(np.int8).view(np.uint8) if depthwise else conv_weights(weight)
    line = rows.shape[1]
    packed = None if depthwise else PackedWeights(weight.shape[1], prod(weight.shape[2:]))
    roomy = sum(lane_bytes(entry.shape) for entry in (x, y)) <= ROOMY
    if packed is not None and packed.worth and roomy:
        rows = close_weights(weight)
    else:
        packed = None
    several = max(1, RECORD // (line + 68))
    step = LANES * several
    parts = tuple((at, min(at + step, outputs)) for at in range(0, outputs, step))
    has_bias = bool(bias.any())
    # A row of a requantization has 64 bytes, and uses 12: the bias lies behind them, unless it has to be close to others.
    beside = stage.constant is None and has_bias and not (depthwise and outputs > LANES)
    records = []
    for low, high in parts:
        record = LaneRecord(high - low)
        biases = bias[low:high].astype("<i4").reshape(-1, 1).view(np.uint8)
        if stage.constant is None:
            table = stage.table((low, high))
            record.add("stage", np.concatenate([table, biases], 1) if beside else table, STAGE)
        if beside:
            record.offsets["bias"] = record.offsets["stage"] + table.shape[1]
        elif has_bias:
            record.add("bias", biases, 4)
        record.add("weight", rows[low:high], rows.shape[1])
        records.append(record)
    if max(record.size for record in records) > MOST_RECORD:
        raise NotHere(f"the weights of 64 channels take {line:,} bytes of each lane of the BM1684X")
    step = STAGE if beside else 4
    return ChipConv(
        (x,), y, window, stage, depthwise, has_bias, zero, parts, line, step, packed, records=tuple(records)
    )  # fmt: skip


def _bias(op: Any, graph: Graph, weight: Array, zero: int) -> Array:
    bias = graph.constant(op.bias)
    sums = weight.astype(np.int64).reshape(weight.shape[0], -1).sum(1)
    total = (bias.astype(np.int64).reshape(-1) if bias is not None else 0) - zero * sums
    if np.abs(total).max(initial=0) >= 2**31:
        raise NotHere("a bias with the zero point of its operand leaves 32 bits")
    return np.asarray(total, np.int64)


@chip_rule(npu.Conv)
def convolution(op: Any, graph: Graph) -> ChipLayer:
    """Depthwise, or over all channels; groups become one convolution with zeros among its weights."""
    x, y = operand(op.x), operand(op.y)
    if len(shape_of(op.x)) != 4:
        raise NotHere("it is not a convolution of images")
    weight = graph.constant(op.weight)
    if weight is None:
        raise NotHere("its weights are computed at run time")
    if op.weight_zero_point or weight.dtype != np.int8:
        raise NotHere("the BM1684X multiplies by symmetric int8 weights")
    if weights_of(op, graph, weight).wide:
        raise NotHere("its sums may leave 32 bits")
    window = ChipWindow(weight.shape[2:], tuple(op.strides), tuple(op.dilations), tuple(op.pads[:2]))
    window.check(x.shape, y.shape)
    zero = zero_point(op.x)
    stage = OutputNumbers.of(requantization_of_operands(op, graph))
    bias = _bias(op, graph, weight, zero)
    depthwise = op.group == x.shape[1] == y.shape[1] and op.group > 1
    if depthwise:
        window.check_whole(x.shape, y.shape)
    if op.group > 1 and not depthwise:
        weight = dense_groups(weight, op.group)
    return conv_layer(x, y, weight, bias, window, depthwise, stage, zero)


def dense_groups(weight: Array, groups: int) -> Array:
    """The weights of a grouped convolution as those of a plain one, with zeros between groups."""
    outputs, inputs = weight.shape[:2]
    dense = np.zeros((outputs, groups * inputs, *weight.shape[2:]), weight.dtype)
    each = outputs // groups
    for group in range(groups):
        rows = slice(group * each, (group + 1) * each)
        dense[rows, group * inputs : (group + 1) * inputs] = weight[rows]
    return dense


@chip_rule(npu.MatMul)
def product(op: Any, graph: Graph) -> ChipLayer:
    """A product with a constant matrix: a 1 x 1 convolution whose pixels are the rows."""
    matrix = graph.constant(op.weight)
    if matrix is None or graph.constant(op.x) is not None:
        raise NotHere("npuc has no commands of the BM1684X for a product of two activations")
    if prod(matrix.shape[:-2]) != 1:
        raise NotHere("each matrix of a batch has constant weights of its own")
    if op.weight_zero_point or matrix.dtype != np.int8:
        raise NotHere("the BM1684X multiplies by symmetric int8 weights")
    matrix = matrix.reshape(matrix.shape[-2:])
    weight = np.ascontiguousarray(matrix if op.transpose_b else matrix.T)[:, :, None, None]
    if weights_of(op, graph, weight).wide:
        raise NotHere("its sums may leave 32 bits")
    x, y = operand(op.x), operand(op.y)
    outputs, inputs = weight.shape[:2]
    rows = prod(shape_of(op.x)[:-1])
    if rows > LARGEST or max(outputs, inputs) > LARGEST:
        raise NotHere(f"an axis is longer than {LARGEST}, the largest of a command of the BM1684X")
    as_rows = len(shape_of(op.x)) != 2 or rows > 1
    x = TileOperand(op.x, (1, inputs, rows, 1), (rows * inputs, 1, inputs, 1) if as_rows else None)
    y = TileOperand(op.y, (1, outputs, rows, 1), (rows * outputs, 1, outputs, 1) if as_rows else None)
    zero = zero_point(op.x)
    stage = OutputNumbers.of(requantization_of_operands(op, graph))
    window = ChipWindow((1, 1), (1, 1), (1, 1), (0, 0))
    return conv_layer(x, y, weight, _bias(op, graph, weight, zero), window, False, stage, zero)


@dataclass(frozen=True)
class ChipDeconv(ChipLayer):
    """A transposed convolution: a plain one for each phase of the stride, put together by copies with strides."""

    phases: tuple[tuple[int, int, ChipConv], ...]
    """Row and column of the phase, and its convolution."""
    stride: tuple[int, int]

    def operand_rows(self, index: int, rows: Rows) -> Rows:
        """Those that any phase looks at."""
        spans = [conv.operand_rows(0, self._phase_rows(rows)) for _, _, conv in self.phases]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def _phase_rows(self, rows: Rows) -> Rows:
        return rows[0] // self.stride[0], ceil_div(rows[1], self.stride[0])

    def _phase(self, rows: int, address: int = 0) -> LocalTensor:
        n, c, _, w = self.result.shape
        return LocalTensor(address, (n, c, rows, w // self.stride[1]))

    def scratch(self, rows: int) -> int:
        """The result of a phase, and its sums."""
        count = ceil_div(rows, self.stride[0])
        return self._phase(count).size + max(conv.scratch(count) for _, _, conv in self.phases)

    def emit(self, build: Builder, tile: ChipTile) -> None:
        """Phase by phase."""
        rows, y = self._phase_rows(tile.rows), tile.output
        phase = self._phase(rows[1] - rows[0], tile.scratch)
        first = 0
        for down, right, conv in self.phases:
            offset = down * y.shape[3] + right
            part = replace(
                tile,
                rows=rows,
                output=phase,
                scratch=phase.address + phase.size,
                record=partial(_shifted, tile, first),
            )
            conv.emit(build, part)
            first += len(conv.records)
            for n in range(y.shape[0]):
                for row, count in channel_chunks(y.shape[1], 1):
                    source = Operand(phase.row(n, row), "i8", size=phase.pitch)
                    strides = (0, 0, self.stride[0] * y.shape[3], self.stride[1])
                    target = Operand(y.row(n, row) + offset, "i8", strides, size=y.pitch - offset)
                    build.elementwise(COPY_FROM_OPERAND, (1, count, *phase.shape[2:]), target, source)


def _shifted(tile: ChipTile, first: int, number: int) -> int:
    return tile.record(first + number)


@chip_rule(npu.Deconv)
def deconvolution(op: Any, graph: Graph) -> ChipLayer:
    """Each phase of the stride sees some taps of the kernel, at whole steps of the operand."""
    x, y = operand(op.x), operand(op.y)
    if len(shape_of(op.x)) != 4:
        raise NotHere("it is not a convolution of images")
    stored = graph.constant(op.weight)
    if stored is None:
        raise NotHere("its weights are computed at run time")
    if op.weight_zero_point or stored.dtype != np.int8:
        raise NotHere("the BM1684X multiplies by symmetric int8 weights")
    i, o, kh, kw = stored.shape
    groups, (sy, sx) = op.group, op.strides
    turned = (
        stored.reshape(groups, i // groups, o, kh, kw).swapaxes(1, 2).reshape(groups * o, i // groups, kh, kw)
    )
    if weights_of(op, graph, turned).wide:
        raise NotHere("its sums may leave 32 bits")
    weight = dense_groups(turned, groups) if groups > 1 else turned
    if y.shape[2] % sy or y.shape[3] % sx:
        raise NotHere("its result is no whole number of strides")
    stage, zero = OutputNumbers.of(requantization_of_operands(op, graph)), zero_point(op.x)
    n, c, oh, ow = y.shape
    phases: list[tuple[int, int, ChipConv]] = []
    records: list[LaneRecord] = []
    for down in range(sy):
        for right in range(sx):
            part, pad = _phase_weights(weight, (down, right), op)
            window = ChipWindow(part.shape[2:], (1, 1), (1, 1), pad)
            shape = (n, c, oh // sy, ow // sx)
            window.check(x.shape, shape)
            bias = _bias(op, graph, part, zero)
            conv = conv_layer(x, replace(y, shape=shape), part, bias, window, False, stage, zero)
            phases.append((down, right, conv))
            records += conv.records
    return ChipDeconv((x,), y, tuple(phases), (sy, sx), records=tuple(records), granule=sy)


def _phase_weights(weight: Array, phase: tuple[int, int], op: Any) -> tuple[Array, tuple[int, int]]:
    """The taps that a phase sees, by the step of the operand that they multiply, and the steps before the first."""
    rows, up = _phase_taps(weight.shape[2], phase[0] + op.pads[0], op.dilations[0], op.strides[0])
    columns, left = _phase_taps(weight.shape[3], phase[1] + op.pads[1], op.dilations[1], op.strides[1])
    padded = np.pad(weight, ((0, 0), (0, 0), (0, 1), (0, 1)))  # tap -1 is the row or column of zeros
    return np.ascontiguousarray(padded[:, :, rows][:, :, :, columns]), (up, left)


def _phase_taps(kernel: int, place: int, dilation: int, stride: int) -> tuple[list[int], int]:
    """The tap for each step of the operand along an axis, -1 for none, and the steps before the first."""
    steps = {}
    for tap in range(kernel):
        step, rest = divmod(place - tap * dilation, stride)
        if not rest:
            steps[step] = tap
    low, high = min((0, *steps)), max((0, *steps))
    return [steps.get(step, -1) for step in range(low, high + 1)], -low
