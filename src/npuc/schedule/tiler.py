"""How a layer is cut into tiles: by rows, so that engines overlap, and by output channels, so that weights stream.

Example: 512 output channels of 3 x 3 x 512 bytes of weights, 2.25 MiB, in blocks of at most 96 KiB: 24 parts would do, but on an
array of 16 output channels parts are multiples of 16. So tiles have 32 channels, 144 KiB of weights, and there are 16.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from npuc.arrays import ceil_div
from npuc.schedule.cost import Costs
from npuc.schedule.layers import Layer, Rows, Tile


@dataclass(frozen=True)
class Choices:
    """What the search may turn."""

    chunk: int = 96 * 1024
    """Bytes of constants that are loaded as one."""
    busy: int = 1500
    """Cycles that a tile of rows should keep an engine busy for."""
    most: int = 8
    """Tiles of rows at most."""
    seams: int = 1
    """2: groups may keep the rows at the seams of their tiles, and have the operands of one tile at a time only."""
    ahead: int = 1
    """Barriers that the constants of a group may be loaded ahead of, on several cores; 1: that before the group."""
    patience: int = 1000
    """Cycles that tensors behind a barrier may wait for constants that come ahead."""


@dataclass
class Tiler:
    """Cuts the layers of a network for one machine; remembers what it computed."""

    costs: Costs
    choices: Choices = field(default_factory=Choices)
    _cycles: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def whole(self, layer: Layer) -> Rows:
        """All rows of a result."""
        return 0, layer.outputs[0].rows

    def channel_cuts(self, layer: Layer) -> list[Rows]:
        """Ranges of output channels whose constants are loaded together."""
        if not layer.channels:
            return [(0, 0)]
        total = layer.constant_size((0, layer.channels))
        parts = ceil_div(total, self.choices.chunk)
        lanes = self.costs.target.compute.array.output_channels
        step = max(ceil_div(layer.channels, parts * lanes) * lanes, lanes) if parts > 1 else layer.channels
        return [(c, min(c + step, layer.channels)) for c in range(0, layer.channels, step)]

    def row_cuts(self, layer: Layer, rows: Rows, parts: int | None = None) -> list[Rows]:
        """Ranges of rows that are made one after the other."""
        count = rows[1] - rows[0]
        if not layer.by_rows or count < 2:
            return [rows]
        if parts is None:
            parts = min(self.choices.most, self.cycles(layer, rows) // self.choices.busy)
        unit = max(layer.granule, layer.matrix_rows)
        parts = max(1, min(parts, count // unit))
        if parts == 1:
            return [rows]
        height = ceil_div(count, parts)
        height = self._fitting(layer, height, count)
        height = ceil_div(height, unit) * unit
        return [(r, min(r + height, rows[1])) for r in range(rows[0], rows[1], height)]

    def _fitting(self, layer: Layer, height: int, count: int) -> int:
        """A number of rows near the wish whose pixels fill the array best."""
        if layer.outputs[0].shape[-1] == 0 or len(layer.outputs[0].shape) != 4:
            return height
        width, lanes = layer.outputs[0].shape[3], self.costs.target.compute.array.pixels

        def waste(rows: int) -> float:
            tiles, rest = divmod(count, rows)
            blocks = tiles * -(-rows * width // lanes) + -(-rest * width // lanes)
            return blocks * lanes / (count * width)

        near = range(max(1, height - height // 3), min(count, height + height // 3) + 1)
        return min(near, key=lambda rows: (round(waste(rows), 3), abs(rows - height)))

    def cycles(self, layer: Layer, rows: Rows) -> int:
        """Cycles of the engines for some rows and all channels."""
        key = (id(layer), rows[1] - rows[0], 0)
        if key not in self._cycles:
            tile = self.tile(layer, rows, (0, layer.channels))
            self._cycles[key] = sum(
                self.costs.cycles(template.instruction) for template in layer.templates(tile)
            )
        return self._cycles[key]

    def tile(self, layer: Layer, rows: Rows, channels: Rows) -> Tile:
        """A tile whose operands and result begin where it needs them."""
        needs = self.needs(layer, rows)
        return Tile(rows, channels, needs, rows)

    def needs(self, layer: Layer, rows: Rows) -> tuple[Rows, ...]:
        """The rows of the storage of each operand."""
        if not layer.by_rows:
            return tuple((0, tensor.storage.rows) for tensor in layer.inputs)
        return tuple(
            need if tensor.view_of is None else (0, tensor.storage.rows)
            for need, tensor in zip(layer.operand_rows(rows), layer.inputs, strict=True)
        )

    def expanded(self, layer: Layer, rows: Rows) -> Rows:
        """Whole granules."""
        g = layer.granule
        return rows[0] // g * g, min(ceil_div(rows[1], g) * g, layer.outputs[0].rows)
