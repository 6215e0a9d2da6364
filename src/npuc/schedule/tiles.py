"""Layers as a group of tiles: the rows that a tile needs, the memory that it takes, and how few there can be.

Tiles are made of rows of the group's results. What is between its layers never leaves local memory; rows at the seams of tiles
are computed twice, or kept from one tile to the next.

Example: two convolutions of 3 x 3 with padding 1, over 8 rows, in two tiles. From the last layer to the first, each asks the one
before for the rows that its own need:

    tile    result of the second    of the first    input
    0       rows 0 to 4             0 to 5          0 to 6
    1       rows 4 to 8             3 to 8          2 to 8

The first convolution makes 10 rows where 8 would do, and rows 2 to 6 of the input are loaded twice. With four tiles of two rows
it is 14 rows: the more tiles, the less memory each takes and the more is done twice, so the fewest that fit are looked for.

Where seams are kept, each layer goes on where it was. Behind the first tile the second convolution needs rows 3 and 4 of the
first's result, and the first, which has to make rows 5 to 8 only, needs rows 4 and 5 of the input:

    tile    result of the second    of the first: kept, made    input: kept, loaded
    0       rows 0 to 4             none, 0 to 5                none, 0 to 6
    1       rows 4 to 8             3 to 5, 5 to 8              4 to 6, 6 to 8

What a tile keeps is copied aside when it has read it last, and to the beginning of the next tile's rows; what is made or loaded
goes behind it. So every row is made once and loaded once, in however many tiles. All seams of a group take memory all the time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import inf

from npuc.arrays import ceil_div
from npuc.schedule.cost import START
from npuc.schedule.layers import Layer, Rows, Tensor, aligned
from npuc.schedule.lifetimes import Lifetimes
from npuc.schedule.numbered import (
    NumberedNetwork,
    TileMemo,
    memory_of_tile,
    numbered,
    rows_behind_seam,
    rows_of_tile,
)
from npuc.schedule.tiler import Tiler
from npuc.schedule.turns import Turn, turn_of

TILES = (
    2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 320, 512, 1024,
)  # fmt: skip
"""How many tiles are tried."""


@dataclass
class Tiles(Lifetimes):
    """How the layers of a network are cut for one machine."""

    tiler: Tiler
    capacity: int
    """Bytes that tensors and constants may take."""
    lost: dict[tuple[int, int], int] = field(default_factory=dict, init=False)
    """Of groups that did not pack, bytes that are lost to gaps."""
    memo: TileMemo = field(default_factory=TileMemo, kw_only=True)
    """Shared by the searches of a network."""
    several_cores: bool = field(default=False, kw_only=True)
    """Whether groups are shared out among cores."""
    _sizes: dict[Layer, int] = field(default_factory=dict, init=False)
    _pairs: dict[Layer, int] = field(default_factory=dict, init=False)
    _counts: dict[tuple[int, int, int], list[int]] = field(default_factory=dict, init=False)

    @cached_property
    def turns(self) -> dict[int, Turn]:
        """The layers that loads can do, where cores share the work."""
        if not self.several_cores:
            return {}
        turns = ((index, turn_of(layer)) for index, layer in enumerate(self.network.layers))
        return {index: turn for index, turn in turns if turn is not None}

    def is_loaded(self, index: int, first: int, last: int) -> bool:
        """Whether loads do a layer of a group that is cut by rows: its operand is older, and its result stays inside."""
        if index not in self.turns:
            return False
        y = self.network.layers[index].outputs[0]
        return self.producers[self.turns[index].source] < first and self.last_use[y] < last

    def room(self, first: int, last: int) -> int:
        """Bytes that a group may take."""
        return self.capacity - self.lost.get((first, last), 0)

    def constants_of(self, layer: Layer) -> int:
        """Bytes of all constants of a layer."""
        if layer not in self._sizes:
            self._sizes[layer] = layer.constant_size((0, layer.channels))
        return self._sizes[layer]

    def chunks(self, layer: Layer) -> int:
        """Bytes of constants that have to be there at once: the tile at work and the next."""
        if layer not in self._pairs:
            self._pairs[layer] = self._pair(layer)
        return self._pairs[layer]

    def _pair(self, layer: Layer) -> int:
        return min(self.constants_of(layer), 2 * self.block(layer))

    def block(self, layer: Layer) -> int:
        """Bytes of constants that are loaded as one, at most."""
        return layer.constant_size(self.tiler.channel_cuts(layer)[0])

    @cached_property
    def numbers(self) -> NumberedNetwork:
        """The network by numbers, for loops."""
        if not self.memo.numbers:
            self.memo.numbers.append(numbered(self, self.turns))
        return self.memo.numbers[0]

    @cached_property
    def _constant_sums(self) -> list[int]:
        """For each layer, the bytes of constants of all before it."""
        return [0, *accumulate(map(self.constants_of, self.network.layers))]

    @cached_property
    def _blocks(self) -> list[int]:
        return list(map(self.block, self.network.layers))

    def tile_rows(
        self, first: int, last: int, tiles: int, tile: int, seams: bool = False
    ) -> dict[Tensor, Rows] | None:
        """The rows of every tensor of a group that one tile computes or reads; None if it cannot be cut.

        With `seams`, the tile before kept the rows that both need.
        """
        rows = self.numbered_rows(first, last, tiles, tile)
        return self._named(self._rows_behind_seam(first, last, tiles, tile) if seams and rows else rows)

    def seam(self, first: int, last: int, tiles: int, tile: int) -> dict[Tensor, Rows]:
        """The rows of a tile that the next one needs too, of tensors that are read in the group; none behind the last."""
        return self._named(self._numbered_seam(first, last, tiles, tile)) or {}

    def _named(self, rows: dict[int, Rows] | None) -> dict[Tensor, Rows] | None:
        tensors = self.numbers.tensors
        return None if rows is None else {tensors[number]: some for number, some in rows.items()}

    def numbered_rows(self, first: int, last: int, tiles: int, tile: int) -> dict[int, Rows] | None:
        """The same by the numbers of tensors."""
        key, known = (first, last, tiles, tile), self.memo.rows
        if key not in known:
            known[key] = rows_of_tile(self.numbers.layers, *key)
        return known[key]

    def _rows_behind_seam(self, first: int, last: int, tiles: int, tile: int) -> dict[int, Rows]:
        rows = self.numbered_rows(first, last, tiles, tile)
        assert rows is not None
        if not tile:
            return rows
        key, known = (first, last, tiles, tile), self.memo.rows_behind_seams
        if key not in known:
            before = self.numbered_rows(first, last, tiles, tile - 1)
            assert before is not None
            known[key] = rows_behind_seam(self.numbers.layers, first, last, before, rows)
        return known[key]

    def _numbered_seam(self, first: int, last: int, tiles: int, tile: int) -> dict[int, Rows]:
        if tile + 1 >= tiles:
            return {}
        rows = self.numbered_rows(first, last, tiles, tile)
        following = self._rows_behind_seam(first, last, tiles, tile + 1)
        assert rows is not None
        uses = self.numbers.uses
        return {
            number: (following[number][0], high)
            for number, (_, high) in rows.items()
            if following[number][0] < high and any(first <= use < last for use in uses[number])
        }

    def tiled_memory(
        self,
        first: int,
        last: int,
        tiles: int,
        resident_in: bool,
        resident_out: bool,
        resident_weights: bool,
        seams: bool = False,
        buffers: int = 2,
    ) -> float:
        """Bytes that a group of tiles needs, with so many tiles' operands at a time; infinite if it cannot be cut so."""
        distance = self.spill_distance if resident_in or resident_out else 0
        key, known = (
            (first, last, tiles, resident_in, resident_out, seams, buffers, distance),
            self.memo.memory,
        )
        if key not in known:
            known[key] = self._tensor_memory(first, last, tiles, resident_in, resident_out, seams, buffers)
        return self._constants_at_once(first, last, resident_weights) + known[key]

    def _constants_at_once(self, first: int, last: int, resident: bool) -> int:
        """Bytes of constants that a group of tiles has in memory."""
        sums = self._constant_sums
        return sums[last] - sums[first] if resident else 2 * max(self._blocks[first:last])

    def _tensor_memory(
        self,
        first: int,
        last: int,
        tiles: int,
        resident_in: bool,
        resident_out: bool,
        seams: bool,
        buffers: int,
    ) -> float:
        """The same without constants."""
        tallest = _tallest(self.network.layers[last - 1].outputs[0].rows, tiles)
        if self.numbered_rows(first, last, tiles, tallest) is None:
            return inf
        if seams and not all(layer.op.ascending for layer in self.network.layers[first:last]):
            return inf
        # A tile in the middle stands for all; with seams, the first has more rows, of which the others begin with some.
        looked_at = {0, tallest} if seams else {tallest}
        held = {*(self.on_chip(first) if resident_in else ()), *(self.on_chip(last) if resident_out else ())}
        numbers = {self.numbers.numbers[tensor] for tensor in held}
        most = 0
        for tile in sorted(looked_at):
            own = self._rows_behind_seam if seams else self.numbered_rows
            rows = own(first, last, tiles, tile)
            kept = self._numbered_seam(first, last, tiles, tile) if seams else {}
            assert rows is not None
            group, overlaps = (first, last), seams and buffers > 1
            most = max(most, memory_of_tile(self.numbers, rows, kept, numbers, group, buffers, overlaps))
        return most + sum(aligned(tensor.size) for tensor in held)

    def fewest_tiles(
        self,
        first: int,
        last: int,
        limit: int,
        resident_in: bool,
        resident_out: bool,
        resident_weights: bool,
        seams: bool = False,
        buffers: int = 2,
    ) -> int | None:
        """The fewest tiles that fit: the more there are, the less memory they take."""
        if self._constants_at_once(first, last, resident_weights) > self.room(first, last):
            return None
        counts = self._tile_counts(first, last, limit)

        def fits(count: int) -> bool:
            need = self.tiled_memory(
                first, last, count, resident_in, resident_out, resident_weights, seams, buffers
            )
            return need <= self.room(first, last)

        if not counts or not fits(counts[-1]):
            return None
        return counts[bisect_left(counts, True, key=fits)]

    def can_cut(self, first: int, last: int, tiles: int) -> bool:
        """Whether a group can be cut into so many tiles."""
        return self.numbered_rows(first, last, tiles, tiles // 2) is not None

    def _tile_counts(self, first: int, last: int, limit: int) -> list[int]:
        """Into how many tiles a group may be cut."""
        key = (first, last, limit)
        if key not in self._counts:
            # The last resort is a row at a time, of the tallest result or of one of the others.
            rows = {layer.outputs[0].rows for layer in self.network.layers[first:last]}
            counts = sorted({*(count for count in TILES if count <= limit), *rows} - {0, 1})
            while counts and not self.can_cut(first, last, counts[-1]):
                counts.pop()
            self._counts[key] = counts
        return self._counts[key]

    def tile_sums(self, first: int, last: int, tiles: int, seams: bool = False) -> tuple[float, float]:
        """Cycles of the engines over all tiles, and bytes of operands loaded for them."""
        key, known = (first, last, tiles, seams), self.memo.sums
        if key not in known:
            known[key] = self._seam_sums(*key[:3]) if seams else self._tile_sums(*key[:3])
        return known[key]

    def _tile_sums(self, first: int, last: int, tiles: int) -> tuple[float, float]:
        cycles = loaded = 0.0
        network = self.numbers
        for tile, weight in (
            ((0, 1), (tiles // 2, tiles - 2), (tiles - 1, 1)) if tiles > 2 else ((0, 1), (1, 1))
        ):
            rows = self.numbered_rows(first, last, tiles, tile)
            assert rows is not None
            for index, form in enumerate(network.layers[first:last], first):
                assert form is not None
                layer = self.network.layers[index]
                if index in self.turns:
                    continue
                cycles += weight * self.tiler.cycles(layer, rows[form.result])
            for number, (low, high) in rows.items():
                if network.producers[number] < first:
                    loaded += weight * (high - low) * network.row_sizes[number]
        return cycles, loaded

    def _seam_sums(self, first: int, last: int, tiles: int) -> tuple[float, float]:
        """The same with seams that are kept: each row once, and two copies of each seam."""
        cycles = loaded = 0.0
        lanes = self.tiler.costs.target.compute.vector_lanes
        network = self.numbers
        begin, middle, end = (
            self.numbered_rows(first, last, tiles, tile) for tile in (0, tiles // 2, tiles - 1)
        )
        assert begin is not None and middle is not None and end is not None
        for layer, form in zip(self.network.layers[first:last], network.layers[first:last], strict=True):
            assert form is not None
            cycles += self._in_tiles(layer, end[form.result][1] - begin[form.result][0], tiles)
        for number, (low, _) in begin.items():
            if network.producers[number] < first:
                loaded += (end[number][1] - low) * network.row_sizes[number]
        for number, (low, high) in self._numbered_seam(first, last, tiles, max(tiles // 2 - 1, 0)).items():
            if (low, high) != middle[number]:
                tensor = network.tensors[number]
                elements = (high - low) * tensor.row_size // tensor.itemsize
                cycles += 2 * (tiles - 1) * (START + ceil_div(elements, lanes))
        return cycles, loaded

    def _in_tiles(self, layer: Layer, rows: int, tiles: int) -> float:
        """Cycles of a layer that is cut into tiles of about the same number of rows."""
        step = layer.granule
        few = rows // tiles // step * step
        more = min(few + step, rows)
        part = (rows / tiles - few) / (more - few) if more > few else 0.0
        cycles = (1 - part) * self.tiler.cycles(layer, (0, few)) if few and part < 1 else 0.0
        return tiles * (cycles + (part * self.tiler.cycles(layer, (0, more)) if part else 0.0))


def _tallest(rows: int, tiles: int) -> int:
    """A tile in the middle with as many rows as any."""
    near, most = range(tiles // 2 if tiles > 2 else 0, tiles), ceil_div(rows, tiles)
    return next(tile for tile in near if rows * (tile + 1) // tiles - rows * tile // tiles == most)
