"""One NPU subgraph: decide, place, assemble, in several ways, and keep the fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import CompileError
from npuc.program.model import SHARED
from npuc.schedule.assemble import Dram
from npuc.schedule.barriers import let_constants_run_ahead
from npuc.schedule.bounds import bounds
from npuc.schedule.build_work import build
from npuc.schedule.candidates import Candidates
from npuc.schedule.cost import Costs
from npuc.schedule.decisions import Decisions, ScheduleDecisions
from npuc.schedule.grouping import DoesNotFit, Grouping, layer_by_layer
from npuc.schedule.layers import BLOCK, Tensor, aligned
from npuc.schedule.memory import Buffer as Rectangle
from npuc.schedule.memory import plan
from npuc.schedule.memory_reduction import CostFunction, reduce_memory
from npuc.schedule.multicore import CoreGrouping, between_groups, homes
from npuc.schedule.network import Network
from npuc.schedule.numbered import TileMemo
from npuc.schedule.pins import NOTHING, Pins
from npuc.schedule.prefetch import DoesNotPack, place, place_tightly
from npuc.schedule.scheduled import Scheduled, UnplacedSchedule
from npuc.schedule.search_space import SearchPoint, search_space
from npuc.schedule.spread import Spread
from npuc.schedule.steps import Buffer, ConstantSlice, Load, Work
from npuc.schedule.tiler import Choices, Tiler
from npuc.target import Target

if TYPE_CHECKING:
    from npuc.sim.cycles import SubgraphTimeline

_MARGINS = (0.98, 0.9, 0.8, 0.66, 0.5)
"""Parts of local memory that a group may plan with: the rest is lost to gaps."""

_REPAIRS, _LOST = 6, 0.04
"""How often a search is repeated in which one group did not pack: with so much less of local memory for that group."""

_FAR_BEHIND = 1.1
"""A way that takes so many times the cycles of another cannot be chosen for the memory that it saves either."""

_BEHIND = 1.02
"""Other ways like one that takes so many times the cycles of another are not tried."""

_CANDIDATES, _CLOSE = 2, 1.03
"""Placing loads anew gains up to a tenth on several cores: so many ways are taken that far, if they are so close."""


@dataclass
class Weights:
    """Segment 0, as it grows."""

    parts: list[Array] = field(default_factory=list)
    size: int = 0

    def add(self, data: Array) -> int:
        """Append bytes; where they begin."""
        at = self.size
        padded = aligned(data.size)
        self.parts.append(np.pad(data, (0, padded - data.size)))
        self.size += padded
        return at

    def bytes(self) -> Array:
        """All of it."""
        return np.concatenate(self.parts) if self.parts else np.zeros(0, np.uint8)


def assembled(
    network: Network,
    target: Target,
    places: Mapping[Tensor, tuple[int, int]],
    workspace_base: int,
    weights_base: int = 0,
    level: int = 2,
    first_layer: int = 0,
    choices: Choices | None = None,
    transfer_weight: float = 1.0,
    spill_distance: int = 0,
    pins: Pins = NOTHING,
    schedule_decisions: ScheduleDecisions | None = None,
    cores: int = 1,
    memory: int | None = None,
    candidates: Candidates | None = None,
    local_memory: int | None = None,
    memo: TileMemo | None = None,
) -> Scheduled:
    """Decide, place and assemble; `places` says where inputs and outputs are in DRAM.

    With `schedule_decisions`, nothing is decided: it is what an earlier search found, or what a user states in full. `memory` is
    what groups are planned with, if that is not to be tried out; `candidates` and `memo` are known from earlier searches;
    `local_memory` are the bytes of local memory that may be used, if not all.
    """
    choices = choices or Choices()
    whole = int(target.memory.local.size)
    if schedule_decisions is not None:
        local_memory = schedule_decisions.local_memory
    local = min(local_memory or whole, whole)
    memo = memo or TileMemo()
    failure: Exception | None = None
    rooms = [int(local * margin) for margin in _MARGINS] if memory is None else [memory]
    if schedule_decisions is not None:
        rooms, cores = [schedule_decisions.memory], schedule_decisions.cores
    ways = list(product((place, place_tightly), rooms))
    if schedule_decisions is None and memory is None:
        ways += product((place, place_tightly), [local])
    # Where no part of memory packs with loads that run ahead, they come when they are needed. All of it is the last resort
    # of a layer that needs nearly all.
    too_small = 0
    for placed, room in ways:
        if room <= too_small:
            continue
        fitted = replace(choices, chunk=min(choices.chunk, room // 8))
        if schedule_decisions is not None:
            fitted, spill_distance = schedule_decisions.choices, schedule_decisions.decisions.spill_distance
        grouping = Grouping(
            network,
            Tiler(Costs(target), fitted),
            room,
            transfer_weight,
            pins,
            candidates or Candidates(),
            spill_distance=spill_distance,
            memo=memo,
            several_cores=cores > 1,
        )
        addresses: list[dict[Buffer, int]] = []
        for _ in range(1 + (_REPAIRS if schedule_decisions is None and level else 0)):
            try:
                if schedule_decisions is not None:
                    decisions = schedule_decisions.decisions
                elif cores > 1:
                    decisions = CoreGrouping(grouping, cores, _between(target)).search()
                else:
                    decisions = layer_by_layer(grouping) if level == 0 else grouping.search()
            except DoesNotFit as error:
                if not grouping.lost:
                    too_small = max(too_small, room)
                    failure = error
                break
            spread = Spread(grouping, decisions, cores)
            works = tuple(build(grouping, decisions, core, cores, spread) for core in range(cores))
            if cores > 1 and fitted.ahead > 1:
                let_constants_run_ahead(works, grouping.tiler.costs, network.inputs, fitted)
            try:
                addresses = [placed(work, local) for work in works]
                break
            except DoesNotPack as error:
                failure = failure or error
                group = decisions.groups[decisions.group_of[error.layer]]
                grouping.lose(group.first, group.last, int(_LOST * local))
        if not addresses:
            continue
        constants, stored = _streamed(works, weights_base, network, target)
        shared = target.memory.shared
        spilled = _spilled(works, decisions, grouping)
        # One core has no tensors to exchange, but what finds no room in local memory is nearer there than in DRAM.
        spans = spilled
        if cores > 1:
            exchanged = between_groups(decisions, grouping)
            spans = {tensor: span for tensor, span in exchanged.items() if tensor in spilled}
        at_home = homes(spans, int(shared.size)) if shared is not None else {}
        tensors = {**places, **{tensor: (SHARED, address) for tensor, address in at_home.items()}}
        inside = {tensor: span for tensor, span in spilled.items() if tensor not in at_home}
        rectangles = [
            Rectangle(str(i), aligned(tensor.size), first, last + 1, BLOCK)
            for i, (tensor, (first, last)) in enumerate(inside.items())
        ]
        workspace_plan = plan(rectangles) if rectangles else None
        for i, tensor in enumerate(inside):
            assert workspace_plan is not None
            tensors[tensor] = 1, workspace_base + workspace_plan.addresses[str(i)]
        workspace = workspace_base + (workspace_plan.size if workspace_plan is not None else 0)
        names = [layer.name for layer in network.layers]
        new_decisions = ScheduleDecisions(decisions, fitted, room, cores, 0 if local == whole else local)
        dram = Dram(tensors, constants, workspace, stored)
        return UnplacedSchedule(new_decisions, works, names, first_layer, whole, dram).write(addresses)
    if isinstance(failure, DoesNotFit):
        raise failure
    raise CompileError(
        "the tensors that are needed at the same time do not pack into local memory",
        fix="Choose a target with more local memory" if local == whole else "Allow more of the local memory",
    )


def fastest(
    network: Network,
    target: Target,
    places: Mapping[Tensor, tuple[int, int]],
    workspace_base: int,
    weights_base: int,
    level: int,
    first_layer: int,
    cores: int | None,
    cost_function: CostFunction,
    fixed: Mapping[str, Any] | None = None,
    candidates: Candidates | None = None,
    local_memory: int | None = None,
) -> Scheduled:
    """The fastest of the ways that a level of optimization tries; a higher level tries all that a lower one does.

    `fixed` are arguments of `assembled` that no way may change; `candidates` are known from earlier searches, and get more;
    `local_memory` are the bytes of local memory that may be used, if not all.
    """
    candidates = candidates or Candidates()
    count = min(cores or target.compute.cores, target.compute.cores)
    fixed = {"local_memory": local_memory, **(fixed or {})}
    local = fixed["local_memory"] or int(target.memory.local.size)
    trials: list[_Trial] = []
    memos = {False: TileMemo(), True: TileMemo()}
    alone = bytes_layer_by_layer = 0
    failure: Exception | None = None
    for lowest, point in search_space(level, count, network, local, fixed):
        if trials and not _is_promising(point, trials):
            continue
        if point["level"] == 0 < level and trials and target.memory.shared is None:
            bytes_layer_by_layer = bytes_layer_by_layer or _least_bytes(network, target)
            cycles = bytes_layer_by_layer / float(Costs(target).bytes_per_cycle)
            if cycles > _FAR_BEHIND * min(trial.timeline.total for trial in trials):
                continue  # its transfers alone take longer
        if point.get("cores", 1) < count and trials:
            alone = alone or bounds(network, target, 1).roofline
            if alone > _FAR_BEHIND * min(trial.timeline.total for trial in trials):
                continue  # one core cannot be faster than several were
        try:
            done = assembled(
                network,
                target,
                places,
                workspace_base,
                weights_base,
                first_layer=first_layer,
                candidates=candidates,
                memo=memos[point.get("cores", 1) > 1],
                **point,
            )
        except (DoesNotFit, CompileError) as error:
            failure = failure or error
            continue
        if level == 0:
            return done
        trials.append(_Trial(lowest, point, done, cost_function(done.streams)))
    if not trials:
        assert failure is not None
        raise failure
    return _least_memory(trials, level, target, cost_function)


@dataclass(frozen=True)
class _Trial:
    """A way that was tried."""

    lowest: int
    """The lowest level that tries it."""
    point: SearchPoint
    done: Scheduled
    timeline: SubgraphTimeline

    @property
    def is_tiled(self) -> bool:
        """Whether some layers do not run whole."""
        return any(group.tiles > 1 for group in self.done.schedule_decisions.decisions.groups)

    @property
    def spills(self) -> bool:
        """Whether tensors go to DRAM on the way."""
        return any(work.spilled for work in self.done.works)


def _least_bytes(network: Network, target: Target) -> int:
    """Bytes that cross the DRAM channel at least if every layer loads its operands and stores its results."""
    tiler, size = Tiler(Costs(target)), 0
    for layer in network.layers:
        if not layer.op.in_dram:
            needs = zip(layer.inputs, tiler.needs(layer, tiler.whole(layer)), strict=True)
            size += sum(
                {
                    tensor.storage: (high - low) * tensor.storage.row_size for tensor, (low, high) in needs
                }.values()
            )
            size += sum(tensor.size for tensor in layer.outputs)
    return size


def _is_promising(point: SearchPoint, trials: Sequence[_Trial]) -> bool:
    """Whether a point is worth a try after those that were tried."""
    family = _family(point)
    if point["level"] == 0 or family[0] > 1:
        return True
    relatives = [trial for trial in trials if _family(trial.point) == family and trial.point["level"]]
    if not relatives:
        # Where layers run whole there are no seams.
        return family[1] < 2 or trials[-1].is_tiled
    if relatives[0].timeline.total > _BEHIND * min(trial.timeline.total for trial in trials):
        return False
    # Where nothing leaves local memory, nothing gains from leaving it early.
    return not point.get("spill_distance") or any(trial.spills for trial in relatives)


def _family(point: SearchPoint) -> tuple[int, int]:
    """What ways have in common that are about as good: cores, and whether seams are kept."""
    return point.get("cores", 1), (point.get("choices") or Choices()).seams


def _least_memory(
    trials: Sequence[_Trial], level: int, target: Target, cost_function: CostFunction
) -> Scheduled:
    """The fastest way in the least memory; that of each lower level is among those to choose from."""
    by_layers = min((trial.timeline.total for trial in trials if trial.point["level"] == 0), default=inf)
    chosen: dict[int, tuple[int, Scheduled]] = {}
    for upto in range(1, level + 1):
        tried = [
            (trial.timeline.total, number) for number, trial in enumerate(trials) if trial.lowest <= upto
        ]
        for total, number in sorted(tried)[:_CANDIDATES]:
            trial = trials[number]
            close = total <= _CLOSE * min(tried)[0] and trial.done.schedule_decisions.cores > 1
            if number not in chosen and (close or total == min(tried)[0]):
                chosen[number] = reduce_memory(trial.done, target, cost_function, trial.timeline, by_layers)
    return min(chosen.values(), key=lambda result: result[0])[1]


def _between(target: Target) -> float:
    """Bytes a cycle of the memory through which cores exchange tensors."""
    memory, clock = target.memory, target.compute.clock
    bandwidth = memory.shared.bandwidth if memory.shared is not None else memory.dram.bandwidth
    return float(bandwidth.bytes_per_cycle(clock))


def _streamed(
    works: Sequence[Work], base: int, network: Network, target: Target
) -> tuple[dict[tuple[int, tuple[int, int]], int], dict[tuple[int, tuple[int, int]], int]]:
    """Blocks of constants in the order in which they are first loaded: where each begins, and how long compressed ones are."""
    offsets: dict[tuple[int, tuple[int, int]], int] = {}
    stored: dict[tuple[int, tuple[int, int]], int] = {}
    costs = Costs(target)
    for work in works:
        for load in work.loads:
            if isinstance(load, Load) and isinstance(load.source, ConstantSlice):
                key = (load.source.layer, load.source.channels)
                if key not in offsets:
                    offsets[key] = base
                    layer, channels = network.layers[key[0]], key[1]
                    if costs.decoder is not None and (
                        size := network.stored.compressed(layer, channels, costs.decoder_contexts)
                    ):
                        stored[key] = size
                    base += aligned(stored.get(key, load.size))
    return offsets, stored


def _spilled(
    works: Sequence[Work], decisions: Decisions, grouping: Grouping
) -> dict[Tensor, tuple[int, int]]:
    """Tensors that are in DRAM on the way, and when: by steps on one core, by groups on several."""
    if len(works) == 1:
        return works[0].spilled
    group_of = decisions.group_of
    users = {**grouping.producers, **{tensor: at for work in works for tensor, at in work.workspaces.items()}}
    spans = {}
    for tensor in dict.fromkeys(tensor for work in works for tensor in work.spilled):
        first = group_of[users[tensor]]
        spans[tensor] = first, max((group_of[use] for use in grouping.uses.get(tensor, ())), default=first)
    return spans


def weight_blocks(
    network: Network, order: Sequence[tuple[int, tuple[int, int]]], target: Target
) -> Iterator[Array]:
    """The bytes of constants as they are in DRAM, in the order in which they are streamed."""
    costs = Costs(target)
    for number, channels in order:
        layer, stream = network.layers[number], None
        if costs.decoder is not None:
            stream = network.stored.stream(layer, channels, costs.decoder_contexts)
        yield layer.constants(channels).packed() if stream is None else stream


__all__ = ["Weights", "assembled", "fastest", "weight_blocks"]
