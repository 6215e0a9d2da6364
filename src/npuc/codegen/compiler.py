"""One NPU subgraph: decide, place, assemble, in several ways, and keep the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from npuc.codegen.assemble import Assembler, Dram
from npuc.codegen.program import SHARED, Allocation, Segment
from npuc.codegen.program import Tensor as FileTensor
from npuc.errors import CompileError
from npuc.schedule.candidates import Candidates
from npuc.schedule.cost import Costs
from npuc.schedule.decisions import Decisions, Settled
from npuc.schedule.grouping import DoesNotFit, Grouping, layer_by_layer
from npuc.schedule.layers import BLOCK, Tensor, aligned, packed
from npuc.schedule.memory import Buffer as Rectangle
from npuc.schedule.memory import plan
from npuc.schedule.multicore import CoreGrouping, homes
from npuc.schedule.network import Network
from npuc.schedule.pieces import Choices, Cutter
from npuc.schedule.pins import NOTHING, Pins
from npuc.schedule.prefetch import DoesNotPack, place, place_tightly
from npuc.schedule.steps import Constants, Load, Work, build
from npuc.target import Target

Array = np.ndarray[Any, Any]
_MARGINS = (0.94, 0.86, 0.76, 0.64, 0.5)
"""Parts of local memory that a group may plan with: the rest is lost to gaps."""


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


@dataclass(frozen=True)
class Scheduled:
    """One way to run a network: decided, placed, and assembled."""

    settled: Settled
    works: tuple[Work, ...]
    """What each core does."""
    streams: tuple[Array, ...]
    allocations: tuple[Allocation, ...]
    constants: tuple[tuple[int, tuple[int, int]], ...]
    """Blocks of constants in the order in which they are streamed."""
    workspace: int


def schedule(
    network: Network,
    target: Target,
    places: dict[Tensor, tuple[int, int]],
    workspace_base: int,
    weights_base: int = 0,
    level: int = 2,
    first_layer: int = 0,
    choices: Choices | None = None,
    transfer_weight: float = 1.0,
    far: int = 0,
    pins: Pins = NOTHING,
    settled: Settled | None = None,
    cores: int = 1,
    memory: int | None = None,
    candidates: Candidates | None = None,
) -> Scheduled:
    """Decide, place and assemble; `places` says where inputs and outputs are in DRAM.

    With `settled`, nothing is decided: it is what an earlier search found, or what a user states in full. `memory` is
    what groups are planned with, if that is not to be tried out; `candidates` are known from earlier searches.
    """
    choices = choices or Choices()
    local = int(target.memory.local.size)
    failure: Exception | None = None
    rooms = [int(local * margin) for margin in _MARGINS] if memory is None else [memory]
    if settled is not None:
        rooms, cores = [settled.memory], settled.cores
    ways = list(product((place, place_tightly), rooms))
    if settled is None and memory is None:
        ways += product((place, place_tightly), [local])
    # Where no part of memory packs with loads that run ahead, they come when they are needed. All of it is the last resort
    # of a layer that needs nearly all.
    too_small = 0
    for placed, room in ways:
        if room <= too_small:
            continue
        fitted = replace(choices, chunk=min(choices.chunk, room // 8))
        if settled is not None:
            fitted, far = settled.choices, settled.decisions.far
        grouping = Grouping(
            network,
            Cutter(Costs(target), fitted),
            room,
            transfer_weight,
            far,
            pins,
            candidates or Candidates(),
        )
        try:
            if settled is not None:
                decisions = settled.decisions
            elif cores > 1:
                decisions = CoreGrouping(grouping, cores, _between(target)).search()
            else:
                decisions = layer_by_layer(grouping) if level == 0 else grouping.search()
            works = tuple(build(grouping, decisions, core, cores) for core in range(cores))
            addresses = [placed(work, local) for work in works]
        except (DoesNotFit, DoesNotPack) as error:
            if isinstance(error, DoesNotFit):
                too_small = max(too_small, room)
            failure = failure if isinstance(failure, DoesNotFit) else error
            continue
        constants = _streamed(works, weights_base)
        shared = target.memory.shared
        at_home = homes(decisions, grouping, int(shared.size)) if shared is not None and cores > 1 else {}
        spilled = _spilled(works, decisions, grouping)
        tensors = {**places, **{tensor: (SHARED, address) for tensor, address in at_home.items()}}
        inside = {tensor: span for tensor, span in spilled.items() if tensor not in at_home}
        rectangles = [
            Rectangle(str(i), aligned(tensor.size), first, last + 1, BLOCK)
            for i, (tensor, (first, last)) in enumerate(inside.items())
        ]
        found = plan(rectangles) if rectangles else None
        for i, tensor in enumerate(inside):
            assert found is not None
            tensors[tensor] = 1, workspace_base + found.addresses[str(i)]
        workspace = workspace_base + (found.size if found is not None else 0)
        names = [layer.name for layer in network.layers]
        dram = Dram(tensors, constants, workspace)
        assemblers = [Assembler(names, first_layer, local, dram, here) for here in addresses]
        streams = tuple(a.assemble(work) for a, work in zip(assemblers, works, strict=True))
        return Scheduled(
            Settled(decisions, fitted, room, cores),
            works,
            streams,
            tuple(one for core, a in enumerate(assemblers) for one in a.allocations(core)),
            tuple(constants),
            workspace,
        )
    if isinstance(failure, DoesNotFit):
        raise failure
    raise CompileError(
        "the tensors that are needed at the same time do not pack into local memory",
        fix="Choose a target with more local memory",
    )


def fastest(
    network: Network,
    target: Target,
    places: dict[Tensor, tuple[int, int]],
    workspace_base: int,
    weights_base: int,
    level: int,
    first_layer: int,
    cores: int | None,
    judge: Callable[[Sequence[Array]], int],
    fixed: Mapping[str, Any] | None = None,
    candidates: Candidates | None = None,
) -> Scheduled:
    """The fastest of the ways that a level of optimization tries; a higher level tries all that a lower one does.

    `fixed` are arguments of `schedule` that no way may change; `candidates` are known from earlier searches, and get more.
    """
    candidates = candidates or Candidates()
    count = min(cores or target.compute.cores, target.compute.cores)
    ways: list[dict[str, Any]] = [{"level": 0}]
    if level >= 1:
        ways = [{"level": 1}, *ways]
        if count > 1:
            ways.insert(0, {"level": 1, "cores": count})
    if level >= 2:
        usual = Choices()
        ways += [
            {"level": 1, "far": 8},
            {"level": 1, "transfer_weight": 0.4},
            {"level": 1, "choices": replace(usual, chunk=usual.chunk // 2)},
        ]
    if level >= 3:
        ways += [
            {
                "level": 1,
                "far": far,
                "transfer_weight": weight,
                "choices": replace(Choices(), chunk=chunk, busy=busy),
            }
            for far in (0, 5, 12)
            for weight in (0.4, 1.0, 2.5)
            for chunk, busy in ((160 * 1024, 1500), (48 * 1024, 800))
        ]
    if fixed:
        ways = [{**way, **fixed} for way in ways if way["level"] > 0 or "pins" not in fixed]
        ways = [way for number, way in enumerate(ways) if way not in ways[:number]]
    best: tuple[int, Scheduled] | None = None
    failure: Exception | None = None
    tried = len(ways) if level >= 2 else 2 if level == 1 and count > 1 else 1
    for way in ways[:tried]:
        try:
            done = schedule(
                network,
                target,
                places,
                workspace_base,
                weights_base,
                first_layer=first_layer,
                candidates=candidates,
                **way,
            )
        except (DoesNotFit, CompileError) as error:
            failure = failure or error
            continue
        if tried == 1:
            return done
        cycles = judge(done.streams)
        if best is None or cycles < best[0]:
            best = cycles, done
    if best is None:
        assert failure is not None
        raise failure
    return best[1]


def _between(target: Target) -> float:
    """Bytes a cycle of the memory through which cores exchange tensors."""
    memory, clock = target.memory, target.compute.clock
    found = memory.shared.bandwidth if memory.shared is not None else memory.dram.bandwidth
    return float(found.bytes_per_cycle(clock))


def _streamed(works: Sequence[Work], base: int) -> dict[tuple[int, tuple[int, int]], int]:
    """Blocks of constants in the order in which they are first loaded, and where each begins."""
    found: dict[tuple[int, tuple[int, int]], int] = {}
    for work in works:
        for load in work.loads:
            if isinstance(load, Load) and isinstance(load.source, Constants):
                key = (load.source.layer, load.source.channels)
                if key not in found:
                    found[key] = base
                    base += aligned(load.size)
    return found


def _spilled(
    works: Sequence[Work], decisions: Decisions, grouping: Grouping
) -> dict[Tensor, tuple[int, int]]:
    """Tensors that are in DRAM on the way, and when: by steps on one core, by groups on several."""
    if len(works) == 1:
        return works[0].spilled
    group_of = decisions.group_of
    found = {}
    for tensor in dict.fromkeys(tensor for work in works for tensor in work.spilled):
        readers = [group_of[use] for use in grouping.uses.get(tensor, ())]
        found[tensor] = group_of[grouping.made[tensor]], max(readers, default=group_of[grouping.made[tensor]])
    return found


def weight_blocks(network: Network, order: Sequence[tuple[int, tuple[int, int]]]) -> list[Array]:
    """The bytes of constants in the order in which they are streamed."""
    return [packed(network.layers[layer].constants(channels)) for layer, channels in order]


__all__ = ["FileTensor", "Scheduled", "Segment", "Weights", "fastest", "schedule", "weight_blocks"]
