"""Tiles that are some columns and some channels of their rows, where a user states them in a schedule file.

A tile of a group is then a block of its results: rows as in `tiles.py`, times a region. From the last layer to the first, each
layer asks the one before for the columns and channels that its own need. Operands come from DRAM by strided loads, lie densely in
local memory, and results go back by strided stores; so each layer of a tile is a small layer of its own (`LayerOp.part`), with
the weights of its channels and padding only where the image ends.

Example: a convolution of 3 x 3 with padding 1 over 8 columns, from 16 channels to 32, then a ReLU, in two tiles of columns and
two of channels. The ReLU works channel by channel, the convolution needs all channels of the input:

    tile    result of the ReLU             of the convolution             input
    0       columns 0 to 4, 0 to 16        columns 0 to 4, 0 to 16        columns 0 to 5, 0 to 16
    1       columns 4 to 8, 0 to 16        columns 4 to 8, 0 to 16        columns 3 to 8, 0 to 16
    2, 3    the same columns, 16 to 32     the same columns, 16 to 32     the same once more

Channels are the outermost loop, so that weights come once; the input of a tile stays for the next if that needs the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from npuc.arrays import ceil_div
from npuc.schedule.decisions import Group
from npuc.schedule.layers import Layer, NotCut, Region, Rows, Tensor, aligned
from npuc.schedule.moves import Block
from npuc.schedule.tiles import Tiles
from npuc.words import counted


@dataclass(frozen=True)
class Operand:
    """What a layer of a tile reads: a tensor inside or outside of the group, and which part of it."""

    tensor: Tensor
    rows: Rows
    region: Region

    @property
    def size(self) -> int:
        """Bytes, where it lies densely."""
        return (self.rows[1] - self.rows[0]) * self.tensor.part(self.region).row_size


@dataclass(frozen=True)
class TileLayer:
    """A layer of a tile."""

    layer: Layer
    """The part of the layer, whose tensors are parts too."""
    operands: tuple[Operand, ...]
    result: Operand
    """What it computes."""
    leaves: Operand | None
    """What of that goes to DRAM, if its tensor is read behind the group."""

    def constant_cuts(self, cuts: list[Rows]) -> list[tuple[Rows, Rows]]:
        """Ranges of channels of the part, each with the channels of the whole layer whose constants it needs."""
        first = self.result.region.channels[0]
        if not self.layer.channels:
            return [
                (
                    (0, self.layer.outputs[0].channels),
                    self.layer.op.constant_channels(self.result.region.channels),
                )
            ]
        return [((low, high), (first + low, first + high)) for low, high in cuts]


def region_tile(tiles: Tiles, group: Group, number: int) -> list[TileLayer]:
    """The layers of one tile of a group, from the first to the last; `NotCut` with the whole reason if it cannot be cut."""
    channel, rest = divmod(number, group.tiles * group.column_tiles)
    row, column = divmod(rest, group.column_tiles)
    layers = tiles.network.layers
    rows = _rows(tiles, group, row)
    lanes = tiles.tiler.costs.target.compute.array.output_channels
    regions: dict[Tensor, Region] = {}
    cut: list[TileLayer] = []
    for index in range(group.last - 1, group.first - 1, -1):
        layer = layers[index]
        y = layer.outputs[0]
        own = None
        if tiles.last_use[y] >= group.last:
            own = Region(
                _share(y.columns, group.column_tiles, column, y, "column"),
                _share(y.channels, group.channel_tiles, channel, y, "channel", lanes),
            )
        region = regions.get(y, own)
        if region is None:
            raise NotCut(f"layer '{layer.name}' has a result that nothing reads")
        if own is not None and own.union(region) != region:
            raise NotCut(
                f"layer '{y.name}' has a result of which a tile needs another part inside the group than behind it"
            )
        try:
            needs = layer.op.operand_regions(region)
        except NotCut as error:
            raise NotCut(f"layer '{layer.name}' ({layer.kind}) {error}") from error
        operands = []
        for tensor, need in zip(layer.inputs, needs, strict=True):
            storage = tensor.storage
            if tensor.view_of is not None:
                raise NotCut(f"layer '{layer.name}' reads '{storage.name}' under another shape")
            if tiles.producers[storage] >= group.first:
                _check_inside(layer, storage, need, regions.get(storage), group)
                regions[storage] = need
            operands.append(Operand(storage, rows[storage], need))
        result = Operand(y, rows[y], region)
        leaves = None
        if own is not None:
            leaves = Operand(y, (y.rows * row // group.tiles, y.rows * (row + 1) // group.tiles), own)
        cut.append(TileLayer(_part(layer, result, operands), tuple(operands), result, leaves))
    return cut[::-1]


def _check_inside(layer: Layer, storage: Tensor, need: Region, other: Region | None, group: Group) -> None:
    """Whether a layer of a group can read a result of the group part by part."""
    if other is not None and other != need:
        raise NotCut(
            f"layer '{layer.name}' needs other columns or channels of '{storage.name}' than a layer behind it"
        )
    if group.channel_tiles > 1 and need.channels == storage.region.channels:
        raise NotCut(
            f"layer '{layer.name}' needs all channels of '{storage.name}', and every tile of channels would make them again"
        )


def _rows(tiles: Tiles, group: Group, row: int) -> Mapping[Tensor, Rows]:
    """The rows of every tensor of a group that a tile computes or reads."""
    layers = tiles.network.layers[group.first : group.last]
    for layer in layers:
        if len(layer.outputs) != 1:
            raise NotCut(f"layer '{layer.name}' ({layer.kind}) has several results")
        if group.tiles > 1 and not layer.by_rows:
            raise NotCut(f"layer '{layer.name}' ({layer.kind}) cannot be cut into tiles of rows")
    if group.tiles == 1:
        touched = {tensor.storage for layer in layers for tensor in (*layer.inputs, *layer.outputs)}
        return {tensor: (0, tensor.rows) for tensor in touched}
    rows = tiles.tile_rows(group.first, group.last, group.tiles, row)
    if rows is None:
        raise NotCut("a layer reads a result of the group as a whole, or one that leaves it has too few rows")
    return rows


def _share(size: int, tiles: int, tile: int, y: Tensor, what: str, lanes: int = 1) -> Rows:
    """The columns or channels of a result that are a tile's own: whole rows of the array's lanes, where there are enough."""
    if size < tiles:
        raise NotCut(f"the result of '{y.name}' has {counted(size, what)}")
    units = ceil_div(size, lanes)
    if units < tiles:
        units, lanes = size, 1
    low, high = (lanes * (units * part // tiles) for part in (tile, tile + 1))
    return low, min(high, size)


def _part(layer: Layer, result: Operand, operands: list[Operand]) -> Layer:
    """A layer that computes some columns and channels of another."""
    return replace(
        layer,
        inputs=tuple(operand.tensor.part(operand.region) for operand in operands),
        outputs=(result.tensor.part(result.region),),
        op=layer.op.part(result.region),
        channels=result.region.channels[1] - result.region.channels[0] if layer.channels else 0,
        by_inputs=None,
    )


def region_memory(tiles: Tiles, group: Group) -> int:
    """Bytes that the largest tile of a group needs, with the operands of the next on their way; `NotCut` as above."""
    numbers = range(group.tile_count)
    return max(region_memory_of(tiles, group, region_tile(tiles, group, number)) for number in numbers)


def region_memory_of(tiles: Tiles, group: Group, cut: list[TileLayer]) -> int:
    """The same for one tile."""
    inside = {entry.result.tensor for entry in cut}
    loaded = {operand for entry in cut for operand in entry.operands if operand.tensor not in inside}
    last_reader = {operand.tensor: at for at, entry in enumerate(cut) for operand in entry.operands}
    now = sum(2 * aligned(operand.size) for operand in loaded)
    most = 0
    for at, entry in enumerate(cut):
        now += aligned(entry.result.size)
        most = max(most, now + entry.layer.scratch(entry.result.rows))
        for tensor in {operand.tensor for operand in entry.operands if operand.tensor in inside}:
            if last_reader[tensor] == at:
                now -= next(aligned(other.result.size) for other in cut if other.result.tensor == tensor)
    layers = [entry.layer for entry in cut]
    if group.resident_weights:
        return most + sum(layer.constant_size((0, layer.channels)) for layer in layers)
    return most + 2 * max(map(tiles.chunks, layers))


@dataclass(frozen=True)
class Span:
    """A part of a tensor in DRAM and in a buffer that holds a part of the tensor."""

    at: int
    """Its first byte in the tensor."""
    offset: int
    """Its first byte in the buffer."""
    size: int
    """Bytes of the buffer from the first to the last."""
    block: Block | None
    """How it is spread, if it is not dense on both sides."""


def span_of(moved: Operand, held: Operand) -> Span:
    """Where a part of a tensor lies in DRAM, and in the buffer of a part that holds it."""
    tensor, small = moved.tensor, held.tensor.part(held.region)
    item, run = tensor.itemsize, moved.region.channels[1] - moved.region.channels[0]
    rows, columns = (high - low for low, high in (moved.rows, moved.region.columns))
    far, near = ((t.row_size, t.channels * item) for t in (tensor, small))

    def first(strides: tuple[int, int], origin: tuple[int, int, int]) -> int:
        down = (moved.rows[0] - origin[0]) * strides[0]
        right = (moved.region.columns[0] - origin[1]) * strides[1]
        return down + right + (moved.region.channels[0] - origin[2]) * item

    at = first(far, (0, 0, 0))
    offset = first(near, (held.rows[0], held.region.columns[0], held.region.channels[0]))
    size = (rows - 1) * near[0] + (columns - 1) * near[1] + run * item
    if (far, near) == ((columns * run * item, run * item),) * 2:
        return Span(at, offset, size, None)
    block = Block((1, rows, columns, run * item), (0, *far), (0, *near))
    if far[1] == near[1] == run * item:
        block = Block((1, 1, rows, columns * run * item), (0, 0, far[0]), (0, 0, near[0]))
    return Span(at, offset, size, block)
