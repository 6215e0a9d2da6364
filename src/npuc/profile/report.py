"""A compiled model in figures: where the time of each layer, of each group of layers and of the whole goes, and why.

Every cycle is charged to one layer (`npuc.profile.charge`), so that the cycles of layers add up to those of the model. Busy
cycles count what an engine or the DRAM channel did for a layer, at whatever time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.profile.charge import REASONS, charge
from npuc.profile.host import HostTime
from npuc.profile.occupancy import fill
from npuc.profile.plan import PlannedGroup, bounds_of, groups_of
from npuc.profile.work import crosses, heads, moved, multiplications, sparse_layers
from npuc.program.isa import BY_NAME, QUEUES
from npuc.program.model import SHARED, CompiledModel, NpuSubgraph
from npuc.sim.cycles import SubgraphTimeline, Timeline
from npuc.target import Target

_MATRIX, _VECTOR = QUEUES.index("matrix"), QUEUES.index("vector")
_BYTES = ("weights_in", "weights_decoded", "features_in", "features_out", "shared")


_OF_LAYERS = ("name", "subgraph", "busiest", "sparsity")
"""Figures that the whole does not have."""


@dataclass
class Machine:
    """What a report needs to know of the machine."""

    clock: int
    """Cycles a second."""
    cores: int
    """That the program uses."""
    peak: float
    """Operations a second of those cores, two for each multiply-add of 8 bits."""
    bandwidth: float
    """Bytes a second of DRAM."""
    local: int
    """Bytes of the local memory of a core."""


@dataclass
class Figures:
    """A layer, a group of layers, or all of them."""

    name: str
    subgraph: str = ""
    charged: dict[str, float] = field(default_factory=lambda: dict.fromkeys(REASONS, 0.0))
    """Cycles of the model that are charged to it, by why."""
    matrix: int = 0
    """Cycles in which an engine worked for it, of all cores."""
    vector: int = 0
    dma: int = 0
    """Cycles in which the DRAM channel moved its data, or what it had brought was decoded."""
    macs: int = 0
    """Multiply-adds of its instructions, those of skipped zeros included; what tiles compute twice counts twice."""
    ideal: float = 0.0
    """Cycles of one array that is in use as a whole for those that are not skipped."""
    sparsity: str = ""
    """The N:M pattern of the layer's weights; empty if they are dense."""
    weights_in: int = 0
    weights_decoded: int = 0
    """Bytes of constants in local memory: more than came, if they are compressed in DRAM."""
    features_in: int = 0
    features_out: int = 0
    shared: int = 0
    on_chip: int = 0
    """The most bytes of the local memory of a core that are taken while it runs."""

    @property
    def cycles(self) -> float:
        """Those that are charged to it."""
        return sum(self.charged.values())

    @property
    def dram(self) -> int:
        """Bytes on the DRAM channel."""
        return self.weights_in + self.features_in + self.features_out

    def limited_by(self, cores: int) -> str:
        """The busiest of its engines and the channel, or `waiting` if most of its cycles are that; empty if there are none."""
        if not self.cycles:
            return ""
        if 2 * self.charged["waiting"] > self.cycles:
            return "waiting"
        busy = self._busy(cores)
        return max(busy, key=lambda what: busy[what])

    def busiest(self, cores: int) -> float:
        """Cycles of the busiest of its engines and the channel: more than those that are charged to it, where transfers run
        while another layer computes."""
        return max(self._busy(cores).values())

    def _busy(self, cores: int) -> dict[str, float]:
        return {"matrix": self.matrix / cores, "vector": self.vector / cores, "DMA": float(self.dma)}

    def add(self, other: Figures) -> None:
        """Take in the figures of a part."""
        for why in REASONS:
            self.charged[why] += other.charged[why]
        for name in ("matrix", "vector", "dma", "macs", "ideal", *_BYTES):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.on_chip = max(self.on_chip, other.on_chip)

    def as_dict(self, machine: Machine, total: float) -> dict[str, Any]:
        """Plain values; `total` is the cycles that a share is one of."""
        cycles, seconds = self.cycles, self.cycles / machine.clock
        moving = self.dma / machine.clock
        return {
            "name": self.name,
            "subgraph": self.subgraph,
            "cycles": cycles,
            "microseconds": seconds * 1e6,
            "share": _part(cycles, total),
            "charged": dict(self.charged),
            "limited_by": self.limited_by(machine.cores),
            "busiest": self.busiest(machine.cores),
            "matrix_busy": self.matrix,
            "vector_busy": self.vector,
            "dma_busy": self.dma,
            "matrix_share": _part(self.matrix, cycles * machine.cores),
            "vector_share": _part(self.vector, cycles * machine.cores),
            "dma_share": _part(self.dma, cycles),
            "utilization": _part(self.ideal, cycles * machine.cores),
            "gop": 2 * self.macs / 1e9,
            "gops": _part(2 * self.macs / 1e9, seconds),
            **{name: getattr(self, name) for name in _BYTES},
            "bandwidth": _part(self.dram / 1e9, moving),
            "on_chip": self.on_chip,
            "sparsity": self.sparsity,
        }


