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
from math import inf

from npuc.arrays import ceil_div
from npuc.schedule.cost import START
from npuc.schedule.layers import Layer, Rows, Tensor, aligned
from npuc.schedule.lifetimes import Lifetimes
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
    _sizes: dict[Layer, int] = field(default_factory=dict, init=False)
    _pairs: dict[Layer, int] = field(default_factory=dict, init=False)
    _rows: dict[tuple[int, int, int, int], dict[Tensor, Rows] | None] = field(
        default_factory=dict, init=False
    )
    _tensors: dict[tuple[int, int, int, bool, bool, bool, int], float] = field(
        default_factory=dict, init=False
    )

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

    def tile_rows(self, first: int, last: int, tiles: int, tile: int) -> dict[Tensor, Rows] | None:
        """The rows of every tensor of a group that one tile computes or reads; None if it cannot be cut."""
        key = (first, last, tiles, tile)
        if key not in self._rows:
            self._rows[key] = self._tile_rows(*key)
        return self._rows[key]

    def _tile_rows(self, first: int, last: int, tiles: int, tile: int) -> dict[Tensor, Rows] | None:
        layers = self.network.layers
        rows: dict[Tensor, Rows] = {}
        for index in range(last - 1, first - 1, -1):
            layer = layers[index]
            if not layer.by_rows or len(layer.outputs) != 1:
                return None
            y = layer.outputs[0]
            needed = rows.get(y)
            if self.last_use[y] >= last:
                if y.rows < tiles:
                    return None
                own = y.rows * tile // tiles, y.rows * (tile + 1) // tiles
                needed = own if needed is None else (min(own[0], needed[0]), max(own[1], needed[1]))
            if needed is None:
                return None
            needed = self.tiler.expanded(layer, needed)
            rows[y] = needed
            for need, tensor in zip(self.tiler.needs(layer, needed), layer.inputs, strict=True):
                storage = tensor.storage
                if storage.rows == 1 or tensor.view_of is not None:
                    if self.producers[storage] >= first:
                        return None
                    need = (0, storage.rows)
                before = rows.get(storage)
                rows[storage] = need if before is None else (min(before[0], need[0]), max(before[1], need[1]))
        return rows

    def seam(self, first: int, last: int, tiles: int, tile: int) -> dict[Tensor, Rows]:
        """The rows of a tile that the next one needs too, of tensors that are read in the group; none behind the last."""
        if tile + 1 >= tiles:
            return {}
        rows, following = (self.tile_rows(first, last, tiles, number) for number in (tile, tile + 1))
        assert rows is not None and following is not None
        shared = {tensor: (following[tensor][0], high) for tensor, (_, high) in rows.items()}
        return {
            tensor: (low, high)
            for tensor, (low, high) in shared.items()
            if low < high and any(first <= use < last for use in self.uses.get(tensor, ()))
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
        key = (first, last, tiles, resident_in, resident_out, seams, buffers)
        if key not in self._tensors:
            self._tensors[key] = self._tensor_memory(*key)
        layers = self.network.layers[first:last]
        constants = (
            sum(map(self.constants_of, layers)) if resident_weights else 2 * max(map(self.chunks, layers))
        )
        return constants + self._tensors[key]

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
        layers = self.network.layers
        tallest = _tallest(layers[last - 1].outputs[0].rows, tiles)
        rows = self.tile_rows(first, last, tiles, tallest)
        if rows is None or (
            seams and self.tile_rows(first, last, tiles, min(tallest + 1, tiles - 1)) is None
        ):
            return inf
        held = {*(self.on_chip(first) if resident_in else ()), *(self.on_chip(last) if resident_out else ())}
        live: dict[Tensor, int] = {}
        most = now = 0
        if seams:
            kept = self.seam(first, last, tiles, tallest).items()
            now = sum(
                aligned((high - low) * tensor.row_size) for tensor, (low, high) in kept if tensor not in held
            )
        for tensor, (low, high) in rows.items():
            if tensor not in held:
                live[tensor] = aligned((high - low) * tensor.row_size)
                if self.producers[tensor] < first:
                    now += buffers * live[tensor]  # the next tile's rows are on their way
        if seams and buffers > 1:
            # What the tile before leaves is on its way out while the first layer is at work.
            leaves = (y for y in live if self.producers[y] >= first and self.last_use[y] >= last)
            most = now + live.get(layers[first].outputs[0], 0) + sum(live[y] for y in leaves)
        for index in range(first, last):
            layer = layers[index]
            now += live.get(layer.outputs[0], 0)
            most = max(most, now + layer.scratch(rows[layer.outputs[0]]))
            for tensor in {tensor.storage for tensor in layer.inputs}:
                if tensor in live and self.dies(tensor, index) and self.producers[tensor] >= first:
                    now -= live[tensor]
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
        # The last resort is a row at a time, of the tallest result or of one of the others.
        rows = {layer.outputs[0].rows for layer in self.network.layers[first:last]}
        counts = sorted({*(count for count in TILES if count <= limit), *rows} - {0, 1})

        def fits(count: int) -> bool:
            need = self.tiled_memory(
                first, last, count, resident_in, resident_out, resident_weights, seams, buffers
            )
            return need <= self.capacity

        while counts and self.tile_rows(first, last, counts[-1], counts[-1] // 2) is None:
            counts.pop()
        if not counts or not fits(counts[-1]):
            return None
        return counts[bisect_left(counts, True, key=fits)]

    def tile_sums(self, first: int, last: int, tiles: int, seams: bool = False) -> tuple[float, float]:
        """Cycles of the engines over all tiles, and bytes of operands loaded for them."""
        if seams:
            return self._seam_sums(first, last, tiles)
        cycles = loaded = 0.0
        for tile, weight in (
            ((0, 1), (tiles // 2, tiles - 2), (tiles - 1, 1)) if tiles > 2 else ((0, 1), (1, 1))
        ):
            rows = self.tile_rows(first, last, tiles, tile)
            assert rows is not None
            for index in range(first, last):
                layer = self.network.layers[index]
                cycles += weight * self.tiler.cycles(layer, rows[layer.outputs[0]])
            for tensor, (low, high) in rows.items():
                if self.producers[tensor] < first:
                    loaded += weight * (high - low) * tensor.row_size
        return cycles, loaded

    def _seam_sums(self, first: int, last: int, tiles: int) -> tuple[float, float]:
        """The same with seams that are kept: each row once, and two copies of each seam."""
        cycles = loaded = 0.0
        lanes = self.tiler.costs.target.compute.vector_lanes
        for tile, weight in (
            ((0, 1), (tiles // 2, tiles - 2), (tiles - 1, 1)) if tiles > 2 else ((0, 1), (1, 1))
        ):
            rows = self.tile_rows(first, last, tiles, tile)
            assert rows is not None
            kept = self.seam(first, last, tiles, tile - 1) if tile else {}
            for index in range(first, last):
                layer = self.network.layers[index]
                y = layer.outputs[0]
                low, high = rows[y]
                low = max(low, kept[y][1]) if y in kept else low
                if low < high:
                    cycles += weight * self.tiler.cycles(layer, self.tiler.expanded(layer, (low, high)))
            for tensor, (low, high) in rows.items():
                if self.producers[tensor] < first:
                    low = max(low, kept[tensor][1]) if tensor in kept else low
                    loaded += weight * (high - low) * tensor.row_size
            for tensor, (low, high) in kept.items():
                if (low, high) != rows[tensor]:
                    elements = (high - low) * tensor.row_size // tensor.itemsize
                    cycles += 2 * weight * (START + ceil_div(elements, lanes))
        return cycles, loaded


def _tallest(rows: int, tiles: int) -> int:
    """A tile in the middle with as many rows as any."""
    near, most = range(tiles // 2 if tiles > 2 else 0, tiles), ceil_div(rows, tiles)
    return next(tile for tile in near if rows * (tile + 1) // tiles - rows * tile // tiles == most)
