"""What a compiled model's file says about its schedule: groups of layers, the lower bounds of its cycles, and estimates of
what the CPU takes.

All are notes for tools: a file without them, or with ones that make no sense, is profiled by layers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuc.program.model import CompiledModel, CpuSubgraph, NpuSubgraph

BOUNDS = ("roofline", "buffered")


@dataclass(frozen=True)
class PlannedGroup:
    """Layers of the layer table that run tile by tile."""

    subgraph: str
    layers: range
    tiles: int


def groups_of(compiled: CompiledModel) -> list[PlannedGroup]:
    """The groups of all subgraphs."""
    groups: list[PlannedGroup] = []
    for name in (subgraph.name for subgraph in compiled.subgraphs if isinstance(subgraph, NpuSubgraph)):
        entries = entry_of(compiled, name).get("groups")
        for entry in entries if isinstance(entries, list) else []:
            if not isinstance(entry, list) or len(entry) != 3 or not all(type(n) is int for n in entry):
                return []
            begin, end, tiles = entry
            at = groups[-1].layers.stop if groups else 0
            if not at <= begin < end <= len(compiled.layers):
                return []
            groups.append(PlannedGroup(name, range(begin, end), tiles))
    return groups


def bounds_of(compiled: CompiledModel) -> dict[str, int]:
    """The lower bounds of all subgraphs, one after the other."""
    schedule = compiled.metadata.get("schedule")
    names = list(schedule) if isinstance(schedule, dict) else []
    stated = [entry_of(compiled, name).get("bounds") for name in names]
    bounds: dict[str, int] = {}
    for key in BOUNDS:
        values = [entry.get(key) if isinstance(entry, dict) else None for entry in stated]
        if values and all(type(value) is int and value >= 0 for value in values):
            bounds[key] = sum(value for value in values if value is not None)
    return bounds


def host_estimates(compiled: CompiledModel) -> dict[str, float]:
    """What the subgraphs of the CPU are estimated to take, in seconds, as far as the file says."""
    stated = compiled.metadata.get("host_nanoseconds")
    names = [subgraph.name for subgraph in compiled.subgraphs if isinstance(subgraph, CpuSubgraph)]
    nanoseconds = {name: stated.get(name) for name in names} if isinstance(stated, dict) else {}
    return {
        name: value / 1e9
        for name, value in nanoseconds.items()
        if type(value) is int and 0 <= value < 1 << 60
    }


def entry_of(compiled: CompiledModel, name: str) -> dict[str, Any]:
    """The notes on a subgraph; empty if there are none."""
    schedule = compiled.metadata.get("schedule")
    entry = schedule.get(name) if isinstance(schedule, dict) else None
    return entry if isinstance(entry, dict) else {}
