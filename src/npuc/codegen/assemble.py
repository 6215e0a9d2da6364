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
from typing import Any

import numpy as np

from npuc.codegen.isa import BY_NAME, HEAD, MULTICAST, QUEUES, RECORD
from npuc.codegen.program import Allocation
from npuc.errors import CompileError
from npuc.schedule.layers import Place, Tensor
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


@cache
def _packer(name: str) -> tuple[struct.Struct, tuple[str, ...]]:
    """How a record is packed: a struct with the holes of the record type, and the fields in order."""
    dtype = BY_NAME[name].dtype
    codes = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i2": "h", "i4": "i", "i8": "q"}
    text, at = "<", 0
    fields = (*HEAD, *BY_NAME[name].fields)
    for part in fields:
        offset = int(dtype.fields[part.name][1])  # type: ignore[index]
        text += f"{offset - at}x{part.count}{codes[part.type]}"
        at = offset + np.dtype(part.type).itemsize * part.count
    return struct.Struct(text + f"{RECORD - at}x"), tuple(part.name for part in fields)


@dataclass
class _Tracker:
    """The last instruction of each queue that read and wrote each block of a memory."""

    size: int
    read: Array = field(init=False)
    written: Array = field(init=False)

    def __post_init__(self) -> None:
        blocks = -(-self.size // _BLOCK) + 1
        self.read = np.zeros((len(QUEUES), blocks), np.uint32)
        self.written = np.zeros((len(QUEUES), blocks), np.uint32)

    def access(self, low: int, high: int, queue: int, number: int, write: bool, waits: list[int]) -> None:
        """An instruction touches bytes: raise its waits to what has to come before, and remember it."""
        part = slice(low // _BLOCK, -(-high // _BLOCK))
        for other in range(len(QUEUES)):
            if other != queue:
                latest = int(self.written[other, part].max(initial=0))
                if write:
                    latest = max(latest, int(self.read[other, part].max(initial=0)))
                waits[other] = max(waits[other], latest)
        (self.written if write else self.read)[queue, part] = number


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
            if isinstance(step, Compute):
                self._compute(step)
            else:
                self._store(step)
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

    def _note(self, buffer: Buffer) -> None:
        at = len(self._records)
        span = self._spans.setdefault(buffer, [at, at])
        span[1] = at

    def _compute(self, step: Compute) -> None:
        for draft in step.drafts:
            values = {}
            for name, value in draft.fields.items():
                if isinstance(value, Place):
                    buffer, offset = step.slots[value.slot]
                    value = self.addresses[buffer] + offset + value.offset
                values[name] = value
            local = []
            for spans, write in ((draft.reads, False), (draft.writes, True)):
                for slot, low, high in spans:
                    buffer, offset = step.slots[slot]
                    start = self.addresses[buffer] + offset
                    local.append((start + low, start + high, write))
                    self._note(buffer)
            self._emit(draft.opcode, draft.queue, step.layer, values, local, [])

    def _load(self, load: Load | Fence) -> None:
        if isinstance(load, Fence):
            # All that this core has stored has to be there before any core reads on.
            stores = self._counts[_QUEUE["store"]]
            self._emit("barrier", "load", 0, {"number": load.number}, [], [], at_least={"store": stores})
            return
        if load.buffer not in self.addresses:
            return
        if isinstance(load.source, Constants):
            segment, base = 0, self.dram.constants[load.source.layer, load.source.channels]
        else:
            segment, base = self.dram.tensors[load.source]
        self._transfer(
            "load", load.layer, load.buffer, load.offset, load.size, segment, base + load.at, load.block,
            MULTICAST if load.multicast else 0,
        )  # fmt: skip

    def _store(self, step: Store) -> None:
        segment, base = self.dram.tensors[step.tensor]
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
    ) -> None:
        local = self.addresses[buffer] + offset
        block = block or Block((1, 1, 1, size), (0, 0, 0), (0, 0, 0))
        values = {
            "segment": segment, "offset": far, "local": local, "size": block.size,
            "far_stride": block.far, "near_stride": block.near,
        }  # fmt: skip
        self._note(buffer)
        stores = opcode == "store"
        steps = [
            (n - 1) * stride for n, stride in zip(block.size, block.far, strict=False)
        ]  # down for a slice backwards
        low = far + sum(min(step, 0) for step in steps)
        high = far + sum(max(step, 0) for step in steps) + block.size[3]
        outside = [(self._dram[segment], low, high, stores)] if segment in self._dram else []
        self._emit(opcode, opcode, layer, values, [(local, local + size, not stores)], outside, flags)

    def _emit(
        self,
        opcode: str,
        queue_name: str,
        layer: int,
        values: dict[str, Any],
        local: list[tuple[int, int, bool]],
        outside: list[tuple[_Tracker, int, int, bool]],
        flags: int = 0,
        at_least: Mapping[str, int] | None = None,
    ) -> None:
        queue = _QUEUE[queue_name]
        self._counts[queue] += 1
        waits = [(at_least or {}).get(name, 0) for name in QUEUES]
        spans = [(self._local, *span) for span in sorted(local, key=lambda span: span[2])]
        for memory, low, high, write in [*spans, *outside]:
            memory.access(low, high, queue, self._counts[queue], write, waits)
        packer, names = _packer(opcode)
        head = {
            "opcode": BY_NAME[opcode].opcode, "queue": queue, "flags": flags, "layer": layer + self.first_layer, "wait": waits,
        }  # fmt: skip
        flat: list[Any] = []
        for name in names:
            value = head[name] if name in head else values[name]
            flat.extend(value) if isinstance(value, tuple | list) else flat.append(value)
        try:
            self._records.append(packer.pack(*flat))
        except struct.error as error:
            raise CompileError(
                f"an instruction '{opcode}' cannot hold its numbers: {error}",
                where=f"layer '{self.layers[layer]}'",
            ) from error
