"""Random layers and transfers as the scheduler emits them: every kind of command, with parameters drawn at random.

Operands lie wherever there is room, over random bytes. Constants come from DDR by the same transfers as in a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.codegen.bm1684x import command_bytes
from npuc.kernels.resampling import interpolation
from npuc.program.bm1684x.commands import DDR_BASE, LANE_BYTES, LANES, Command, decode
from npuc.schedule.bm1684x.bilinear import ChipBilinear
from npuc.schedule.bm1684x.chip_ops import ChipLayer, ChipTile, TileOperand
from npuc.schedule.bm1684x.elementwise import ChipAdd, ChipChoice, ChipMul, ChipRequant, ChipTable
from npuc.schedule.bm1684x.layout import LaneRecord, LocalTensor, Shape, dense_strides, lane_bytes
from npuc.schedule.bm1684x.linear import ChipWindow, OutputNumbers, conv_layer
from npuc.schedule.bm1684x.memory import LaneMemory, NoRoom
from npuc.schedule.bm1684x.order import Ordered, with_its_look_up
from npuc.schedule.bm1684x.placement import load_record, record_bytes
from npuc.schedule.bm1684x.pooling import ChipAvgPool, ChipMaxPool
from npuc.schedule.bm1684x.resize import ChipUpsample
from npuc.schedule.bm1684x.softmax import ChipSoftmax, ChipSoftmaxOfChannels
from npuc.schedule.bm1684x.work import COPY_FROM_OPERAND, Address, Builder, Issue, Operand, constant

DDR = 1 << 20
"""Bytes of DDR that transfers use."""


@dataclass
class Draw:
    """Some commands, and bytes that are put into DDR before they run."""

    commands: list[Command] = field(default_factory=list)
    pokes: list[tuple[int, bytes]] = field(default_factory=list)


def kind_of(command: Command) -> str:
    """What makes two commands of one form different in kind: the operation, types, constants, places."""
    values, form = command.values, command.form
    if form.name == "TENSOR":
        if values["fill_constant_en"]:
            return "TENSOR fill"
        sides = ["DDR" if values[f"{side}_start_addr_h8"] else "lanes" for side in ("src", "dst")]
        return "TENSOR " + " to ".join(sides)
    parts = [form.name, str(values["tsk_eu_typ"])]
    names = ["res0", "opd0", "opd1"][: 1 + values.get("tsk_opd_num", 2)]
    for name in names:
        traits = []
        if values.get(f"{name}_const"):
            traits.append("const")
        if f"{name}_prec" in values:
            traits.append({0: "i8", 3: "i16", 4: "i32"}[values[f"{name}_prec"]])
        parts.append("/".join(traits))
    if form.name == "PORD" and values["tsk_eu_typ"] == 0:
        parts.append("bias const" if values["opd2_const"] else "bias")
    if values.get("res_add"):
        parts.append("adds")
    if values.get("tsk_opd_num") == 3:
        parts.append("shifted")
    return " ".join(part for part in parts if part)


class Drawer:
    """Draws layers; commands count on through all draws."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._numbers = {"tiu": 0, "gdma": 0}

    def draw(self, family: str) -> Draw:
        """A layer or a transfer of a family."""
        while True:
            self._memory = LaneMemory(LANE_BYTES)
            for _ in range(int(self._rng.integers(0, 3))):  # operands lie somewhere
                self._memory.take(64 * self._upto(300), high=bool(self._upto(2) - 1))
            build, draw = Builder(), Draw()
            try:
                FAMILIES[family](self, build, draw)
            except NoRoom:
                continue
            draw.commands = [self._command(issue) for issue in build.issues]
            return draw

    def _command(self, issue: Issue) -> Command:
        engine = issue.engine
        self._numbers[engine] += 1
        other = self._numbers["gdma" if engine == "tiu" else "tiu"]
        waits = int(self._rng.integers(0, other + 1))
        bases = {"coefficients": DDR_BASE, "activations": DDR_BASE}
        return decode(
            engine, command_bytes(Ordered(with_its_look_up(issue), self._numbers[engine], waits), bases)
        )

    # Numbers

    def _upto(self, most: int) -> int:
        return int(self._rng.integers(1, most + 1))

    def _shape(self, plane: int = 24, channels: int = 200) -> Shape:
        c = int(self._rng.choice([self._upto(channels), 1, 63, 64, 65, 128]))
        return int(self._rng.choice([1, 1, 1, 2])), c, self._upto(plane), self._upto(plane)

    def _zero(self) -> int:
        return int(self._rng.integers(-128, 128))

    def _stage(self, channels: int = 1) -> OutputNumbers:
        low, high = sorted((self._zero(), self._zero())) if self._upto(2) == 1 else (-128, 127)
        multiplier = self._rng.integers(1, 1 << 15, channels)
        return OutputNumbers(multiplier, self._rng.integers(0, 40, channels), self._zero(), low, high)

    def _window(self) -> ChipWindow:
        most = int(self._rng.choice([1, 3, 5]))
        pair = lambda top: (self._upto(top), self._upto(top))  # noqa: E731
        kernel, stride, dilation = (
            pair(most),
            pair(int(self._rng.choice([1, 2, 15]))),
            pair(int(self._rng.choice([1, 3]))),
        )
        pad = tuple(
            int(self._rng.integers(0, min(15, k * d) + 1)) for k, d in zip(kernel, dilation, strict=True)
        )
        return ChipWindow(kernel, stride, dilation, pad)  # type: ignore[arg-type]

    def _windowed(self) -> tuple[ChipWindow, Shape, Shape]:
        """A window, and an operand and a result that it fits whole."""
        while True:
            window, x = self._window(), self._shape()
            sizes = []
            for axis in (0, 1):
                extent = (window.kernel[axis] - 1) * window.dilation[axis] + 1
                sizes.append((x[2 + axis] + 2 * window.pad[axis] - extent) // window.stride[axis] + 1)
            y = (*x[:2], sizes[0], sizes[1])
            if min(sizes) < 1:
                continue
            try:
                window.check(x, y)
                window.check_whole(x, y)
            except Exception:
                continue
            return window, x, y

    # Layers

    def emit(self, build: Builder, draw: Draw, layer: ChipLayer) -> None:
        """All rows of it, or some, with operands and constants wherever there is room."""
        take, height = self._memory.take, layer.result.shape[2]
        rows = (0, height)
        if height > layer.granule and self._upto(3) == 1:
            first = int(self._rng.integers(0, height // layer.granule)) * layer.granule
            rows = (first, min(height, first + layer.granule * self._upto(height // layer.granule)))
        given, inputs = [], []
        for index in range(len(layer.operands)):
            span = layer.operand_rows(index, rows)
            shape = layer.operand_shape(index, rows)
            given.append(span)
            inputs.append(LocalTensor(take(lane_bytes(shape)), shape))
        places = []
        for record in layer.records:
            data = record_bytes(record)
            at = int(self._rng.integers(0, DDR - len(data) - 8192)) // 64 * 64
            draw.pokes.append((at, data))
            places.append(take(record.size))
            load_record(build, record, Address("coefficients", at), places[-1])
        output = layer.tile_shape(rows[1] - rows[0])
        scratch = take(max(64, layer.scratch(rows[1] - rows[0])))
        y = LocalTensor(take(lane_bytes(output)), output)
        layer.emit(build, ChipTile(rows, tuple(inputs), tuple(given), y, scratch, places.__getitem__))

    def conv(self, build: Builder, draw: Draw) -> None:
        """Over all channels."""
        window, x, y = self._windowed()
        y = (y[0], self._shape()[1], *y[2:])
        weight = self._rng.integers(-128, 128, (y[1], x[1], *window.kernel)).astype(np.int8)
        self.emit(build, draw, self._conv_layer(x, y, weight, window, False))

    def depthwise(self, build: Builder, draw: Draw) -> None:
        """Of each channel."""
        window, x, y = self._windowed()
        weight = self._rng.integers(-128, 128, (x[1], 1, *window.kernel)).astype(np.int8)
        self.emit(build, draw, self._conv_layer(x, y, weight, window, True))

    def _conv_layer(
        self, x: Shape, y: Shape, weight: Array, window: ChipWindow, depthwise: bool
    ) -> ChipLayer:
        bias = self._rng.integers(-(1 << 20), 1 << 20, y[1]) * (self._upto(4) > 1)
        stage = self._stage(y[1] if self._upto(3) > 1 else 1)
        return conv_layer(_operand(x), _operand(y), weight, bias, window, depthwise, stage, self._zero())

    def max_pool(self, build: Builder, draw: Draw) -> None:
        """The greatest of each window."""
        window, x, y = self._windowed()
        self.emit(build, draw, ChipMaxPool((_operand(x),), _operand(y), window))

    def average_pool(self, build: Builder, draw: Draw) -> None:
        """The average of each window."""
        window, x, y = self._windowed()
        self.emit(build, draw, ChipAvgPool((_operand(x),), _operand(y), window, self._stage(), self._zero()))

    def _pair(self) -> tuple[tuple[TileOperand, TileOperand], TileOperand]:
        y = self._shape()
        other = y
        if self._upto(2) == 1:  # broadcast along one axis of the plane, or both
            other = (*y[:2], *((1, y[3]), (y[2], 1), (1, 1))[self._upto(3) - 1])
        pair = (_operand(y), _operand(other))
        return (pair if self._upto(2) == 1 else (pair[1], pair[0])), _operand(y)

    def add(self, build: Builder, draw: Draw) -> None:
        """A sum."""
        operands, y = self._pair()
        factors = tuple(int(m) for m in self._rng.integers(-(1 << 15) + 1, 1 << 15, 2))
        offset = int(self._rng.integers(-(1 << 22), 1 << 22)) * (self._upto(2) - 1)
        stage = self._stage()
        self.emit(build, draw, ChipAdd(operands, y, factors, int(stage.shift[0]), offset, stage))  # type: ignore[arg-type]

    def multiply(self, build: Builder, draw: Draw) -> None:
        """A product."""
        operands, y = self._pair()
        zeros = tuple(self._zero() * (self._upto(3) > 1) for _ in range(2))
        self.emit(build, draw, ChipMul(operands, y, zeros, self._stage()))  # type: ignore[arg-type]

    def requant(self, build: Builder, draw: Draw) -> None:
        """Another scale."""
        y = _operand(self._shape())
        self.emit(build, draw, ChipRequant((y,), y, self._zero(), self._stage()))

    def choice(self, build: Builder, draw: Draw) -> None:
        """The greater or the lesser."""
        operands, y = self._pair()
        self.emit(build, draw, ChipChoice(operands, y, bool(self._upto(2) - 1)))

    def table(self, build: Builder, draw: Draw) -> None:
        """Elements looked up."""
        y = _operand(self._shape())
        record = LaneRecord(LANES)
        entries = np.tile(self._rng.integers(0, 256, (1, 256), np.uint8), (LANES, 1))
        record.add("table", entries, 256)
        self.emit(build, draw, ChipTable((y,), y, records=(record,)))

    def _softmax(self, kind: type[ChipSoftmax], build: Builder, draw: Draw, shape: Shape) -> None:
        record = LaneRecord(LANES)
        table = np.sort(self._rng.integers(0, 1 << int(self._rng.choice([8, 20, 30])), 256))[::-1].astype(
            "<u4"
        )
        table[0] = 1 << 30
        record.add("exponentials", np.tile(table.view(np.uint8), (LANES, 1)), 1024)
        multiplier, right = int(self._rng.integers(1 << 30, 1 << 31)), int(self._rng.integers(45, 55))
        stage = self._stage()
        numbers = (multiplier, right, stage.zero, stage.low, stage.high)
        self.emit(build, draw, kind((_operand(shape),), _operand(shape), *numbers, records=(record,)))

    def softmax(self, build: Builder, draw: Draw) -> None:
        """Of rows in lanes."""
        _, c, h, _ = self._shape(8)
        self._softmax(ChipSoftmax, build, draw, (1, c, h, self._upto(40)))

    def softmax_of_channels(self, build: Builder, draw: Draw) -> None:
        """Of pixels."""
        n, _, h, w = self._shape(10)
        self._softmax(ChipSoftmaxOfChannels, build, draw, (n, self._upto(40), h, w))

    def upsample(self, build: Builder, draw: Draw) -> None:
        """Copies whose operand stands still."""
        n, c, h, w = self._shape(12)
        factors = self._upto(3), self._upto(3)
        y = _operand((n, c, h * factors[0], w * factors[1]))
        self.emit(build, draw, ChipUpsample((_operand((n, c, h, w)),), y, factors, granule=factors[0]))

    def bilinear(self, build: Builder, draw: Draw) -> None:
        """Blends of neighbours."""
        n, c, h, w = self._shape(10)
        factors = self._upto(4), self._upto(4)
        y = _operand((n, c, h * factors[0], w * factors[1]))
        mode = str(self._rng.choice(["half_pixel", "asymmetric"]))
        tables = [
            interpolation("single_rounding", size, size * f, mode)
            for size, f in zip((h, w), factors, strict=True)
        ]
        layer = ChipBilinear((_operand((n, c, h, w)),), y, (tables[0], tables[1]), factors)
        self.emit(build, draw, layer)

    def turn(self, build: Builder, draw: Draw) -> None:
        """Lanes for columns."""
        rows, columns = self._upto(300), self._upto(300)
        source = LocalTensor(self._memory.take(lane_bytes((1, rows, 1, columns))), (1, rows, 1, columns))
        turned = (1, columns, 1, rows)
        build.transpose(source, LocalTensor(self._memory.take(lane_bytes(turned)), turned))

    def fill_lanes(self, build: Builder, draw: Draw) -> None:
        """A constant in local memory."""
        local = self._local(self._shape())
        place = Operand(local.address, "i8", size=local.size)
        build.elementwise(COPY_FROM_OPERAND, local.shape, place, constant(self._zero(), "i8"))

    # Transfers

    def _local(self, shape: Shape) -> LocalTensor:
        return LocalTensor(self._memory.take(lane_bytes(shape)), shape)

    def _steps(self, shape: Shape) -> tuple[Shape, Shape]:
        """A tensor of which a transfer takes every so many elements, and its strides in DDR."""
        step = int(self._rng.choice([1, 1, 1, 2, 3]))
        whole = (*shape[:2], shape[2] * self._upto(2), shape[3] * step)
        n, c, h, _ = dense_strides(whole)
        return whole, (n, c, h, step)

    def _far(self, half: int, shape: Shape) -> tuple[Address, Shape]:
        """A tensor in one half of DDR."""
        whole, strides = self._steps(shape)
        size = int(np.prod(whole))
        room = DDR // 2 - size
        if room < 1:
            raise NoRoom(size)
        return Address("activations", half * (DDR // 2) + int(self._rng.integers(0, room))), strides

    def load(self, build: Builder, draw: Draw) -> None:
        """DDR to lanes; one channel to all of them, too."""
        local = self._local(self._shape())
        source, strides = self._far(0, local.shape)
        if self._upto(4) == 1:
            strides = (strides[0], 0, *strides[2:])
        build.move(source, Address("local", local.address), local.shape, strides, local.strides)

    def store(self, build: Builder, draw: Draw) -> None:
        """Lanes to DDR."""
        local = self._local(self._shape())
        target, strides = self._far(1, local.shape)
        build.move(Address("local", local.address), target, local.shape, local.strides, strides)

    def between_lanes(self, build: Builder, draw: Draw) -> None:
        """To other lanes."""
        shape = self._shape()
        sides = [self._local((shape[0], shape[1] + LANES, *shape[2:])) for _ in range(2)]
        first = [int(self._rng.integers(0, LANES)) for _ in sides]
        places = [Address("local", local.address, lane) for local, lane in zip(sides, first, strict=True)]
        build.move(places[0], places[1], shape, sides[0].strides, sides[1].strides)

    def between_ddr(self, build: Builder, draw: Draw) -> None:
        """Any order of axes."""
        shape = self._shape()
        source, strides = self._far(0, shape)
        target, own = self._far(1, shape)
        build.move(source, target, shape, strides, own)

    def fill_ddr(self, build: Builder, draw: Draw) -> None:
        """A constant in DDR."""
        shape = self._shape()
        target, _ = self._far(1, shape)
        build.fill(target, shape, dense_strides(shape), self._zero())


def _operand(shape: Shape) -> TileOperand:
    """An operand of which only the shape matters."""
    value: Any = None
    return TileOperand(value, shape)


FAMILIES: dict[str, Callable[[Drawer, Builder, Draw], None]] = {
    name: getattr(Drawer, name)
    for name in (
        "conv", "depthwise", "max_pool", "average_pool", "add", "multiply", "requant", "choice", "table", "upsample", "turn",
        "fill_lanes", "load", "store", "between_lanes", "between_ddr", "fill_ddr", "softmax", "softmax_of_channels",
        "bilinear",
    )
}  # fmt: skip


def draws(family: str, count: int, seed: int = 0) -> Iterator[Draw]:
    """So many of a family."""
    drawer = Drawer([*FAMILIES].index(family) + 100 * seed)
    for _ in range(count):
        yield drawer.draw(family)
