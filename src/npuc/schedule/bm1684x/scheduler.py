"""From the ops of a subgraph to commands in order: which tensors stay in local memory, and how layers are cut that do not fit.

A layer whose operands, result and sums fit the lanes computes all of its rows at once, and its result stays for the next.
Any other layer is cut into tiles of rows, two of which are in local memory at a time, between DDR and DDR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npuc.arrays import ceil_div
from npuc.ir import Graph, Value, top, value_name
from npuc.ir.definition import TensorOp
from npuc.program.bm1684x.commands import LANE_BYTES, LANES
from npuc.schedule.bm1684x.chip_ops import RULES, ChipLayer, ChipTile, TileOperand, lane_need
from npuc.schedule.bm1684x.layout import (
    LARGEST,
    LocalTensor,
    Rows,
    Shape,
    aligned,
    channel_chunks,
    dense_strides,
    lane_bytes,
    rows_in_lanes,
)
from npuc.schedule.bm1684x.memory import Bytes, NoRoom
from npuc.schedule.bm1684x.movement import MOVES, ONES, ZEROS, Block, Movement, Moves, Turn
from npuc.schedule.bm1684x.order import Ordered, hoisted, ordered
from npuc.schedule.bm1684x.placement import Placement, load_record, record_room
from npuc.schedule.bm1684x.prefetch import prefetched
from npuc.schedule.bm1684x.work import COPY_FROM_OPERAND, Address, Operand, constant
from npuc.schedule.rules import NotHere

SHORT_RUN = 256
"""Bytes of a run for which the DMA takes as long as for one byte."""
RECORDS = 96 * 1024
"""Bytes of a lane for constants of a layer; if it has more, they come part by part."""


@dataclass(frozen=True)
class ChipSchedule:
    """How a subgraph runs on the chip."""

    commands: tuple[Ordered, ...]
    coefficients: bytes
    activations: int
    """Bytes of DDR for inputs, outputs and what does not stay in local memory."""
    inputs: tuple[int, ...]
    """Where each input begins among the activations."""
    outputs: tuple[int, ...]
    layers: tuple[str, ...]
    tiles: tuple[int, ...]
    """Of each layer; 0: it moves no data or is part of another."""
    peak: int
    """Bytes of a lane that are in use at most."""

    @property
    def moved(self) -> int:
        """Bytes that the DMA reads from DDR and writes to it."""
        return sum(command.issue.ddr_bytes for command in self.commands)


def reason_against(op: TensorOp, graph: Graph) -> str | None:
    """Why an op has no commands; None if it has."""
    if isinstance(op, top.Reshape):
        return None
    try:
        if type(op) in MOVES:
            MOVES[type(op)](op, graph)
        elif type(op) in RULES:
            layer = RULES[type(op)](op, graph)
            rows = min(layer.granule, layer.result.shape[2])
            need = lane_need(layer, rows, layer.result.shape[2]) + _record_need(layer)
            if need > LANE_BYTES:
                return f"{rows} rows of it need {need:,} bytes of each lane, and a lane of the BM1684X has {LANE_BYTES:,}"
            if max(layer.result.shape) > 65535:
                return "an axis is longer than 65,535, the largest of a command of the BM1684X"
        else:
            return "npuc has no commands of the BM1684X for it"
    except NotHere as error:
        return str(error)
    if all(graph.constant(value) is not None for value in op.operands):
        return "all of its operands are constants"
    return None


def _record_need(layer: ChipLayer) -> int:
    """Bytes of a lane for the constants of a layer: all of them, or two parts at a time."""
    sizes = [aligned(record_room(record)) for record in layer.records]
    return sum(sizes) if sum(sizes) <= RECORDS else 2 * max(sizes)


def schedule_chip(
    graph: Graph, ops: Iterable[TensorOp], inputs: Sequence[Value], outputs: Sequence[Value]
) -> ChipSchedule:
    """The commands of a subgraph."""
    return _Scheduler(graph, list(ops), list(inputs), list(outputs)).run()


class _Scheduler:
    def __init__(self, graph: Graph, ops: list[TensorOp], inputs: list[Value], outputs: list[Value]) -> None:
        self._graph, self._ops, self._inputs, self._outputs = graph, ops, inputs, outputs
        self._uses: dict[Value, list[int]] = {}
        for number, op in enumerate(ops):
            for value in op.operands:
                self._uses.setdefault(value, []).append(number)
        self._at = Placement(graph, self._uses)
        self._tiles: list[int] = []

    def run(self) -> ChipSchedule:
        """All ops in turn."""
        at, results = self._at, set(self._outputs)
        for value in self._inputs:
            at.reserve(value)
        for number, op in enumerate(self._ops):
            at.memory.now = at.build.layer = number
            self._tiles.append(0)
            self._op(op)
            for value in op.results:
                if value in results:
                    at.in_ddr(value)
                if value not in self._uses:
                    at.drop(value)
            for value in dict.fromkeys(op.operands):
                if self._uses[value][-1] == number:
                    at.drop(value)
        return ChipSchedule(
            tuple(ordered(hoisted(prefetched(at.build.issues, at.memory.buffers, LANE_BYTES)))),
            at.coefficients,
            at.activations,
            tuple(at.in_ddr(value).offset for value in self._inputs),
            tuple(at.in_ddr(value).offset for value in self._outputs),
            tuple(value_name(op.results[0]) for op in self._ops),
            tuple(self._tiles),
            at.memory.peak,
        )

    def _op(self, op: Any) -> None:
        if isinstance(op, top.Reshape):
            self._at.show(op.y, op.x)
        elif type(op) in MOVES:
            for movement in MOVES[type(op)](op, self._graph):
                self._move(movement)
        else:
            layer = RULES[type(op)](op, self._graph)
            if not self._whole(layer):
                self._tiled(layer)

    # Layers that compute

    def _whole(self, layer: ChipLayer) -> bool:
        """All rows at once, between tensors that stay in local memory; False if that does not fit."""
        at, height = self._at, layer.result.shape[2]
        if any(entry.ddr_strides for entry in (*layer.operands, layer.result)):
            return False
        whole = (0, height)
        need = lane_need(layer, height, height) + _record_need(layer)
        if need > LANE_BYTES:
            return False
        resident = [layer.result.value, *(entry.value for entry in layer.operands)]
        taken: list[int] = []
        try:
            inputs = []
            for index, entry in enumerate(layer.operands):
                if entry.spread:
                    inputs.append(self._spread(layer, index, whole, taken, resident))
                else:
                    held = at.in_local(entry.value, resident)
                    inputs.append(LocalTensor(held.address, entry.shape))
            scratch = self._take(aligned(layer.scratch(height)), taken, resident)
            apart = [(scratch, scratch + 1)] if layer.scratch(height) else []
            if layer.banks:
                apart += [(local.address, local.address + local.size) for local in inputs]
            first = len(taken)
            records = self._records(layer, taken, resident, apart if layer.banks else ())
            if layer.banks:
                apart += [(address, address + 1) for address in taken[first:]]
            output = at.place(layer.result.value, resident, apart=apart)
        except NoRoom:
            for address in taken:
                at.memory.give(address)
            return False
        given = tuple((0, entry.shape[2]) for entry in layer.operands)
        tile = ChipTile(
            whole, tuple(inputs), given, LocalTensor(output.address, layer.result.shape), scratch, records
        )
        layer.emit(at.build, tile)
        self._tiles[-1] = 1
        for address in taken:
            at.memory.give(address)
        return True

    def _spread(
        self, layer: ChipLayer, index: int, rows: Rows, taken: list[int], resident: Sequence[Value]
    ) -> LocalTensor:
        """An operand of one channel, in every lane."""
        entry = layer.operands[index]
        shape = layer.operand_shape(index, rows)
        local = LocalTensor(self._take(lane_bytes(shape), taken, resident), shape)
        self._load(entry, layer.operand_rows(index, rows), local)
        return local

    def _take(
        self, size: int, taken: list[int], resident: Sequence[Value], apart: Sequence[Bytes] = ()
    ) -> int:
        if not size:
            return 0
        taken.append(self._at.take(size, resident, high=True, apart=apart))
        return taken[-1]

    def _records(
        self, layer: ChipLayer, taken: list[int], resident: Sequence[Value], apart: Sequence[Bytes] = ()
    ) -> Any:
        """Room for the constants of a layer; a function that brings a part there when it is first asked for."""
        at = self._at
        sizes = [aligned(record_room(record)) for record in layer.records]
        places = [at.record(record) for record in layer.records]
        kept = sum(sizes) <= RECORDS
        slots = [self._take(size, taken, resident, apart) for size in (sizes if kept else [max(sizes)] * 2)]
        there: dict[int, int] = {}

        def record(number: int) -> int:
            slot = number if kept else number % 2
            if there.get(slot) != number:
                load_record(at.build, layer.records[number], places[number], slots[slot])
                there[slot] = number
            return slots[slot]

        return record

    def _tiled(self, layer: ChipLayer) -> None:
        """Tiles of rows between DDR and DDR."""
        at, height = self._at, layer.result.shape[2]
        for entry in layer.operands:
            at.in_ddr(entry.value)
        target = at.reserve(layer.result.value)
        constants = _record_need(layer)
        rows = self._rows(layer, at.memory.largest_gap - constants)
        if rows < min(height, 8 * layer.granule):
            while at.evict_one(()):
                pass
            rows = self._rows(layer, LANE_BYTES - constants)
        if not rows:
            raise AssertionError("a layer was taken that does not fit the lanes")
        count = ceil_div(height, rows)
        rows = min(height, ceil_div(ceil_div(height, count), layer.granule) * layer.granule)
        count = ceil_div(height, rows)
        copies = 2 if count > 1 else 1
        taken: list[int] = []
        scratch = self._take(aligned(layer.scratch(rows)), taken, ())
        records = self._records(layer, taken, ())
        widest = [
            max(
                lane_bytes(layer.operand_shape(i, (r, min(r + rows, height)))) for r in range(0, height, rows)
            )
            for i in range(len(layer.operands))
        ]
        inputs = [[self._take(size, taken, ()) for size in widest] for _ in range(copies)]
        outputs = [self._take(lane_bytes(layer.tile_shape(rows)), taken, ()) for _ in range(copies)]
        strides = layer.result.ddr_strides or dense_strides(layer.result.shape)
        for number, first in enumerate(range(0, height, rows)):
            part = (first, min(first + rows, height))
            given, held = [], []
            for index, entry in enumerate(layer.operands):
                span = layer.operand_rows(index, part)
                local = LocalTensor(inputs[number % copies][index], layer.operand_shape(index, part))
                self._load(entry, span, local)
                given.append(span)
                held.append(local)
            output = LocalTensor(outputs[number % copies], layer.tile_shape(part[1] - part[0]))
            layer.emit(at.build, ChipTile(part, tuple(held), tuple(given), output, scratch, records))
            at.store(output, target.plus(first * strides[2]), strides)
        self._tiles[-1] = count
        for address in taken:
            at.memory.give(address)

    def _rows(self, layer: ChipLayer, room: int) -> int:
        """The most rows of a tile for so many bytes of each lane; 0 if none fit."""
        height, granule = layer.result.shape[2], layer.granule
        low, high = 0, ceil_div(height, granule)
        while low < high:
            middle = (low + high + 1) // 2
            if lane_need(layer, min(middle * granule, height), height) <= room:
                low = middle
            else:
                high = middle - 1
        return min(low * granule, height)

    def _load(self, entry: TileOperand, rows: Rows, local: LocalTensor) -> None:
        """Rows of an operand from DDR."""
        strides = entry.ddr_strides or dense_strides(entry.shape)
        if entry.spread:
            strides = (strides[0], 0, strides[2], strides[3])
        address = self._at.in_ddr(entry.value).plus(rows[0] * strides[2])
        self._at.load(address, local.shape, local, strides)

    # Ops that move

    def _move(self, movement: Movement) -> None:
        at = self._at
        if isinstance(movement, Turn):
            if movement.swap is not None and self._transposed(movement, *movement.swap):
                return
            source, target = at.in_ddr(movement.value), at.reserve(movement.result)
            for begin, end, shape, from_, to in movement.commands:
                at.build.move(source.plus(begin), target.plus(end), shape, from_, to)
            return
        resident = [movement.result, *(block.value for block in movement.blocks)]
        in_lanes = not any(block.views for block in movement.blocks)
        short = False  # runs in DDR for which the DMA takes as long as for longer ones
        for block in movement.blocks:
            width = min(at.stored(block.value).shape[3], block.shape[3])
            parted = block.shape[3] < max(
                at.stored(value).shape[3] for value in (block.value, movement.result)
            )
            short |= parted and width < SHORT_RUN and block.shape[1] * block.shape[2] > LANES
            if in_lanes and (block.steps[3] > 1 or short):
                self._bring(block.value, resident)
        place: LocalTensor | None = None
        any_local = any(at.stored(block.value).local is not None for block in movement.blocks)
        if (movement.result in self._uses or short) and any_local and in_lanes:
            try:
                place = at.place(movement.result, resident, evict=False)
            except NoRoom:
                place = None
        self._fill(movement, place)
        for block in movement.blocks:
            self._block(movement, block, place)

    def _transposed(self, movement: Turn, rows: int, columns: int) -> bool:
        """A matrix is turned in local memory, lanes for columns; False if it does not fit."""
        at = self._at
        stored = at.stored(movement.value)
        shape, turned = (1, rows, 1, columns), (1, columns, 1, rows)
        taken: list[int] = []
        try:
            fits = stored.local is not None and stored.shape[:2] == (1, rows)
            if fits and stored.local is not None:
                source = LocalTensor(stored.local.address, shape)
            else:
                address = at.in_ddr(movement.value)
                source = LocalTensor(self._take(lane_bytes(shape), taken, [movement.value]), shape)
                at.load(address, shape, source)
            if self._turned_in_runs(movement, source, taken):
                for place in taken:
                    at.memory.give(place)
                return True
            target = LocalTensor(self._take(lane_bytes(turned), taken, [movement.value]), turned)
        except NoRoom:
            for place in taken:
                at.memory.give(place)
            return False
        at.build.transpose(source, target)
        at.store(target, at.reserve(movement.result))
        for place in taken:
            at.memory.give(place)
        return True

    def _turned_in_runs(self, movement: Turn, source: LocalTensor, taken: list[int]) -> bool:
        """A matrix is turned so that each lane has neighbouring rows of the result, which the DMA then stores as one run.

        Columns that are to be neighbours in a lane are put 64 apart first, as a transposition gives every lane each 64th.
        """
        at = self._at
        _, rows, _, columns = source.shape
        count, each = rows_in_lanes(columns)
        if each == 1 or rows >= SHORT_RUN:
            return False
        first, last = len(taken), each * LANES
        apart, turned, dense = (1, rows, 1, last), (1, last, 1, rows), (1, count, each, rows)
        try:
            spots = [
                self._take(lane_bytes(shape), taken, [movement.value]) for shape in (apart, turned, dense)
            ]
        except NoRoom:
            while len(taken) > first:
                at.memory.give(taken.pop())
            return False
        spread, target, result = (
            LocalTensor(spot, shape) for spot, shape in zip(spots, (apart, turned, dense), strict=True)
        )
        pitches = [local.pitch if local.lane_rows > 1 else 0 for local in (source, spread)]
        begin = Operand(source.address, "i8", (0, pitches[0], 1, each), size=source.size)
        end = Operand(spread.address, "i8", (0, pitches[1], LANES, 1), size=spread.size)
        at.build.elementwise(COPY_FROM_OPERAND, (1, rows, each, count), end, begin)
        at.build.transpose(spread, target)
        begin = Operand(target.address, "i8", (0, 0, target.pitch, 1), size=target.size)
        at.build.elementwise(COPY_FROM_OPERAND, dense, Operand(result.address, "i8", size=result.size), begin)
        at.store(result, at.reserve(movement.result))
        return True

    def _bring(self, value: Value, resident: Sequence[Value]) -> None:
        """To local memory, if there is room for it."""
        try:
            self._at.in_local(value, resident)
        except NoRoom:
            return

    def _fill(self, movement: Moves, place: LocalTensor | None) -> None:
        if movement.fill is None:
            return
        at = self._at
        if place is None:
            shape = at.stored(movement.result).shape
            at.build.fill(at.reserve(movement.result), shape, dense_strides(shape), movement.fill)
            return
        target = Operand(place.address, "i8", size=place.size)
        at.build.elementwise(COPY_FROM_OPERAND, place.shape, target, constant(movement.fill, "i8"))

    def _block(self, movement: Moves, block: Block, place: LocalTensor | None) -> None:
        at = self._at
        source = at.stored(block.value)
        if block.views is not None:
            begin, strides = _ddr_side(at.in_ddr(block.value), block.views[0], block.start, block.steps)
            to = at.reserve(movement.result)
            end, own = _ddr_side(to, block.views[1], block.target, block.target_steps)
            at.build.move(begin, end, *_one_run(block.shape, strides, own))
            return
        if place is not None and source.local is not None and _keeps_lanes(block):
            self._copy(block, source.local, place)
            return
        if (
            place is not None
            and source.local is not None
            and block.steps[3] > 1
            and block.start[1] % LANES == 0
        ):
            # First close together in the same lanes, then to others.
            taken: list[int] = []
            try:
                dense = LocalTensor(
                    self._take(lane_bytes(block.shape), taken, [movement.result, block.value]), block.shape
                )
            except NoRoom:
                taken = []
            if taken:
                self._copy(replace(block, target=ZEROS, target_steps=ONES), source.local, dense)
                end, own = _local_side(place, block.target, block.target_steps)
                at.build.move(Address("local", dense.address), end, block.shape, dense.strides, own)
                at.memory.give(taken[0])
                return
        if source.local is not None and block.steps[1] == 1:
            begin, strides = _local_side(source.local, block.start, block.steps)
        else:
            begin, strides = _ddr_side(at.in_ddr(block.value), source.shape, block.start, block.steps)
        if place is not None:
            end, own = _local_side(place, block.target, block.target_steps)
        else:
            shape = at.stored(movement.result).shape
            end, own = _ddr_side(at.reserve(movement.result), shape, block.target, block.target_steps)
        at.build.move(begin, end, block.shape, strides, own)

    def _copy(self, block: Block, source: LocalTensor, target: LocalTensor) -> None:
        """Row of channels by row of channels."""
        shape = block.shape
        for n in range(shape[0]):
            for row, count in channel_chunks(shape[1], 1):
                sides = []
                for local, start, steps in (
                    (source, block.start, block.steps),
                    (target, block.target, block.target_steps),
                ):
                    width = local.shape[3]
                    begin = (
                        local.row(start[0] + n * steps[0], start[1] // LANES + row)
                        + start[2] * width
                        + start[3]
                    )
                    strides = (0, 0, width * steps[2], steps[3])
                    last = (shape[2] - 1) * strides[2] + (shape[3] - 1) * strides[3]
                    sides.append(Operand(begin, "i8", strides, size=last + 1))
                self._at.build.elementwise(COPY_FROM_OPERAND, (1, count, *shape[2:]), sides[1], sides[0])


def _keeps_lanes(block: Block) -> bool:
    """Whether every channel stays in its lane, so that the TIU can copy it, which is faster than the DMA."""
    strides = (block.steps, block.target_steps)
    return block.start[1] % LANES == block.target[1] % LANES == 0 and all(step[1] == 1 for step in strides)


def _local_side(local: LocalTensor, start: Shape, steps: Shape) -> tuple[Address, Shape]:
    n, c, h, w = start
    offset = local.row(n, c // LANES) + h * local.shape[3] + w
    plain = local.strides
    strides = (plain[0] * steps[0], plain[1], plain[2] * steps[2], steps[3])
    return Address("local", offset, c % LANES), strides


def _one_run(shape: Shape, source: Shape, target: Shape) -> tuple[Shape, Shape, Shape]:
    """Whole rows that follow each other on both sides, as one run."""
    n, c, h, w = shape
    if h == 1 and source[3] == target[3] == 1 and source[1] == target[1] == w and c * w <= LARGEST:
        return (n, 1, 1, c * w), (source[0], c * w, c * w, 1), (target[0], c * w, c * w, 1)
    return shape, source, target


def _ddr_side(address: Address, shape: Shape, start: Shape, steps: Shape) -> tuple[Address, Shape]:
    dense = dense_strides(shape)
    offset = sum(first * stride for first, stride in zip(start, dense, strict=True))
    n, c, h, w = (stride * step for stride, step in zip(dense, steps, strict=True))
    return address.plus(offset), (n, c, h, w)
