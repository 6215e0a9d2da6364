"""The instructions of a program one by one: the line of `npuc objdump`, when each ran, what it waited for, where operands lie.

The counts in `wait` are semaphores: 'load>=4' is the fourth instruction in the queue of loads. Here they are numbers of
instructions, so that one can be followed to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.profile.work import heads
from npuc.program.disassemble import Stream, instruction_texts, values
from npuc.program.isa import BY_NAME, NONE, QUEUES
from npuc.program.model import SHARED, CompiledModel, NpuSubgraph
from npuc.program.transfers import reach
from npuc.sim.cycles import CoreTimeline, Timeline
from npuc.target import Target

WINDOW = 64
"""Instructions of one answer."""
_MOST_FOLLOWERS = 8


def instructions(
    compiled: CompiledModel, timeline: Timeline, part: int, core: int, first: int
) -> dict[str, Any]:
    """A window of a core's stream; `part` counts the subgraphs of the NPU, cycles those of the whole model."""
    subgraphs = [subgraph for subgraph in compiled.subgraphs if isinstance(subgraph, NpuSubgraph)]
    if not 0 <= part < len(subgraphs) or not 0 <= core < len(subgraphs[part].streams):
        raise UsageError(f"the program has no core {core} in a part {part} of the NPU")
    begins = sum(subgraph.total for subgraph in timeline.subgraphs[:part])
    times = timeline.subgraphs[part].cores[core]
    window = _Window(compiled, subgraphs[part], core, times, begins)
    if not 0 <= first < max(1, window.count):
        raise UsageError(f"the stream has {window.count} instructions, and no number {first}")
    return {
        "part": part,
        "name": subgraphs[part].name,
        "core": core,
        "first": first,
        "count": window.count,
        "rows": window.rows(first, min(first + WINDOW, window.count)),
    }


@dataclass(frozen=True)
class _Window:
    """One stream with its times."""

    compiled: CompiledModel
    subgraph: NpuSubgraph
    core: int
    times: CoreTimeline
    begins: int

    @property
    def count(self) -> int:
        return len(self.stream)

    @cached_property
    def stream(self) -> Array:
        return self.subgraph.streams[self.core]

    @cached_property
    def queue(self) -> Array:
        """The queue of each instruction."""
        return heads(self.stream)["queue"]

    @cached_property
    def places(self) -> list[Array]:
        """The numbers of the instructions of each queue, in order."""
        return [np.flatnonzero(self.queue == number) for number in range(len(QUEUES))]

    @cached_property
    def waits(self) -> Array:
        """For each instruction and queue, the instruction that it waits for; -1 for none."""
        counts = heads(self.stream)["wait"].astype(np.int64)
        waits = np.full(counts.shape, -1, np.int64)
        for number, places in enumerate(self.places):
            known = (counts[:, number] > 0) & (counts[:, number] <= len(places))
            waits[known, number] = places[counts[known, number] - 1]
        return waits

    @cached_property
    def bank(self) -> int:
        """Bytes of a bank of local memory."""
        memory = Target.from_dict(self.compiled.target, where=self.compiled.name).memory.local
        return max(1, int(memory.size) // max(1, int(memory.banks)))

    def rows(self, first: int, end: int) -> list[dict[str, Any]]:
        """Instructions as plain data."""
        places = np.arange(first, end)
        part = Stream(0, self.subgraph.name, self.core, self.stream[first:end], places)
        texts, records = instruction_texts(self.compiled, part), values(self.compiled, part)
        return [
            self._row(int(index), record, text)
            for index, record, text in zip(places, records, texts, strict=True)
        ]

    def _row(self, index: int, record: dict[str, Any], text: str) -> dict[str, Any]:
        waits = {QUEUES[q]: int(w) for q, w in enumerate(self.waits[index]) if w >= 0}
        own = self.places[int(self.queue[index])]
        at = int(np.searchsorted(own, index))
        before = int(own[at - 1]) if at else -1
        # Whatever finished last is what it could not start without.
        causes = [*waits.values(), *([before] if before >= 0 else [])]
        last = max(causes, key=lambda number: (int(self.times.end[number]), number), default=-1)
        followers = np.flatnonzero((self.waits == index).any(axis=1))
        return {
            "index": index,
            "op": record["op"],
            "queue": record["queue"],
            "layer": record["layer"],
            "text": text,
            "issue": self.begins + int(self.times.issue[index]),
            "start": self.begins + int(self.times.start[index]),
            "end": self.begins + int(self.times.end[index]),
            "waits": waits,
            "before": before,
            "last": last,
            "followers": [int(number) for number in followers[:_MOST_FOLLOWERS]],
            "operands": self._operands(index, record),
        }

    def _operands(self, index: int, record: dict[str, Any]) -> list[dict[str, Any]]:
        """Where it reads and writes: each address, and the object or tensor that lies there."""
        fields = {field.name: field for field in BY_NAME[record["op"]].fields}
        operands = []
        for name, value in record["fields"].items():
            field = fields[name]
            if field.address and value != NONE and not field.far:
                operands.append(
                    {
                        "field": name,
                        "memory": "local",
                        "address": int(value),
                        **self._object(index, int(value)),
                    }
                )
        if record["op"] in ("load", "store"):
            kind = BY_NAME[record["op"]]
            transfer = self.stream[index : index + 1].view(kind.dtype)[:, 0]
            start, end = (int(edge[0]) for edge in reach(transfer))
            operands.append(self._far(int(transfer["segment"][0]), start, end, record["layer"]))
        return operands

    def _object(self, index: int, address: int) -> dict[str, Any]:
        """The object of local memory at an address while an instruction runs."""
        place: dict[str, Any] = {"bank": address // self.bank}
        for allocation in self.subgraph.allocations:
            inside = allocation.address <= address < allocation.address + allocation.size
            if allocation.core == self.core and inside and allocation.first <= index <= allocation.last:
                place |= {"object": allocation.name, "from": allocation.address, "size": allocation.size}
                place["last_bank"] = (allocation.address + allocation.size - 1) // self.bank
                break
        return place

    def _far(self, segment: int, start: int, end: int, layer: str) -> dict[str, Any]:
        """Bytes of DRAM or of the shared memory."""
        place: dict[str, Any] = {"field": "far", "address": start, "size": end - start}
        if segment == SHARED:
            return place | {"memory": "shared", "object": layer}
        known = self.compiled.segments[segment]
        place |= {"memory": known.name, "bus": known.address + start if known.address else None}
        for tensor in self.compiled.tensors:
            if tensor.segment == segment and tensor.offset <= start and end <= tensor.offset + tensor.size:
                return place | {"object": tensor.name, "from": tensor.offset}
        return place | {"object": f"{layer} ({'constants' if segment == 0 else 'spilled'})"}
