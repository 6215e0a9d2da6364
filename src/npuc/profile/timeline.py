"""How a compiled model spends its cycles: by queue and by layer, and as a trace that Chrome and Perfetto show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.profile.plan import host_estimates
from npuc.profile.trace_events import microseconds
from npuc.profile.work import heads, on_channel
from npuc.program.isa import BY_NAME, BY_OPCODE, QUEUES
from npuc.program.model import SHARED, CompiledModel, CpuSubgraph, NpuSubgraph
from npuc.sim.cycles import Timeline
from npuc.target import Target

_LOAD, _STORE, _MATRIX, _VECTOR = range(len(QUEUES))
_MULTICAST = 1


@dataclass
class LayerTime:
    """One layer."""

    name: str
    matrix: int = 0
    """Cycles in which an engine worked for it, of all cores."""
    vector: int = 0
    loaded: int = 0
    """Bytes from DRAM."""
    stored: int = 0
    start: int = 0
    """Cycles of its model at which its first instruction of an engine began and its last one ended."""
    end: int = 0


@dataclass
class Profile:
    """A whole model."""

    cycles: int
    milliseconds: float
    cores: int
    """That the program uses."""
    busy: dict[str, float] = field(default_factory=dict)
    """Queue to the part of the time in which it works, over those cores."""
    loaded: int = 0
    stored: int = 0
    shared: int = 0
    """Bytes between cores and the shared memory."""
    layers: list[LayerTime] = field(default_factory=list)
    host_parts: int = 0
    """Subgraphs of the CPU."""
    host_milliseconds: float | None = None
    """What those are estimated to take on a small application processor (`npuc.partition.work`); None if there are none, or
    nobody knows."""

    @property
    def total_milliseconds(self) -> float:
        """Of the NPU, and of the CPU as far as that is known: an estimate where there are parts on the CPU."""
        return self.milliseconds + (self.host_milliseconds or 0.0)

    def time_words(self) -> str:
        """How long a model takes, in words: on the NPU, and with what is on the CPU."""
        cores = f" on {self.cores} cores" if self.cores > 1 else ""
        npu = f"{self.cycles:,} cycles, {self.milliseconds:.4g} ms{cores}"
        if not self.host_parts:
            return npu
        if self.host_milliseconds is None:
            return f"NPU {npu}; the time of the CPU is not known"
        cpu = f"CPU about {self.host_milliseconds:.4g} ms"
        if not self.cycles:
            return f"{cpu} (an estimate)"
        return f"NPU {npu}; {cpu}; together about {self.total_milliseconds:.4g} ms (an estimate)"

    @property
    def dram(self) -> int:
        """Bytes on the DRAM channel."""
        return self.loaded + self.stored


def profile_of(compiled: CompiledModel, timeline: Timeline) -> Profile:
    """Sum up a timeline."""
    clock = _clock(compiled)
    npu = [subgraph for subgraph in compiled.subgraphs if isinstance(subgraph, NpuSubgraph)]
    cores = max((len(subgraph.streams) for subgraph in npu), default=0)
    profile = Profile(timeline.total, timeline.total / clock * 1e3, cores)
    layers = [LayerTime(name) for name in compiled.layers]
    busy = np.zeros(len(QUEUES), np.int64)
    begins = 0
    for subgraph, subgraph_timeline in zip(npu, timeline.subgraphs, strict=True):
        for core, (stream, times) in enumerate(zip(subgraph.streams, subgraph_timeline.cores, strict=True)):
            records = heads(stream)
            spent = times.end - times.start
            works = records["opcode"] != BY_NAME["barrier"].opcode
            busy += np.bincount(records["queue"][works], spent[works], len(QUEUES)).astype(np.int64)
            _add_bytes(profile, layers, records, core)
            for queue, key in ((_MATRIX, "matrix"), (_VECTOR, "vector")):
                at = works & (records["queue"] == queue)
                sums = np.bincount(records["layer"][at], spent[at], len(layers))
                for number in np.flatnonzero(sums):
                    setattr(layers[number], key, getattr(layers[number], key) + int(sums[number]))
            _add_spans(layers, records, times, begins, works)
        begins += subgraph_timeline.total
    total = max(1, timeline.total * max(1, cores))
    profile.busy = {queue: float(busy[number] / total) for number, queue in enumerate(QUEUES)}
    profile.layers = layers
    profile.host_parts = sum(isinstance(part, CpuSubgraph) for part in compiled.subgraphs)
    estimates = host_estimates(compiled)
    if profile.host_parts and len(estimates) == profile.host_parts:
        profile.host_milliseconds = sum(estimates.values()) * 1e3
    return profile


def _clock(compiled: CompiledModel) -> int:
    return int(Target.from_dict(compiled.target, where=compiled.name).compute.clock)


def _add_bytes(profile: Profile, layers: list[LayerTime], records: Array, core: int) -> None:
    for name, key in (("load", "loaded"), ("store", "stored")):
        transfers = records[records["opcode"] == BY_NAME[name].opcode]
        sizes = on_channel(transfers)
        shared = transfers["segment"] == SHARED
        profile.shared += int(sizes[shared].sum())
        # What all cores load at once crosses the channel once.
        counted = ~shared & ((transfers["flags"] & _MULTICAST == 0) | (core == 0))
        setattr(profile, key, getattr(profile, key) + int(sizes[counted].sum()))
        sums = np.bincount(transfers["layer"][counted], sizes[counted], len(layers))
        for number in np.flatnonzero(sums):
            setattr(layers[number], key, getattr(layers[number], key) + int(sums[number]))


def _add_spans(layers: list[LayerTime], records: Array, times: Any, begins: int, works: Array) -> None:
    engines = np.flatnonzero(works & (records["queue"] >= _MATRIX))
    count = len(layers)
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.zeros(count, np.int64)
    np.minimum.at(first, records["layer"][engines], times.start[engines])
    np.maximum.at(last, records["layer"][engines], times.end[engines])
    for number in np.flatnonzero(last):
        layer = layers[number]
        start, end = int(first[number]) + begins, int(last[number]) + begins
        layer.start = start if layer.end == 0 else min(layer.start, start)
        layer.end = max(layer.end, end)


def chrome_trace(compiled: CompiledModel, timeline: Timeline) -> dict[str, Any]:
    """The timeline in the Trace Event Format: a process a core, a thread a queue; times are microseconds."""
    clock = _clock(compiled)
    return {
        "traceEvents": list(_events(compiled, timeline, clock)),
        "displayTimeUnit": "ns",
        "otherData": {"model": compiled.name, "target": compiled.target["name"], "cycles": timeline.total},
    }


def _events(compiled: CompiledModel, timeline: Timeline, clock: int) -> Iterator[dict[str, Any]]:
    """Processes and threads are counted from 1, threads through all processes: 0 is a machine's idle process to viewers."""
    npu = [subgraph for subgraph in compiled.subgraphs if isinstance(subgraph, NpuSubgraph)]
    cores = max((len(subgraph.streams) for subgraph in npu), default=0)
    for core in range(cores):
        yield {"ph": "M", "name": "process_name", "pid": core + 1, "args": {"name": f"core {core}"}}
        for number, queue in enumerate(QUEUES):
            thread = _thread(core, number)
            yield {"ph": "M", "name": "thread_name", "pid": core + 1, "tid": thread, "args": {"name": queue}}
    begins = 0
    for subgraph, subgraph_timeline in zip(npu, timeline.subgraphs, strict=True):
        for core, (stream, times) in enumerate(zip(subgraph.streams, subgraph_timeline.cores, strict=True)):
            records = heads(stream)
            for at, record in enumerate(records):
                start, end = int(times.start[at]), int(times.end[at])
                # Both ends are rounded: rounded lengths would let an instruction reach into the next.
                first, last = ((begins + cycle) * 10**9 // clock for cycle in (start, end))
                opcode = BY_OPCODE[int(record["opcode"])].name
                yield {
                    "ph": "X",
                    "name": compiled.layers[int(record["layer"])] if compiled.layers else opcode,
                    "cat": opcode,
                    "pid": core + 1,
                    "tid": _thread(core, int(record["queue"])),
                    "ts": microseconds(first),
                    "dur": microseconds(last - first),
                    "args": {
                        "instruction": at,
                        "opcode": opcode,
                        "cycles": end - start,
                        "subgraph": subgraph.name,
                    },
                }
        begins += subgraph_timeline.total


def _thread(core: int, queue: int) -> int:
    return core * len(QUEUES) + queue + 1
