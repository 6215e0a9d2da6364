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

Where seams are kept, rows 3 and 4 of the first convolution's result and rows 2 to 5 of the input are copied aside when the first
tile has read them last, and to the beginning of the second tile's: that makes and loads only what is new. All seams of a group
take memory all the time.
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
from npuc.schedule.numbered import NumberedNetwork, TileMemo, memory_of_tile, numbered, rows_of_tile
from npuc.schedule.tiler import Tiler

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
    memo: TileMemo = field(default_factory=TileMemo, kw_only=True)
    """Shared by the searches of a network."""
    _sizes: dict[Layer, int] = field(default_factory=dict, init=False)
    _pairs: dict[Layer, int] = field(default_factory=dict, init=False)
    _counts: dict[tuple[int, int, int], list[int]] = field(default_factory=dict, init=False)

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
        total = self.constants_of(layer)
        cuts = self.tiler.channel_cuts(layer)
        if len(cuts) == 1:
            return total
        return min(total, 2 * layer.constant_size(cuts[0]))

    @cached_property
    def numbers(self) -> NumberedNetwork:
        """The network by numbers, for loops."""
        if not self.memo.numbers:
            self.memo.numbers.append(numbered(self))
        return self.memo.numbers[0]

    @cached_property
    def _constant_sums(self) -> list[int]:
        """For each layer, the bytes of constants of all before it."""
        return [0, *accumulate(map(self.constants_of, self.network.layers))]

    @cached_property
    def _layer_chunks(self) -> list[int]:
        return list(map(self.chunks, self.network.layers))

    def tile_rows(self, first: int, last: int, tiles: int, tile: int) -> dict[Tensor, Rows] | None:
        """The rows of every tensor of a group that one tile computes or reads; None if it cannot be cut."""
        return self._named(self.numbered_rows(first, last, tiles, tile))

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

    def _numbered_seam(self, first: int, last: int, tiles: int, tile: int) -> dict[int, Rows]:
        if tile + 1 >= tiles:
            return {}
        rows, following = (self.numbered_rows(first, last, tiles, number) for number in (tile, tile + 1))
        assert rows is not None and following is not None
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
        sums = self._constant_sums
        constants = sums[last] - sums[first] if resident_weights else 2 * max(self._layer_chunks[first:last])
        return constants + known[key]

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
        rows = self.numbered_rows(first, last, tiles, tallest)
        if rows is None or (
            seams and self.numbered_rows(first, last, tiles, min(tallest + 1, tiles - 1)) is None
        ):
            return inf
        held = {*(self.on_chip(first) if resident_in else ()), *(self.on_chip(last) if resident_out else ())}
        kept = self._numbered_seam(first, last, tiles, tallest) if seams else {}
        numbers = {self.numbers.numbers[tensor] for tensor in held}
        most = memory_of_tile(
            self.numbers, rows, kept, numbers, (first, last), buffers, seams and buffers > 1
        )
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
        counts = self._tile_counts(first, last, limit)

        def fits(count: int) -> bool:
            need = self.tiled_memory(
                first, last, count, resident_in, resident_out, resident_weights, seams, buffers
            )
            return need <= self.capacity

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
            for layer, form in zip(self.network.layers[first:last], network.layers[first:last], strict=True):
                assert form is not None
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
        for tile, weight in (
            ((0, 1), (tiles // 2, tiles - 2), (tiles - 1, 1)) if tiles > 2 else ((0, 1), (1, 1))
        ):
            rows = self.numbered_rows(first, last, tiles, tile)
            assert rows is not None
            kept = self._numbered_seam(first, last, tiles, tile - 1) if tile else {}
            for layer, form in zip(self.network.layers[first:last], network.layers[first:last], strict=True):
                assert form is not None
                y = form.result
                low, high = rows[y]
                low = max(low, kept[y][1]) if y in kept else low
                if low < high:
                    cycles += weight * self.tiler.cycles(layer, self.tiler.expanded(layer, (low, high)))
            for number, (low, high) in rows.items():
                if network.producers[number] < first:
                    low = max(low, kept[number][1]) if number in kept else low
                    loaded += weight * (high - low) * network.row_sizes[number]
            for number, (low, high) in kept.items():
                if (low, high) != rows[number]:
                    tensor = network.tensors[number]
                    elements = (high - low) * tensor.row_size // tensor.itemsize
                    cycles += 2 * weight * (START + ceil_div(elements, lanes))
        return cycles, loaded


def _tallest(rows: int, tiles: int) -> int:
    """A tile in the middle with as many rows as any."""
    near, most = range(tiles // 2 if tiles > 2 else 0, tiles), ceil_div(rows, tiles)
    return next(tile for tile in near if rows * (tile + 1) // tiles - rows * tile // tiles == most)
