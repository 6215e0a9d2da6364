"""The front door: a network and a machine in, a schedule out.

A schedule is what a user states in full, what the cache has of an earlier search, or what a search finds, in this order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from npuc.arrays import Array
from npuc.errors import CompileError, ScheduleError
from npuc.schedule.artifact import Schedule, schedule_of
from npuc.schedule.cache import Cache, key_of
from npuc.schedule.candidates import Candidates
from npuc.schedule.decisions import ScheduleDecisions
from npuc.schedule.grouping import DoesNotFit
from npuc.schedule.layers import Tensor
from npuc.schedule.memory_reduction import CostFunction, repeated
from npuc.schedule.network import Network
from npuc.schedule.schedule_file import SubgraphEntry, resolve
from npuc.schedule.scheduled import Scheduled
from npuc.schedule.search import assembled, fastest
from npuc.target import Target
from npuc.words import counted

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Position:
    """Where a subgraph is in the program: what other subgraphs have taken before it."""

    tensors: Mapping[Tensor, tuple[int, int]]
    """Inputs and outputs to a segment of DRAM and a byte of it."""
    workspace: int = 0
    """Bytes of the workspace that are taken."""
    weights: int = 0
    """Bytes of the weights that are there already."""
    layer: int = 0
    """Layers before its first."""


@dataclass(frozen=True)
class ScheduleOptions:
    """What a schedule is to be like."""

    position: Position
    name: str = "npu0"
    """Of the subgraph, in messages and listings."""
    level: int = 2
    """0 runs layer by layer, 1 forms groups, 2 and 3 try several ways and keep the fastest."""
    cores: int | None = None
    """Cores to use at most; None: all that the target has."""
    pins: SubgraphEntry = field(default_factory=SubgraphEntry)
    """Decisions that are not searched for."""
    cache: Cache | None = None
    """Where results of searches are kept."""
    local_memory: int | None = None
    """Bytes of local memory of a core to use at most; None: all that the target has."""
    cost_function: CostFunction | None = None
    """How long instruction streams take; None: as long as the cycle simulator says."""


def schedule(network: Network, target: Target, options: ScheduleOptions) -> Schedule:
    """How a network runs on a machine: groups, tiles, addresses, cores, and the instructions of all that."""
    scheduled, cached = _scheduled(network, target, options, options.cost_function or _simulated(target))
    return schedule_of(options.name, network, target, scheduled, cached)


def _simulated(target: Target) -> CostFunction:
    from npuc.sim.cycles import SubgraphTimeline, simulate_streams

    def cost(streams: Sequence[Array]) -> SubgraphTimeline:
        return simulate_streams(target, streams)

    return cost


def _scheduled(
    network: Network, target: Target, options: ScheduleOptions, cost: CostFunction
) -> tuple[Scheduled, bool]:
    """The schedule that is asked for, that of the cache, or what a search finds; and whether the cache had it."""
    entry, at, title = options.pins, options.position, options.name
    cores = min(options.cores or target.compute.cores, target.compute.cores)
    stated_schedule = resolve(entry, network, target, cores, local_memory=options.local_memory)
    base = network, target, at.tensors, at.workspace, at.weights, options.level, at.layer

    def stated(schedule_decisions: ScheduleDecisions) -> Scheduled:
        done = partial(assembled, *base)(schedule_decisions=schedule_decisions)
        return (
            done
            if schedule_decisions.prefetch is None
            else repeated(done, schedule_decisions.prefetch, target, cost)
        )

    if stated_schedule.schedule_decisions is not None:
        return stated(stated_schedule.schedule_decisions), False
    pinned = stated_schedule.fixed.keys() - {"local_memory"}
    if pinned and options.level == 0:
        raise ScheduleError("-O0 runs layer by layer, so there is nothing to pin", fix="Use -O1 or higher")
    key, candidates = "", Candidates()
    if options.cache is not None:
        pins = entry.model_dump(mode="json")
        searched = {
            "level": options.level,
            "cores": cores,
            "pins": pins,
            "local_memory": options.local_memory,
        }
        key = key_of(network, target, searched)
        known = options.cache.read(key, network, target)
        if known is not None:
            try:
                done = stated(known)
                _LOG.info("schedule of %s: %d layers, from the cache", title, len(network.layers))
                return done, True
            except (CompileError, DoesNotFit):
                pass  # an entry that fits its form only: search
        if options.cache.only:
            raise ScheduleError(
                f"the cache has no schedule of its {counted(len(network.layers), 'layer')} at -O{options.level}",
                where=f"subgraph '{title}'",
                fix="Compile it once with a search",
            )
        candidates = options.cache.candidates(target)
    start = time.perf_counter()
    try:
        done = fastest(*base, cores, cost, stated_schedule.fixed, candidates, options.local_memory)
    except DoesNotFit as error:
        if not pinned:
            raise
        raise ScheduleError(f"with what the schedule fixes, {error}", where=f"subgraph '{title}'") from error
    groups = done.schedule_decisions.decisions.groups
    _LOG.info(
        "schedule of %s: %d layers in %d groups at -O%d, searched for %.2f s",
        title, len(network.layers), len(groups), options.level, time.perf_counter() - start,
    )  # fmt: skip
    for group in groups:
        names = [layer.name for layer in network.layers[group.first : group.last]]
        _LOG.debug("group of %d tiles: %s", group.tile_count, ", ".join(names))
    if options.cache is not None:
        options.cache.write(key, done.schedule_decisions)
        options.cache.add_candidates(target, candidates)
    return done, False
