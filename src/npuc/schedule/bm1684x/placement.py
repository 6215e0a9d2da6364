"""Where values are while commands are made: in DDR, in local memory, or in both; and what brings them there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.ir import Graph, Value, shape_of
from npuc.program.bm1684x.commands import LANE_BYTES
from npuc.schedule.bm1684x.layout import (
    LARGEST,
    LaneRecord,
    LocalTensor,
    Shape,
    aligned,
    canonical,
    dense_strides,
    lane_bytes,
)
from npuc.schedule.bm1684x.memory import Bytes, LaneMemory, NoRoom
from npuc.schedule.bm1684x.work import Address, Builder

FULL_SPEED = 3 * 4096 + 1
"""Bytes of DDR between the first and the last run of a transfer that takes no longer than its bytes need."""
_WIDE = 4096
"""Bytes of a row of a long record."""


@dataclass
class Stored:
    """A value."""

    shape: Shape
    local: LocalTensor | None = None
    ddr: Address | None = None


class Placement:
    """All values of a subgraph, and the memories they are in."""

    def __init__(self, graph: Graph, uses: Mapping[Value, list[int]]) -> None:
        self.build = Builder()
        self.memory = LaneMemory(LANE_BYTES, lambda: len(self.build.issues))
        self._graph, self._uses = graph, uses
        self._stored: dict[Value, Stored] = {}
        self._holders: dict[int, int] = {}
        """Values in each buffer of local memory, by its address."""
        self._coefficients: list[bytes] = []
        self._coefficient_bytes = 0
        self.activations = 0
        self.spilled = 0

    @property
    def coefficients(self) -> bytes:
        """The constants as they lie in DDR."""
        return b"".join(self._coefficients)

    def reserve(self, value: Value) -> Address:
        """Room in DDR for a value; it has some already if another value shows the same bytes."""
        stored = self.stored(value)
        if stored.ddr is None:
            n, c, h, w = stored.shape
            stored.ddr = Address("activations", self.activations)
            self.activations += aligned(n * c * h * w)
        return stored.ddr

    def stored(self, value: Value) -> Stored:
        """What is known of a value; a constant is among the coefficients."""
        if value not in self._stored:
            entry = Stored(canonical(shape_of(value)))
            array = self._graph.constant(value)
            if array is not None:
                entry.ddr = self._keep(np.ascontiguousarray(array).tobytes())
            self._stored[value] = entry
        return self._stored[value]

    def in_ddr(self, value: Value) -> Address:
        """Where it is in DDR; it is stored there first if it is in local memory only."""
        stored = self.stored(value)
        if stored.ddr is None:
            address = self.reserve(value)
            assert stored.local is not None
            self.store(stored.local, address)
            for other in self._stored.values():  # values that show the same bytes
                if other.local is not None and other.local.address == stored.local.address:
                    other.ddr = address
        return stored.ddr  # type: ignore[return-value]

    def store(self, local: LocalTensor, address: Address, strides: Shape | None = None) -> None:
        """From local memory to DDR."""
        strides = strides or dense_strides(local.shape)
        line = self._line(local.shape, strides)
        if line is None:
            self.build.move(Address("local", local.address), address, local.shape, local.strides, strides)
            return
        self.build.transpose(local, line)
        self.build.move(
            Address("local", line.address), address, line.shape, line.strides, dense_strides(line.shape)
        )
        self.memory.give(line.address)

    def load(self, address: Address, shape: Shape, local: LocalTensor, strides: Shape | None = None) -> None:
        """From DDR to local memory."""
        strides = strides or dense_strides(shape)
        line = self._line(shape, strides)
        if line is None:
            self.build.move(address, Address("local", local.address), shape, strides, local.strides)
            return
        self.build.move(
            address, Address("local", line.address), line.shape, dense_strides(line.shape), line.strides
        )
        self.build.transpose(line, local)
        self.memory.give(line.address)

    def _line(self, shape: Shape, strides: Shape) -> LocalTensor | None:
        """Room for one element of each channel as a line of one lane; None if a tensor is no such thing, or there is no room.

        The DMA takes as long for one byte of a lane as for 256, and the TIU transposes a line at once.
        """
        n, c, h, w = shape
        if (n, h, w) != (1, 1, 1) or not 1 < c <= LARGEST or strides[1] != 1:
            return None
        line = (1, 1, 1, c)
        try:
            return LocalTensor(self.memory.take(lane_bytes(line), high=True), line)
        except NoRoom:
            return None

    def in_local(self, value: Value, resident: Collection[Value]) -> LocalTensor:
        """Where it is in local memory; it is loaded first if it is in DDR only. Values that have to stay do."""
        stored = self.stored(value)
        if stored.local is None:
            assert stored.ddr is not None
            local = self.place(value, resident)
            self.load(stored.ddr, stored.shape, local)
        return stored.local  # type: ignore[return-value]

    def place(
        self, value: Value, resident: Collection[Value], evict: bool = True, apart: Sequence[Bytes] = ()
    ) -> LocalTensor:
        """Room in local memory for a value, in other banks than some bytes if that can be."""
        stored = self.stored(value)
        local = LocalTensor(0, stored.shape)
        address = self.take(local.size, resident, evict=evict, apart=apart)
        stored.local = LocalTensor(address, stored.shape)
        self._holders[address] = 1
        return stored.local

    def take(
        self,
        size: int,
        resident: Collection[Value],
        high: bool = False,
        evict: bool = True,
        apart: Sequence[Bytes] = (),
    ) -> int:
        """Bytes of local memory; others make room, those of `resident` do not."""
        while True:
            try:
                return self.memory.take(size, high, apart)
            except NoRoom:
                if not evict or not self.evict_one(resident):
                    raise

    def evict_one(self, resident: Collection[Value]) -> bool:
        """The value that is needed last leaves local memory; False if there is none."""
        kept = {stored.local.address for v in resident if (stored := self.stored(v)).local is not None}
        now = self.memory.now
        far: dict[int, tuple[int, Value]] = {}
        for value, stored in self._stored.items():
            if stored.local is None or stored.local.address in kept:
                continue
            following = next((use for use in self._uses.get(value, ()) if use >= now), 1 << 30)
            known = far.get(stored.local.address)
            if known is None or following < known[0]:
                far[stored.local.address] = following, value
        if not far:
            return False
        _, value = max(far.values(), key=lambda item: item[0])
        before = self.stored(value).ddr
        self.in_ddr(value)
        self.spilled += before is None
        self.drop_buffer(self.stored(value).local)
        return True

    def drop_buffer(self, local: LocalTensor | None) -> None:
        """No value is in this buffer any more."""
        if local is None:
            return
        for stored in self._stored.values():
            if stored.local is not None and stored.local.address == local.address:
                stored.local = None
        del self._holders[local.address]
        self.memory.give(local.address)

    def drop(self, value: Value) -> None:
        """A value is not needed any more."""
        stored = self._stored.get(value)
        if stored is None or stored.local is None:
            return
        address = stored.local.address
        stored.local = None
        self._holders[address] -= 1
        if not self._holders[address]:
            del self._holders[address]
            self.memory.give(address)

    def show(self, value: Value, source: Value) -> None:
        """A value has the bytes of another under another shape."""
        stored, entry = self.stored(source), Stored(canonical(shape_of(value)))
        self._stored[value] = entry
        (n, c, h, w), (m, d, i, j) = stored.shape, entry.shape
        if stored.local is not None and (n, c, h * w) == (m, d, i * j):
            entry.local = LocalTensor(stored.local.address, entry.shape)
            self._holders[entry.local.address] += 1
            entry.ddr = stored.ddr
        else:
            entry.ddr = self.in_ddr(source)

    def record(self, record: LaneRecord) -> Address:
        """The constants of a layer, among the coefficients."""
        return self._keep(record_bytes(record))

    def _keep(self, data: bytes) -> Address:
        address = Address("coefficients", self._coefficient_bytes)
        padded = data + bytes(-len(data) % 64)
        self._coefficients.append(padded)
        self._coefficient_bytes += len(padded)
        return address


def record_room(record: LaneRecord) -> int:
    """Bytes of a lane that it takes."""
    return record.size if record.size <= LARGEST else record.size + -record.size % _WIDE


def record_step(record: LaneRecord) -> int:
    """Bytes of DDR from one lane to the next: so many that the whole spans what DDR is at its full speed for."""
    if record.size > LARGEST or record.lanes == 1:
        return record_room(record)
    return max(record.size, aligned(FULL_SPEED // (record.lanes - 1)))


def record_bytes(record: LaneRecord) -> bytes:
    """Constants as they lie in DDR."""
    return np.pad(record.array(), ((0, 0), (0, record_step(record) - record.size))).tobytes()


def load_record(build: Builder, record: LaneRecord, address: Address, at: int) -> None:
    """Constants to a byte of the lanes."""
    size, step = record_room(record), record_step(record)
    shape = (1, record.lanes, 1, size) if size <= LARGEST else (1, record.lanes, size // _WIDE, _WIDE)
    own = dense_strides(shape)
    build.move(address, Address("local", at), shape, (record.lanes * step, step, *own[2:]), own)
