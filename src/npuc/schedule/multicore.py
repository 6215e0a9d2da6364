"""Several cores: every group of layers is shared out, by rows, by output channels, or not at all.

All cores run the same groups in step. Between groups, tensors are in the shared memory of the chip, or in DRAM, and a
barrier stands; within a group a core works on tiles of its own and sees no other core. Constants that all cores need are
loaded by all at once and cross the DRAM channel once. A layer that cannot be cut by rows may be cut by its output channels;
what can be cut in neither way runs on one core.

Example: a convolution of 40,000 cycles on four cores, whose operand and result take 1,000 cycles each on their way between
memories and whose constants take 500. A barrier costs 600.

    by rows, a tile a core      10,000 of work, 600, and the first load and last store uncovered: 2,000      12,600
    by rows, two tiles a core   10,400 with 4 % of the rows made twice, 600, of transfers the half: 1,000    12,000   <- cheapest
    by output channels          10,000, 600, every core loads the whole operand: 4,000, result 1,000         15,600
    on one core                 40,000, 600, transfers 2,000                                                 42,600

Where constants come ahead of barriers (`barriers.py`), a group may also be some layers cut by their channels, each core with
channels and constants of its own and all rows: what all cores have to have whole they load at once. Then the constants of a
group that is cut by rows cost more, as all cores hold them, and fewer can come ahead.

Dynamic programming as on one core (`grouping.py`), with one state a cut: all tensors between groups leave local memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf

from npuc.arrays import ceil_div
from npuc.errors import MemoryPlanError
from npuc.schedule.decisions import Decisions, Group
from npuc.schedule.grouping import DoesNotFit, Grouping
from npuc.schedule.layers import BLOCK, NotCut, Tensor, Tile, aligned
from npuc.schedule.memory import Buffer, plan
from npuc.schedule.regions import region_memory_of, region_tile
from npuc.schedule.spread import own_rows

_LONGEST = 16
_ROUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Tiles of a core."""
BARRIER = 600
"""Cycles that a group costs beside its work: the barrier, the first load, the last store."""
_MEETING = 150
"""The same where constants have come before."""
_MOST_PARTS = 4
"""Layers of a group that is cut by channels at most."""
_ROW_PARTS = (1, 2, 4)
"""Tiles of rows of such a group."""


