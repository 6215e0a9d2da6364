"""Which layers form a group, in how many tiles: dynamic programming over cuts.

A layer whose operands, result and constants fit local memory runs whole, and its result stays: that moves the least and
computes nothing twice. Layers that do not fit are cut into tiles of rows, and several in a row form a group (`tiles.py`). The
cost of a group is the cycles of its engines plus a weight times those of its transfers; a cut is in one of two states: what
crosses it is in local memory, or in DRAM.

Example: layers A, B and C in 100 KiB. The tensors between them have 80 KiB (the input), 80, 20 and 5; an engine is busy for
100,000, 100,000 and 20,000 cycles; 80 KiB cross the DRAM channel in 20,000 cycles; constants are left out. A cannot run whole,
as 80 + 80 KiB do not fit.

    cut 1, in DRAM    {A} in tiles: 100,000 + 20,000 in + 20,000 out                     140,000
    cut 2, local      {B} whole behind that: 100,000 + 20,000 in                         260,000
    cut 2, local      {A, B} in tiles, 5 % of the rows made twice: 210,000 + 20,000 in   230,000   <- the tensor between
    cut 3             {C} whole behind the better one: 20,000 + 1,250 out                251,250      never leaves

The way back from the last cut gives the groups {A, B} and {C}. For each cut and state only the best way there is kept, so the
work grows with the number of layers times the longest group, and not with the number of ways to group them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import inf

from npuc.schedule.candidates import Candidates, Tiling, layer_key, row_key
from npuc.schedule.decisions import Decisions, Group
from npuc.schedule.layers import Layer, Tensor, aligned
from npuc.schedule.moves import copies_of
from npuc.schedule.pins import NOTHING, Pins
from npuc.schedule.tiles import TILES, Tiles

_LONGEST = 24
"""Layers of a group at most."""
_WAYS = ((True, True, 2), (True, False, 2), (False, False, 2), (False, False, 1), (False, True, 1))
"""How a group may be tiled: constants stay for all tiles, seams are kept, and how many tiles' operands are there at a time. Where
the first is possible, none that loads constants once a tile is better."""


class DoesNotFit(Exception):
    """A layer cannot be cut finely enough for local memory."""

    def __init__(self, layer: Layer, bytes_: int) -> None:
        super().__init__(f"'{layer.name}' needs {bytes_} bytes of local memory at least")
        self.layer = layer
        self.bytes = bytes_


@dataclass
class Grouping(Tiles):
    """The search for one network on one machine."""

    transfer_weight: float = 1.0
    pins: Pins = NOTHING
    candidates: Candidates = field(default_factory=Candidates)
    _keys: dict[Layer, str] = field(default_factory=dict, init=False)
    _loaded: dict[Layer, int] = field(default_factory=dict, init=False)
    _whole_costs: dict[tuple[int, bool, bool], float] = field(default_factory=dict, init=False)
    _tiled_costs: dict[tuple[int, int, bool, bool], tuple[float, Group | None]] = field(
        default_factory=dict, init=False
    )

    def lose(self, first: int, last: int, size: int) -> None:
        """Plan a group that did not pack with so many bytes less."""
        self.lost[first, last] = self.lost.get((first, last), 0) + size
        for into, out in product((False, True), repeat=2):
            self._tiled_costs.pop((first, last, into, out), None)
            self._whole_costs.pop((first, into, out), None)

    # Costs

    def loaded_constants(self, layer: Layer) -> int:
        """Bytes that the constants of a layer take of the DRAM channel: of compressed ones those that are stored, and no
        fewer than it moves while they are decoded."""
        decoder = self.tiler.costs.decoder
        if decoder is None:
            return self.constants_of(layer)
        if layer not in self._loaded:
            waits = self.constants_of(layer) * self.tiler.costs.bytes_per_cycle / decoder
            stored = self.network.stored.size(layer, (0, layer.channels), self.tiler.costs.decoder_contexts)
            self._loaded[layer] = max(stored, int(waits))
        return self._loaded[layer]

    def whole_memory(self, index: int, resident_in: bool, resident_out: bool) -> int:
        """Bytes that a layer needs to run whole."""
        layer = self.network.layers[index]
        if layer.op.in_dram:
            return aligned(self.chunks(layer)) + aligned(layer.scratch(self.tiler.whole(layer)))
        held = {tensor.storage for tensor in layer.inputs} | set(layer.outputs)
        parts = 0
        if layer.sums:
            parts = 2 * aligned(layer.sum_size)
            if (
                not resident_in
                or self.producers[layer.inputs[0].storage] < 0
                or self.is_spilled(layer.inputs[0].storage, index)
            ):
                held = set(layer.outputs)  # the operand comes with the weights
                low, high = self.tiler.channel_cuts(layer)[0]
                parts += 2 * aligned((high - low) * layer.inputs[0].itemsize)
        if resident_in and resident_out:
            after = set(self.on_chip(index + 1))
            held |= {tensor for tensor in self.on_chip(index) if tensor in after}
        size = parts + sum(aligned(tensor.size) for tensor in held)
        for operand in layer.in_place[:1]:
            if self.dies(layer.inputs[operand].storage, index):
                size -= aligned(layer.outputs[0].size)
        return size + self.chunks(layer) + layer.scratch(self.tiler.whole(layer))

    def moved_bytes(self, first: int, last: int, resident_in: bool, resident_out: bool) -> tuple[int, int]:
        """Bytes loaded once and bytes stored of the tensors around a group."""
        inside = range(first, last)
        loads = 0
        counted = set()
        for index in inside:
            for tensor in self.network.layers[index].inputs:
                storage = tensor.storage
                if storage in counted or self.producers[storage] in inside:
                    continue
                counted.add(storage)
                if not resident_in or self.producers[storage] < 0 or self.is_spilled(storage, first):
                    loads += storage.size
        stores = 0
        for index in inside:
            for tensor in self.network.layers[index].outputs:
                if self.last_use[tensor] >= last and not self._stays(tensor, last, resident_out):
                    stores += tensor.size
        return loads, stores

    def _leaving(self, index: int, cut: int, resident: bool) -> float:
        """What it costs at least that results of a layer leave local memory at a cut behind it."""
        size = 0
        for tensor in self.network.layers[index].outputs:
            if self.last_use[tensor] >= cut and not self._stays(tensor, cut, resident):
                size += tensor.size
        return self.transfer_weight * self.transfer(size)

    def _stays(self, tensor: Tensor, cut: int, resident: bool) -> bool:
        """Whether a tensor is in local memory at a cut."""
        return tensor not in self.results and resident and not self.is_spilled(tensor, cut)

    @cached_property
    def _bytes_per_cycle(self) -> float:
        return float(self.tiler.costs.bytes_per_cycle)

    def transfer(self, size: float) -> float:
        """Cycles of so many bytes from or to DRAM."""
        return size / self._bytes_per_cycle

    def whole_cost(self, index: int, resident_in: bool, resident_out: bool) -> float:
        """The cost of a layer that runs whole; infinite if it does not fit."""
        key = index, resident_in, resident_out
        if key not in self._whole_costs:
            self._whole_costs[key] = self._whole_cost(*key)
        return self._whole_costs[key]

    def _whole_cost(self, index: int, resident_in: bool, resident_out: bool) -> float:
        layer = self.network.layers[index]
        room = self.room(index, index + 1)
        if layer.op.in_dram or self.whole_memory(index, resident_in, resident_out) > room:
            return inf
        loads, stores = self.moved_bytes(index, index + 1, resident_in, resident_out)
        moved = self.transfer(loads + stores + self.loaded_constants(layer))
        return self.tiler.cycles(layer, self.tiler.whole(layer)) + self.transfer_weight * moved

    def moved_cost(self, index: int) -> float:
        """The cost of a layer that works from DRAM to DRAM; infinite for others."""
        layer = self.network.layers[index]
        if layer.op.in_dram:
            if self.whole_memory(index, False, False) > self.capacity:
                return inf
            constants = self.transfer_weight * self.transfer(self.loaded_constants(layer))
            return self.tiler.cycles(layer, self.tiler.whole(layer)) + constants
        if copies_of(layer) is None:
            return inf
        return 4 * self.transfer_weight * self.transfer(layer.outputs[0].size)

    def tiled_cost(
        self, first: int, last: int, resident_in: bool, resident_out: bool
    ) -> tuple[float, Group | None]:
        """The best way to run layers as a group of tiles."""
        key = first, last, resident_in, resident_out
        if key not in self._tiled_costs:
            self._tiled_costs[key] = self._tiled_cost(*key)
        return self._tiled_costs[key]

    def _tiled_cost(
        self, first: int, last: int, resident_in: bool, resident_out: bool
    ) -> tuple[float, Group | None]:
        best: tuple[float, Group | None] = (inf, None)
        layers = self.network.layers
        limit = max((layer.outputs[0].rows for layer in layers[first:last]), default=1)
        row = self._key(first, last, resident_in, resident_out)
        for resident_weights, seams, buffers in _WAYS if self.tiler.choices.seams > 1 else _WAYS[1:3]:
            if not resident_weights and best[1] is not None and best[1].keeps_seams:
                break
            key = f"{row}{'+' if resident_weights else '-'}{'s' if seams else ''}{buffers if buffers < 2 else ''}"
            if key not in self.candidates.known:
                tiles = self.fewest_tiles(
                    first, last, limit, resident_in, resident_out, resident_weights, seams, buffers
                )
                candidate = (
                    None if tiles is None else Tiling(tiles, *self.tile_sums(first, last, tiles, seams))
                )
                self.candidates.add(key, candidate)
            tiling = self.candidates.known[key]
            if tiling is None:
                continue
            if not seams and self.overlap(first, last, tiling.tiles) > self.pins.max_halo:
                continue
            group = Group(first, last, tiling.tiles, resident_weights, keeps_seams=seams)
            cost = self._tiles_cost(group, resident_in, resident_out, tiling)
            if buffers < 2:  # engines wait for the operands
                cost += self.transfer(tiling.loaded)
            if cost < best[0]:
                best = cost, group
        return best

    def _key(self, first: int, last: int, into: bool, out: bool) -> str:
        """The name of a candidate, with resident weights or without: what its tiles, cycles and loads follow from."""
        layers = self.network.layers[first:last]
        for layer in layers:
            if layer not in self._keys:
                self._keys[layer] = layer_key(layer, self.tiler)
        held = {*(self.on_chip(first) if into else ()), *(self.on_chip(last) if out else ())}
        storages = {tensor.storage for layer in layers for tensor in (*layer.inputs, *layer.outputs)}
        facts = {
            tensor: (self.producers[tensor] >= first, tensor in held, self.last_use[tensor] >= last)
            for tensor in storages
        }
        taken = sum(aligned(tensor.size) for tensor in held)
        rest = (self.room(first, last), self.tiler.choices, taken, *([True] if self.turns else []))
        return row_key(((layer, self._keys[layer]) for layer in layers), facts, rest)

    def _pinned_cost(self, group: Group, into: bool, out: bool) -> float:
        """The cost of a group as it is; infinite if it does not fit."""
        if group.has_regions:  # from DRAM to DRAM; what it costs is the same for every way through the layers
            return inf if into or out else 0.0
        if group.moved:
            return inf if into or out else self.moved_cost(group.first)
        if group.tiles == 1:
            return self.whole_cost(group.first, into, out)
        need = self.tiled_memory(
            group.first, group.last, group.tiles, into, out, group.resident_weights, group.keeps_seams, 1
        )
        if need > self.capacity:
            return inf
        tiling = Tiling(group.tiles, *self.tile_sums(group.first, group.last, group.tiles, group.keeps_seams))
        return self._tiles_cost(group, into, out, tiling)

    def _tiles_cost(self, group: Group, into: bool, out: bool, tiling: Tiling) -> float:
        """The cost of a group of tiles that fits."""
        loads, stores = self.moved_bytes(group.first, group.last, into, out)
        constants = sum(map(self.loaded_constants, self.network.layers[group.first : group.last]))
        moved = stores + constants * (1 if group.resident_weights else group.tiles)
        loaded = tiling.loaded if loads else 0
        return tiling.cycles + self.transfer_weight * self.transfer(moved + loaded)

    def overlap(self, first: int, last: int, tiles: int) -> float:
        """The work that tiles do more than once, as a part of that of the layers."""
        if self.pins.max_halo == inf:
            return 0.0
        work = more = 0.0
        for index in range(first, last):
            layer = self.network.layers[index]
            y = layer.outputs[0]
            computed_rows = 0
            for tile in range(tiles):
                rows = self.tile_rows(first, last, tiles, tile)
                assert rows is not None
                computed_rows += rows[y][1] - rows[y][0]
            cycles = self.tiler.cycles(layer, self.tiler.whole(layer))
            work += cycles
            more += cycles * (computed_rows / y.rows - 1)
        return more / work

    # The search

    def search(self) -> Decisions:
        """The cheapest way through all layers."""
        count = len(self.network.layers)
        best: dict[tuple[int, bool], float] = {(0, False): 0.0}
        back: dict[tuple[int, bool], tuple[int, bool, Group]] = {}
        fits = [self.whole_cost(i, True, True) < inf for i in range(count)]
        bad = [0]
        for good in fits:
            bad.append(bad[-1] + (not good))
        states = (False, True)
        least = self._least()
        for end in range(1, count + 1):
            for out in states if end < count else (False,):
                if end < count and not self.pins.allow_cut(end, out):
                    continue
                leaving = 0.0
                for start in range(end - 1, max(-1, end - 1 - max(_LONGEST, self.pins.longest)), -1):
                    leaving += self._leaving(start, end, out)
                    if end - start > 1 and bad[end] == bad[start] and start not in self.pins.starts:
                        continue
                    if not self.pins.allow(start, end):
                        continue
                    possible = False
                    for into in states:
                        before = best.get((start, into))
                        if before is None:
                            continue
                        below = before + least[end] - least[start] + (leaving if end - start > 1 else 0.0)
                        if below >= best.get((end, out), inf):
                            possible = True
                            continue
                        for cost, group in self._options(start, end, into, out):
                            possible = True
                            if before + cost < best.get((end, out), inf):
                                best[end, out] = before + cost
                                back[end, out] = (start, into, group)
                    if not possible and end - start > 2:
                        break  # a longer group needs no less memory
        if (count, False) not in best:
            raise self.blame()
        groups: list[Group] = []
        resident: list[bool] = []
        state = (count, False)
        while state[0] > 0:
            start, into, group = back[state]
            groups.append(group)
            resident.append(into)
            state = (start, into)
        groups.reverse()
        resident.reverse()
        return Decisions(tuple(groups), tuple(resident[1:]), self.spill_distance)

    def _least(self) -> list[float]:
        """For each layer, what all before it cost at least."""
        sums = [0.0]
        for layer in self.network.layers:
            moved = self.transfer_weight * self.transfer(self.loaded_constants(layer))
            sums.append(sums[-1] + self.tiler.cycles(layer, self.tiler.whole(layer)) + moved)
        return sums

    def _options(self, start: int, end: int, into: bool, out: bool) -> Iterator[tuple[float, Group]]:
        """The ways to run some layers as a group."""
        pinned = self.pins.starts.get(start)
        if pinned is not None:
            cost = self._pinned_cost(pinned, into, out)
            if cost < inf:
                yield cost, pinned
            return
        if end - start == 1:
            cost = self.whole_cost(start, into, out)
            if cost < inf:
                yield cost, Group(start, end, by_inputs=self.network.layers[start].sums)
                return
        cost, group = self.tiled_cost(start, end, into, out)
        if group is not None:
            yield cost, group
        elif end - start == 1 and not into and not out:
            moved = self.moved_cost(start)
            if moved < inf:
                yield moved, Group(start, end, moved=True)

    def blame(self) -> DoesNotFit:
        """The layer that cannot be cut finely enough."""
        worst = None
        for index, layer in enumerate(self.network.layers):
            need = float(self.whole_memory(index, False, False))
            if self.moved_cost(index) < inf:
                continue
            if layer.by_rows:
                rows = layer.outputs[0].rows
                tiles = max((count for count in (*TILES, rows) if 1 < count <= rows), default=0)
                if tiles:
                    need = min(need, self.tiled_memory(index, index + 1, tiles, False, False, False))
            if need > self.capacity:
                return DoesNotFit(layer, int(need))
            if worst is None or need > worst[0]:
                worst = (need, layer)
        assert worst is not None
        return DoesNotFit(worst[1], int(worst[0]))


def layer_by_layer(grouping: Grouping) -> Decisions:
    """Every layer alone, everything between layers in DRAM."""
    groups = []
    for index in range(len(grouping.network.layers)):
        if grouping.whole_cost(index, False, False) < inf:
            groups.append(Group(index, index + 1, by_inputs=grouping.network.layers[index].sums))
            continue
        _, group = grouping.tiled_cost(index, index + 1, False, False)
        if group is None and grouping.moved_cost(index) < inf:
            group = Group(index, index + 1, moved=True)
        if group is None:
            raise grouping.blame()
        groups.append(group)
    return Decisions(tuple(groups), (False,) * (len(groups) - 1))
