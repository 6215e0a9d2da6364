"""From scheduled work to instruction streams: addresses, semaphores, bytes.

Instructions are written in the order in which they are issued. Which of the others each has to wait for follows from the
bytes that they touch: for every block of 64 bytes of local memory and of each segment of DRAM that tensors are in, the last
instruction of each queue that read it and that wrote it is remembered. A value that does not fit its field is an error that
names the layer.

Example: a row of an image is loaded to byte 0 and goes through a table to byte 64, whose results are stored. `load` is the
first instruction of its queue, so it becomes the last that wrote block 0. `table` reads block 0: it waits until the semaphore
of the load queue has reached 1. It writes block 1, which `store` reads: that one waits until the vector queue has reached 1.
A second load to byte 0 has to wait until `table` has read it, vector >= 1, though not for the first load: a queue keeps its
own order.

    load   0x0000                   after nothing
    table  0x0000 -> 0x0040         after load >= 1
    store  0x0040                   after vector >= 1
    load   0x0000                   after vector >= 1
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.errors import CompileError
from npuc.program.instruction import TypedInstruction, packer
from npuc.program.instructions import Barrier, Conv, Transfer
from npuc.program.instructions import Load as LoadInstruction
from npuc.program.instructions import Store as StoreInstruction
from npuc.program.isa import COMPRESSED, MULTICAST, QUEUES, RECORD, SPARSE
from npuc.program.model import Allocation
from npuc.schedule.layers import InstructionTemplate, Place, Tensor
from npuc.schedule.moves import Block
from npuc.schedule.steps import Buffer, Compute, ConstantSlice, Fence, Load, Store, Work

_BLOCK = 64
_QUEUE = {name: index for index, name in enumerate(QUEUES)}


@dataclass(frozen=True)
class Dram:
    """Where tensors and constants are."""

    tensors: Mapping[Tensor, tuple[int, int]]
    """Tensor to segment and byte."""
    constants: Mapping[tuple[int, tuple[int, int]], int]
    """Layer and channels to the byte in segment 0."""
    workspace: int
    """Bytes of segment 1."""
    stored: Mapping[tuple[int, tuple[int, int]], int] = field(default_factory=dict)
    """Of constants that are compressed there, the bytes of their stream."""


@dataclass(frozen=True)
class Spans:
    """Where the work of a core is in its stream."""

    steps: Sequence[tuple[int, int]]
    """For each step the first of its instructions and the one behind its last."""
    loads: Sequence[int]
    """The instruction of each load."""
    buffers: Mapping[Buffer, Sequence[int]]
    """The first and the last instruction that touches each buffer."""


@dataclass(frozen=True)
class Written:
    """A part of a layer's result in a memory, and the instructions that write it."""

    layer: int
    output: int
    core: int
    segment: int
    """-1: local memory."""
    address: int
    size: int
    row: int
    """The row of the result that it begins with."""
    first: int
    last: int


class Bound(NamedTuple):
    """An instruction template whose operands are bound to buffers: all of an instruction but where its buffers lie."""

    kind: type[TypedInstruction]
    queue: int
    flags: int
    numbers: list[Any]
    """Its fields."""
    places: list[tuple[int, Buffer, int]]
    """Those that are addresses: a buffer, and a byte of it."""
    touched: list[tuple[Buffer, int, int, bool]]
    """What it reads, then what it writes: a buffer, bytes of it, and whether it is written."""
    results: list[tuple[int, Buffer | Tensor]]
    """Outputs of the layer that it writes some of, and where."""
    far_places: list[tuple[int, int, Tensor, int]]
    """Fields that are a byte of DRAM: that, the field of its segment, a tensor, and a byte of it."""
    far_touched: list[tuple[Tensor, int, int, bool]]
    """What it touches in DRAM."""


def _bound(template: InstructionTemplate, slots: Mapping[str, Buffer], far: Mapping[str, Tensor]) -> Bound:
    instruction = template.instruction
    numbers = instruction.numbers()
    places, touched, far_places, far_touched = [], [], [], []
    results: list[tuple[int, Buffer | Tensor]] = []
    for at in instruction.addresses:
        place = numbers[at]
        if isinstance(place, Place):
            places.append((at, slots[place.slot], place.offset))
    for at, segment in instruction.far_addresses:
        place = numbers[at]
        if isinstance(place, Place):
            far_places.append((at, segment, far[place.slot], place.offset))
    for spans, write in ((template.reads, False), (template.writes, True)):
        for slot, low, high in spans:
            if slot in far:
                far_touched.append((far[slot], low, high, write))
                if write and slot.startswith("out"):
                    results.append((int(slot[3:]), far[slot]))
                continue
            buffer = slots[slot]
            touched.append((buffer, low, high, write))
            if write and slot.startswith("out") and any(buffer.rows):
                results.append((int(slot[3:]), buffer))
    flags = SPARSE if isinstance(instruction, Conv) and instruction.sparse_m else 0
    queue = _QUEUE[instruction.queue]
    return Bound(type(instruction), queue, flags, numbers, places, touched, results, far_places, far_touched)