@dataclass
class CoreGrouping:
    """The search for several cores; `grouping` answers what concerns a single core."""

    grouping: Grouping
    cores: int
    rate: float
    """Bytes a cycle of the memory between groups."""
    _counts: dict[tuple[int, int], list[int]] = field(default_factory=dict, init=False)

    @property
    def runs_ahead(self) -> bool:
        """Whether constants come before barriers: what they cost is the same for every way through the layers."""
        return self.grouping.tiler.choices.ahead > 1

    @property
    def barrier(self) -> int:
        """Cycles that a group costs beside its work."""
        return _MEETING if self.runs_ahead else BARRIER

    def search(self) -> Decisions:
        """The cheapest way through all layers."""
        count = len(self.grouping.network.layers)
        pins = self.grouping.pins
        best: dict[tuple[int, bool], float] = {(0, False): 0.0}
        back: dict[tuple[int, bool], tuple[int, bool, Group]] = {}
        least = self._least()
        for end in range(1, count + 1):
            for out in (False, True) if self.runs_ahead and end < count else (False,):
                for start in range(end - 1, max(-1, end - 1 - max(_LONGEST, pins.longest)), -1):
                    if not pins.allow(start, end):
                        continue
                    possible = False
                    for into in (False, True):
                        before = best.get((start, into), inf)
                        if before + least[end] - least[start] >= best.get((end, out), inf):
                            possible = possible or before < inf
                            continue
                        cost, group = self._best(start, end, into, out)
                        possible = possible or group is not None
                        if group is not None and before + cost < best.get((end, out), inf):
                            best[end, out], back[end, out] = before + cost, (start, into, group)
                    if not possible and end - start > 2:
                        break
        if (count, False) not in best:
            raise self.blame(best)
        groups: list[Group] = []
        resident: list[bool] = []
        state = count, False
        while state[0] > 0:
            start, into, group = back[state]
            groups.append(group)
            resident.append(into)
            state = start, into
        return Decisions(tuple(groups[::-1]), tuple(resident[-2::-1]))

    def blame(self, best: Mapping[tuple[int, bool], float]) -> DoesNotFit:
        """The first layer that there is no way past."""
        count = len(self.grouping.network.layers)
        index = next(i for i in range(1, count + 1) if (i, False) not in best) - 1
        layer = self.grouping.network.layers[index]
        return DoesNotFit(layer, self.grouping.whole_memory(index, False, False))

    def _least(self) -> list[float]:
        sums = [0.0]
        for index, layer in enumerate(self.grouping.network.layers):
            cycles = self.grouping.tiler.cycles(layer, self.grouping.tiler.whole(layer))
            sums.append(sums[-1] + (cycles / self.cores if index not in self.grouping.turns else 0))
        return sums

    def _best(self, start: int, end: int, into: bool, out: bool) -> tuple[float, Group | None]:
        pinned = self.grouping.pins.starts.get(start)
        if pinned is not None:
            return (inf, None) if into or out else (0.0, pinned)  # the same for every way through the layers
        options = [self._by_rows(start, end, into, out)]
        if end - start == 1 and not into and not out:
            options += [self._by_channels(start), self._alone(start)]
        if self.runs_ahead and end - start <= _MOST_PARTS and not into and not out:
            options.append(self._channel_tiles(start, end))
        return min(options, key=lambda option: option[0])

    def _around(self, start: int, end: int) -> tuple[float, float]:
        """Cycles of the operands and results of a group on their way between memories."""
        loads, stores = self.grouping.moved_bytes(start, end, False, False)
        return loads / self.rate, stores / self.rate

    def _constants(self, start: int, end: int) -> float:
        layers = self.grouping.network.layers[start:end]
        return self.grouping.transfer(sum(map(self.grouping.loaded_constants, layers)))

    def _by_rows(self, start: int, end: int, into: bool, out: bool) -> tuple[float, Group | None]:
        best: tuple[float, Group | None] = (inf, None)
        layers = self.grouping.network.layers[start:end]
        if into and any(index in self.grouping.turns for index in range(start, end)):
            return best  # what loads turn they take from the memory between
        counts = self._tile_counts(start, end)
        held = self._held(start, end, into, out)

        room = self.grouping.room(start, end)

        def fits(count: int) -> bool:
            return self._memory(start, end, count, held) <= room

        if not counts or not fits(counts[-1]):
            return best
        first = bisect_left(counts, True, key=fits)
        whole, _ = self._around(start, end)
        loads, stores = (size / self.rate for size in self.grouping.moved_bytes(start, end, into, out))
        constants = self._constants(start, end)
        for count in counts[first : first + 3]:
            if self.grouping.overlap(start, end, count) > self.grouping.pins.max_halo:
                continue
            cycles, loaded = self.grouping.tile_sums(start, end, count)
            rounds = count // self.cores
            moved = (loaded / self.rate * (loads / whole) if loads else 0.0) + stores
            work = max(cycles / self.cores, moved + constants)
            if self.runs_ahead:
                work = max(cycles * self._largest_share(layers[-1].outputs[0].rows, count), moved)
                work += self.grouping.transfer_weight * constants  # all cores hold them: fewer can come ahead
            cost = work + self.barrier + (loads + stores) / rounds
            if into:
                cost += 2 * self._seams(start, end, count) / self.rate
            if cost < best[0]:
                best = cost, Group(start, end, count)
        return best

    def _tile_counts(self, start: int, end: int) -> list[int]:
        """Into how many tiles a group may be cut by rows: as many for each core."""
        key = start, end
        if key not in self._counts:
            layers, counts = self.grouping.network.layers[start:end], []
            loaded = [self.grouping.is_loaded(index, start, end) for index in range(start, end)]
            if all(layer.by_rows or load for layer, load in zip(layers, loaded, strict=True)):
                limit = max(layer.outputs[0].rows for layer in layers)
                counts = [self.cores * n for n in _ROUNDS if self.cores * n <= limit]
            while counts and not self.grouping.can_cut(start, end, counts[-1]):
                counts.pop()
            self._counts[key] = counts
        return self._counts[key]

    def _held(self, start: int, end: int, into: bool, out: bool) -> set[int]:
        """The numbers of the tensors that are spread over cores while a group runs."""
        held = {*(self.grouping.on_chip(start) if into else ()), *(self.grouping.on_chip(end) if out else ())}
        numbers, producers = self.grouping.numbers.numbers, self.grouping.producers
        return {numbers[tensor] for tensor in held if producers[tensor] >= 0}

    def _memory(self, start: int, end: int, count: int, held: set[int]) -> float:
        """Bytes that a core needs for a group, with its part of the tensors that stay and what it has of other cores' rows."""
        tiled = self.grouping.tiled_memory(start, end, count, False, False, True)
        if not held or tiled == inf:
            return tiled
        network = self.grouping.numbers
        rows = self.grouping.numbered_rows(start, end, count, count // 2)
        assert rows is not None
        for number in held:
            size, here = network.row_sizes[number], 0
            own = ceil_div(network.tensors[number].rows, self.cores)
            if number in rows:  # it is in one object, and not in one a tile
                here = rows[number][1] - rows[number][0]
                copies = 2 if network.producers[number] < start else 1
                tiled -= copies * aligned(here * size)
            tiled += aligned(min(own + here, network.tensors[number].rows) * size)
        return tiled

    def _seams(self, start: int, end: int, count: int) -> float:
        """Bytes of rows that cores have from each other."""
        core, network = self.cores // 2, self.grouping.numbers
        first, last = count * core // self.cores, count * (core + 1) // self.cores - 1
        low, high = (self.grouping.numbered_rows(start, end, count, tile) for tile in (first, last))
        assert low is not None and high is not None
        size = 0
        for number in self._held(start, end, True, False):
            if number in low:
                own = own_rows(network.tensors[number], core, self.cores)
                rows = max(own[0] - low[number][0], 0) + max(high[number][1] - own[1], 0)
                size += rows * network.row_sizes[number]
        return float(size * self.cores)

    def _largest_share(self, rows: int, tiles: int) -> float:
        """The part of some rows that the busiest core has."""
        cuts = [rows * (tiles * core // self.cores) // tiles for core in range(self.cores + 1)]
        return max(high - low for low, high in pairwise(cuts)) / rows

    def _by_channels(self, index: int) -> tuple[float, Group | None]:
        layer = self.grouping.network.layers[index]
        lanes = self.grouping.tiler.costs.target.compute.array.output_channels
        if (
            layer.sums
            or layer.channels < 2 * lanes
            or self.grouping.whole_memory(index, False, False) > self.grouping.room(index, index + 1)
        ):
            return inf, None
        parts = min(self.cores, ceil_div(layer.channels, lanes))
        cycles = self.grouping.tiler.cycles(layer, self.grouping.tiler.whole(layer)) / parts
        loads, stores = self._around(index, index + 1)
        cost = max(cycles, self._constants(index, index + 1)) + self.cores * loads + stores + self.barrier
        return cost, Group(index, index + 1, by_channels=True)

    def _channel_tiles(self, start: int, end: int) -> tuple[float, Group | None]:
        """Layers each of whose channels need no others but of what comes from outside."""
        best: tuple[float, Group | None] = (inf, None)
        layers = self.grouping.network.layers[start:end]
        if any(layer.sums or len(layer.outputs) > 1 for layer in layers):
            return best
        loads, stores = self._around(start, end)
        for tiles in _ROW_PARTS:
            if tiles > 1 and (
                any(not layer.by_rows for layer in layers) or layers[-1].outputs[0].rows < 4 * tiles
            ):
                break
            group = Group(start, end, tiles, channel_tiles=self.cores)
            try:
                cut = region_tile(self.grouping, group, group.tile_count - 1 - tiles // 2)
                if region_memory_of(self.grouping, group, cut) > self.grouping.room(start, end):
                    continue
            except NotCut:
                break
            cycles = 0.0
            for entry in cut:
                rows, channels = entry.result.rows, (0, entry.layer.channels)
                inputs = tuple(operand.rows for operand in entry.operands)
                for template in entry.layer.templates(Tile(rows, channels, inputs, rows)):
                    cycles += self.grouping.tiler.costs.cycles(template.instruction)
            cost = max(cycles * tiles, loads + stores) + (loads + stores) / tiles + self.barrier
            if cost < best[0]:
                best = cost, group
        return best

    def _sums(self, index: int) -> bool:
        return self.grouping.network.layers[index].sums

    def _alone(self, index: int) -> tuple[float, Group | None]:
        loads, stores = self._around(index, index + 1)
        cost = self.grouping.whole_cost(index, False, False)
        if cost < inf:
            return cost + loads + stores + self.barrier, Group(index, index + 1, by_inputs=self._sums(index))
        if index not in self.grouping.turns:
            cost, group = self.grouping.tiled_cost(index, index + 1, False, False)
            if group is not None:
                return cost + self.barrier, replace(group, alone=True)
        if self.grouping.moved_cost(index) < inf:
            return self.grouping.moved_cost(index) + self.barrier, Group(index, index + 1, moved=True)
        return inf, None


def between_groups(decisions: Decisions, grouping: Grouping) -> dict[Tensor, tuple[int, int]]:
    """Tensors that cores exchange between groups: the group that makes each, and the last that reads it."""
    group_of = decisions.group_of
    outputs = grouping.network.stored_results
    spans: dict[Tensor, tuple[int, int]] = {}
    for tensor, producer in grouping.producers.items():
        readers = [group_of[use] for use in grouping.uses.get(tensor, ())]
        if producer < 0 or tensor in outputs or not readers or max(readers) == group_of[producer]:
            continue
        spans[tensor] = group_of[producer], max(readers)
    return spans


def homes(spans: Mapping[Tensor, tuple[int, int]], size: int) -> dict[Tensor, int]:
    """Addresses in the shared memory for tensors that leave local memory, as far as they fit: those that are read soon first.

    `spans` says when each is alive, in groups or in steps.
    """
    candidates = [(tensor, first, last) for tensor, (first, last) in spans.items()]
    chosen = sorted(candidates, key=lambda item: ((item[2] - item[1]) * item[0].size, item[0].name))
    while chosen:
        rectangles = [
            Buffer(str(i), aligned(tensor.size), first, last + 1, BLOCK)
            for i, (tensor, first, last) in enumerate(chosen)
        ]
        try:
            placement = plan(rectangles, size, steps=2_000_000)
        except MemoryPlanError:
            chosen = chosen[: len(chosen) * 9 // 10]
            continue
        return {tensor: placement.addresses[str(i)] for i, (tensor, _, _) in enumerate(chosen)}
    return {}
