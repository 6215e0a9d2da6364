"""From scheduled work to instruction streams: addresses, semaphores, bytes.

Instructions are written in the order in which they are issued. Which of the others each has to wait for follows from the
bytes that they touch: for every block of 64 bytes of local memory and of each segment of DRAM that tensors are in, the last
instruction of each queue that read it and that wrote it is remembered. A value that does not fit its field is an error that
names the layer.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from npuc.errors import CompileError
from npuc.program.isa import BY_NAME, COMPRESSED, HEAD, MULTICAST, QUEUES, RECORD
from npuc.program.model import Allocation
from npuc.schedule.layers import Draft, Place, Tensor
from npuc.schedule.moves import Block
from npuc.schedule.steps import Buffer, Compute, Constants, Fence, Load, Store, Work

Array = np.ndarray[Any, Any]

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


@cache
def _packer(name: str) -> tuple[struct.Struct, tuple[tuple[str, bool], ...]]:
    """How a record is packed: a struct with the holes of the record type, and the fields behind the head in order, with
    whether they are several numbers."""
    dtype = BY_NAME[name].dtype
    codes = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i2": "h", "i4": "i", "i8": "q"}
    text, at = "<", 0
    fields = (*HEAD, *BY_NAME[name].fields)
    for part in fields:
        offset = int(dtype.fields[part.name][1])  # type: ignore[index]
        text += f"{offset - at}x{part.count}{codes[part.type]}"
        at = offset + np.dtype(part.type).itemsize * part.count
    own = tuple((part.name, part.count > 1) for part in BY_NAME[name].fields)
    return struct.Struct(text + f"{RECORD - at}x"), own


def _numbers(opcode: str, values: Mapping[str, Any]) -> list[Any]:
    """The fields of an instruction behind its head, one after the other."""
    found: list[Any] = []
    for name, several in _packer(opcode)[1]:
        if several:
            found.extend(values[name])
        else:
            found.append(values[name])
    return found


class Drafted(NamedTuple):
    """An instruction of a step, all but where its buffers lie."""

    opcode: str
    queue: int
    numbers: list[Any]
    """Its fields."""
    places: list[tuple[int, Buffer, int]]
    """Those that are addresses: a buffer, and a byte of it."""
    touched: list[tuple[Buffer, int, int, bool]]
    """What it reads, then what it writes: a buffer, bytes of it, and whether it is written."""
    results: list[tuple[int, Buffer]]
    """Outputs of the layer that it writes some of, and where."""


def _drafted(draft: Draft, slots: Mapping[str, tuple[Buffer, int]]) -> Drafted:
    numbers = _numbers(draft.opcode, draft.fields)
    places, touched, results = [], [], []
    for at, place in enumerate(numbers):
        if isinstance(place, Place):
            buffer, offset = slots[place.slot]
            places.append((at, buffer, offset + place.offset))
    for spans, write in ((draft.reads, False), (draft.writes, True)):
        for slot, low, high in spans:
            buffer, offset = slots[slot]
            touched.append((buffer, offset + low, offset + high, write))
            if write and slot.startswith("out") and any(buffer.rows):
                results.append((int(slot[3:]), buffer))
    return Drafted(draft.opcode, _QUEUE[draft.queue], numbers, places, touched, results)


@dataclass
class _Tracker:
    """The last instruction of each queue that touched, and that wrote, each block of a memory."""

    size: int
    touched: Array = field(init=False)
    written: Array = field(init=False)

    def __post_init__(self) -> None:
        blocks = -(-self.size // _BLOCK) + 1
        self.touched = np.zeros((len(QUEUES), blocks), np.uint32)
        self.written = np.zeros((len(QUEUES), blocks), np.uint32)

    def access(self, low: int, high: int, queue: int, number: int, write: bool, waits: list[int]) -> None:
        """An instruction touches bytes: raise its waits to what has to come before, and remember it."""
        part = slice(low // _BLOCK, -(-high // _BLOCK))
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
    drafted: dict[Compute, list[Drafted]] = field(default_factory=dict)
    """What is known of steps that were assembled before, at other addresses."""
    steps: list[tuple[int, int]] = field(default_factory=list)
    """For each step the first of its instructions and the one behind its last."""
    loads: list[int] = field(default_factory=list)
    """The instruction of each load, of which there may be none."""

    def assemble(self, work: Work) -> Array:
        """The instructions of all work."""
        self._local = _Tracker(self.local_size)
        ends = {1: self.dram.workspace}
        for tensor, (segment, offset) in self.dram.tensors.items():
            ends[segment] = max(ends.get(segment, 0), offset + tensor.size)
        self._dram = {segment: _Tracker(end) for segment, end in ends.items()}
        pending = iter(work.loads)
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
        stream = np.frombuffer(b"".join(self._records), np.uint8)
        return stream.reshape(-1, RECORD)

    def allocations(self, core: int = 0) -> tuple[Allocation, ...]:
        """What lay where, from the first instruction that touched it to the last."""
        return tuple(
            Allocation(buffer.name, core, self.addresses[buffer], buffer.size, low, high)
            for buffer, (low, high) in self._spans.items()
        )

    def written(self, core: int = 0) -> list[Written]:
        """The parts of results that instructions write."""
        found = []
        for (layer, output, place), (first, last) in self._results.items():
            if isinstance(place, Buffer):
                where = -1, self.addresses[place], place.size, place.rows[0]
            else:
                where = *self.dram.tensors[place], place.size, 0
            found.append(Written(layer, output, core, *where, first, last))
        return found

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
        drafted = self.drafted.get(step)
        if drafted is None:
            drafted = self.drafted[step] = [_drafted(draft, step.slots) for draft in step.drafts]
        addresses, memory = self.addresses, self._local
        for draft in drafted:
            numbers = draft.numbers.copy()
            for at, buffer, offset in draft.places:
                numbers[at] = addresses[buffer] + offset
            spans = []
            for buffer, low, high, write in draft.touched:
                start = addresses[buffer]
                spans.append((memory, start + low, start + high, write))
                self._note(buffer)
            for output, buffer in draft.results:
                self._note_result(step.layer, output, buffer)
            self._emit(draft.opcode, draft.queue, step.layer, numbers, spans)

    def _load(self, load: Load | Fence) -> None:
        self.loads.append(len(self._records))
        if isinstance(load, Fence):
            # All that this core has stored has to be there before any core reads on.
            stores = self._counts[_QUEUE["store"]]
            self._emit("barrier", _QUEUE["load"], 0, [load.number], [], stores=stores)
            return
        if load.buffer not in self.addresses:
            return
        stored = 0
        if isinstance(load.source, Constants):
            key = load.source.layer, load.source.channels
            segment, base, stored = 0, self.dram.constants[key], self.dram.stored.get(key, 0)
        else:
            segment, base = self.dram.tensors[load.source]
        self._transfer(
            "load", load.layer, load.buffer, load.offset, load.size, segment, base + load.at, load.block,
            MULTICAST if load.multicast else 0, stored,
        )  # fmt: skip

    def _store(self, step: Store) -> None:
        segment, base = self.dram.tensors[step.tensor]
        if not any(step.buffer.rows):  # a block on its way from DRAM to DRAM
            self._note_result(step.layer, 0, step.tensor)
        self._transfer(
            "store", step.layer, step.buffer, step.offset, step.size, segment, base + step.at, step.block
        )

    def _transfer(
        self,
        opcode: str,
        layer: int,
        buffer: Buffer,
        offset: int,
        size: int,
        segment: int,
        far: int,
        block: Block | None,
        flags: int = 0,
        stored: int = 0,
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
        values = {
            "segment": segment, "offset": far, "local": local, "size": block.size,
            "far_stride": block.far, "near_stride": block.near, "stored": stored,
        }  # fmt: skip
        flags |= COMPRESSED if stored else 0
        self._note(buffer)
        stores = opcode == "store"
        spans = [(self._local, local, local + size, not stores)]
        if segment in self._dram:
            spans.append((self._dram[segment], low, high, stores))
        self._emit(opcode, _QUEUE[opcode], layer, _numbers(opcode, values), spans, flags)

    def _emit(
        self,
        opcode: str,
        queue: int,
        layer: int,
        numbers: list[Any],
        spans: list[tuple[_Tracker, int, int, bool]],
        flags: int = 0,
        stores: int = 0,
    ) -> None:
        """An instruction that touches spans of memories, reads before writes, after so many stores at least."""
        self._counts[queue] += 1
        waits = [0] * len(QUEUES)
        waits[_QUEUE["store"]] = stores
        for memory, low, high, write in spans:
            memory.access(low, high, queue, self._counts[queue], write, waits)
        head = BY_NAME[opcode].opcode, queue, flags, layer + self.first_layer, *waits
        try:
            self._records.append(_packer(opcode)[0].pack(*head, *numbers))
        except struct.error as error:
            raise CompileError(
                f"an instruction '{opcode}' cannot hold its numbers: {error}",
                where=f"layer '{self.layers[layer]}'",
            ) from error