@dataclass
class _Tracker:
    """The last instruction of each queue that touched, and that wrote, each block of a memory."""

    size: int
    touched: Array = field(init=False)
    written: Array = field(init=False)

    def __post_init__(self) -> None:
        blocks = ceil_div(self.size, _BLOCK) + 1
        self.touched = np.zeros((len(QUEUES), blocks), np.uint32)
        self.written = np.zeros((len(QUEUES), blocks), np.uint32)

    def access(self, low: int, high: int, queue: int, number: int, write: bool, waits: list[int]) -> None:
        """An instruction touches bytes: raise its waits to what has to come before, and remember it."""
        part = slice(low // _BLOCK, ceil_div(high, _BLOCK))
        known = self.touched if write else self.written
        latest = np.maximum.reduce(known[:, part], axis=1, initial=0)
        for other, before in enumerate(latest.tolist()):
            if other != queue and before > waits[other]:
                waits[other] = before
        self.touched[queue, part] = number
        if write:
            self.written[queue, part] = number


@dataclass
class Assembler:
    """Writes the stream of one core."""

    layers: list[str]
    first_layer: int
    """The number of layer 0 of the work in the layer table."""
    local_size: int
    dram: Dram
    addresses: Mapping[Buffer, int]
    _records: list[bytes] = field(default_factory=list)
    _counts: list[int] = field(default_factory=lambda: [0] * len(QUEUES))
    _spans: dict[Buffer, list[int]] = field(default_factory=dict)
    _results: dict[tuple[int, int, Buffer | Tensor], list[int]] = field(default_factory=dict)
    bound: dict[Compute, list[Bound]] = field(default_factory=dict)
    """What is known of steps that were assembled before, at other addresses."""
    steps: list[tuple[int, int]] = field(default_factory=list)
    """For each step the first of its instructions and the one behind its last."""
    loads: list[int] = field(default_factory=list)
    """The instruction of each load, of which there may be none."""
    _barrier: int = 0
    """How many instructions of its queue the last barrier is behind, with itself."""
    _meets_in: int = _QUEUE["load"]
    """The queue with the barriers."""
    _tensor_loads: int = 0
    """How many instructions of the load queue are through when the last of them that brings a tensor is."""
    _in_dram: int = 0
    """How many instructions of the vector queue are through when the last of them that works in DRAM is."""

    def assemble(self, work: Work) -> Array:
        """The instructions of all work."""
        self._local = _Tracker(self.local_size)
        self._meets_in = _QUEUE["store" if work.runs_ahead else "load"]
        ends = {1: self.dram.workspace}
        for tensor, (segment, offset) in self.dram.tensors.items():
            ends[segment] = max(ends.get(segment, 0), offset + tensor.size)
        self._dram = {segment: _Tracker(end) for segment, end in ends.items()}
        order = work.queue()
        pending = iter([work.loads[number] for number in order])
        load = next(pending, None)
        for number, step in enumerate(work.steps):
            while load is not None and load.issue <= number:
                self._load(load)
                load = next(pending, None)
            first = len(self._records)
            if isinstance(step, Compute):
                self._compute(step)
            else:
                self._store(step)
            self.steps.append((first, len(self._records)))
        while load is not None:
            self._load(load)
            load = next(pending, None)
        issued = dict(zip(order, self.loads, strict=True))
        self.loads = [issued[number] for number in range(len(order))]
        stream = np.frombuffer(b"".join(self._records), np.uint8)
        return stream.reshape(-1, RECORD)

    def spans(self) -> Spans:
        """Where work and buffers are in the stream."""
        return Spans(self.steps, self.loads, self._spans)

    def allocations(self, core: int = 0) -> tuple[Allocation, ...]:
        """What lay where, from the first instruction that touched it to the last."""
        return tuple(
            Allocation(buffer.name, core, self.addresses[buffer], buffer.size, low, high)
            for buffer, (low, high) in self._spans.items()
        )

    def written(self, core: int = 0) -> list[Written]:
        """The parts of results that instructions write."""
        parts = []
        for (layer, output, place), (first, last) in self._results.items():
            if isinstance(place, Buffer):
                where = -1, self.addresses[place], place.size, place.rows[0]
            else:
                where = *self.dram.tensors[place], place.size, 0
            parts.append(Written(layer, output, core, *where, first, last))
        return parts

    def _note_result(self, layer: int, output: int, place: Buffer | Tensor) -> None:
        at = len(self._records)
        self._results.setdefault((layer, output, place), [at, at])[1] = at

    def _note(self, buffer: Buffer) -> None:
        at = len(self._records)
        span = self._spans.get(buffer)
        if span is None:
            self._spans[buffer] = [at, at]
        else:
            span[1] = at

    def _compute(self, step: Compute) -> None:
        bound = self.bound.get(step)
        if bound is None:
            bound = self.bound[step] = [_bound(template, step.slots, step.far) for template in step.templates]
        addresses, memory = self.addresses, self._local
        for instruction in bound:
            numbers = instruction.numbers.copy()
            for at, buffer, offset in instruction.places:
                numbers[at] = addresses[buffer] + offset
            spans = []
            for buffer, low, high, write in instruction.touched:
                start = addresses[buffer]
                spans.append((memory, start + low, start + high, write))
                self._note(buffer)
            for output, place in instruction.results:
                self._note_result(step.layer, output, place)
            for at, segment_at, tensor, offset in instruction.far_places:
                numbers[segment_at], base = self.dram.tensors[tensor]
                numbers[at] = base + offset
            for tensor, low, high, write in instruction.far_touched:
                segment, base = self.dram.tensors[tensor]
                spans.append((self._dram[segment], base + low, base + high, write))
            waits = [0] * len(QUEUES)
            if instruction.far_touched:
                # What other cores have stored is there behind the barrier.
                waits[self._meets_in] = self._barrier
            self._emit(
                instruction.kind, instruction.queue, step.layer, numbers, spans, instruction.flags, waits
            )
            if instruction.far_touched:
                self._in_dram = self._counts[instruction.queue]

    def _load(self, load: Load | Fence) -> None:
        self.loads.append(len(self._records))
        if isinstance(load, Fence):
            # All that this core has stored has to be there before any core reads on, and all that it reads before any core
            # writes there. A queue has seen its own instructions out: among the stores, loads of constants go on.
            waits = [0] * len(QUEUES)
            waits[_QUEUE["store"]], waits[_QUEUE["vector"]] = self._counts[_QUEUE["store"]], self._in_dram
            waits[_QUEUE["load"]] = self._tensor_loads
            waits[self._meets_in] = 0
            self._emit(Barrier, self._meets_in, 0, [load.number], [], waits=waits)
            self._barrier = self._counts[self._meets_in]
            return
        if load.buffer not in self.addresses:
            return
        stored = 0
        if isinstance(load.source, ConstantSlice):
            key = load.source.layer, load.source.channels
            segment, base, stored = 0, self.dram.constants[key], self.dram.stored.get(key, 0)
        else:
            segment, base = self.dram.tensors[load.source]
        waits = [0] * len(QUEUES)
        if not load.is_constant and self._meets_in != _QUEUE["load"]:
            waits[self._meets_in] = self._barrier
        self._transfer(
            LoadInstruction, load.layer, load.buffer, load.offset, load.size, segment, base + load.at, load.block,
            MULTICAST if load.multicast else 0, stored, waits,
        )  # fmt: skip
        if not load.is_constant:
            self._tensor_loads = self._counts[_QUEUE["load"]]

    def _store(self, step: Store) -> None:
        segment, base = self.dram.tensors[step.tensor]
        if not any(step.buffer.rows):  # a block on its way from DRAM to DRAM
            self._note_result(step.layer, 0, step.tensor)
        self._transfer(
            StoreInstruction,
            step.layer,
            step.buffer,
            step.offset,
            step.size,
            segment,
            base + step.at,
            step.block,
        )

    def _transfer(
        self,
        kind: type[LoadInstruction] | type[StoreInstruction],
        layer: int,
        buffer: Buffer,
        offset: int,
        size: int,
        segment: int,
        far: int,
        block: Block | None,
        flags: int = 0,
        stored: int = 0,
        waits: list[int] | None = None,
    ) -> None:
        local = self.addresses[buffer] + offset
        low, high = far, far + size
        if block is None:
            block = Block((1, 1, 1, size), (0, 0, 0), (0, 0, 0))
        else:
            # Down for a slice backwards.
            steps = [(n - 1) * stride for n, stride in zip(block.size, block.far, strict=False)]
            low += sum(min(step, 0) for step in steps)
            high = far + sum(max(step, 0) for step in steps) + block.size[3]
        transfer = Transfer(segment, far, local, block.size, block.far, block.near)
        stores = kind is StoreInstruction
        instruction = StoreInstruction(transfer) if stores else LoadInstruction(transfer, stored)
        flags |= COMPRESSED if stored else 0
        self._note(buffer)
        spans = [(self._local, local, local + size, not stores)]
        if segment in self._dram:
            spans.append((self._dram[segment], low, high, stores))
        self._emit(kind, _QUEUE[kind.queue], layer, instruction.numbers(), spans, flags, waits)

    def _emit(
        self,
        kind: type[TypedInstruction],
        queue: int,
        layer: int,
        numbers: list[Any],
        spans: list[tuple[_Tracker, int, int, bool]],
        flags: int = 0,
        waits: list[int] | None = None,
    ) -> None:
        """An instruction that touches spans of memories, reads before writes, after `waits` at least."""
        self._counts[queue] += 1
        waits = waits or [0] * len(QUEUES)
        for memory, low, high, write in spans:
            memory.access(low, high, queue, self._counts[queue], write, waits)
        head = kind.opcode, queue, flags, layer + self.first_layer, *waits
        try:
            self._records.append(packer(kind.name).pack(*head, *numbers))
        except struct.error as error:
            raise CompileError(
                f"an instruction '{kind.name}' cannot hold its numbers: {error}",
                where=f"layer '{self.layers[layer]}'",
            ) from error