@dataclass
class Group:
    """Layers that run tile by tile."""

    figures: Figures
    layers: range
    tiles: int


@dataclass
class Report:
    """A whole model."""

    name: str
    target: str
    machine: Machine
    total: Figures
    layers: list[Figures]
    groups: list[Group]
    """Empty if the file does not state them."""
    bounds: dict[str, int]
    """Lower bounds of the cycles, `roofline` and `buffered`; empty if the file does not state them."""
    host: list[HostTime]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        total = self.total.cycles
        whole = self.total.as_dict(self.machine, total)
        seconds = total / self.machine.clock
        host = sum(host_time.best for host_time in self.host)
        group_of = {layer: number for number, group in enumerate(self.groups) for layer in group.layers}
        return {
            "model": self.name,
            "target": self.target,
            "machine": vars(self.machine),
            "summary": {
                **{key: value for key, value in whole.items() if key not in _OF_LAYERS},
                "milliseconds": seconds * 1e3,
                "bandwidth": _part(self.total.dram / 1e9, seconds),
                "host_milliseconds": host * 1e3,
                "total_milliseconds": (seconds + host) * 1e3,
                "inferences_per_second": _part(1.0, seconds + host),
                "bounds": self.bounds,
                "of_bound": {name: _part(cycles, total) for name, cycles in self.bounds.items()},
            },
            "layers": [
                {**layer.as_dict(self.machine, total), "group": group_of.get(number)}
                for number, layer in enumerate(self.layers)
            ],
            "groups": [
                {
                    **group.figures.as_dict(self.machine, total),
                    "layers": [self.layers[number].name for number in group.layers],
                    "tiles": group.tiles,
                }
                for group in self.groups
            ],
            "host": [vars(host_time) for host_time in self.host],
        }


def _part(amount: float, whole: float) -> float:
    return amount / whole if whole else 0.0


def report_of(compiled: CompiledModel, timeline: Timeline, host: Sequence[HostTime] = ()) -> Report:
    """Sum up a timeline."""
    target = Target.from_dict(compiled.target, where=compiled.name)
    npu = [subgraph for subgraph in compiled.subgraphs if isinstance(subgraph, NpuSubgraph)]
    cores = max((len(subgraph.streams) for subgraph in npu), default=1) or 1
    machine = Machine(
        clock=int(target.compute.clock),
        cores=cores,
        peak=target.peak_operations() / target.compute.cores * cores,
        bandwidth=target.dram_bytes_per_cycle * int(target.compute.clock),
        local=int(target.memory.local.size),
    )
    patterns = sparse_layers(compiled)
    layers = [Figures(name, sparsity=patterns.get(at, "")) for at, name in enumerate(compiled.layers)]
    for subgraph, subgraph_timeline in zip(npu, timeline.subgraphs, strict=True):
        _add_subgraph(layers, subgraph, subgraph_timeline, target)
    total = Figures(compiled.name)
    for layer in layers:
        total.add(layer)
    groups = [_group(number, planned, layers) for number, planned in enumerate(groups_of(compiled))]
    bounds = bounds_of(compiled)
    return Report(
        compiled.name, str(compiled.target["name"]), machine, total, layers, groups, bounds, list(host)
    )


def _group(number: int, planned: PlannedGroup, layers: list[Figures]) -> Group:
    figures = Figures(f"group {number}", planned.subgraph)
    for layer in planned.layers:
        figures.add(layers[layer])
    return Group(figures, planned.layers, planned.tiles)


def _add_subgraph(
    layers: list[Figures], subgraph: NpuSubgraph, subgraph_timeline: SubgraphTimeline, target: Target
) -> None:
    count, cores = len(layers), len(subgraph.streams)
    for core, (stream, times) in enumerate(zip(subgraph.streams, subgraph_timeline.cores, strict=True)):
        known = heads(stream)
        charged = charge(known, times, subgraph_timeline.total, count) / cores
        macs, ideal = multiplications(stream, target, count)
        sizes = moved(stream, core, count)
        spent = np.where(known["opcode"] == BY_NAME["barrier"].opcode, 0, times.end - times.start)
        channel = (known["queue"] < _MATRIX) & (known["segment"] != SHARED) & crosses(known, core)
        busy = {
            name: np.bincount(known["layer"][at], spent[at], count)
            for name, at in (
                ("matrix", known["queue"] == _MATRIX),
                ("vector", known["queue"] == _VECTOR),
                ("dma", channel),
            )
        }
        taken = fill(subgraph.allocations, core, len(known))
        peak = np.zeros(count, np.int64)
        np.maximum.at(peak, known["layer"], taken)
        for number in np.unique(known["layer"]):
            layer = layers[number]
            layer.subgraph = subgraph.name
            part = Figures(layer.name, macs=int(macs[number]), ideal=float(ideal[number]))
            part.charged = dict(zip(REASONS, map(float, charged[number]), strict=True))
            part.on_chip = int(peak[number])
            for name, values in (*busy.items(), *sizes.items()):
                setattr(part, name, int(values[number]))
            layer.add(part)
