"""The layers and tensors of a network by number, for the loops of the search.

A search asks a million times which rows of which tensors a tile needs. Tensors are numbered once for that, and all that
the loops ask of them lies in lists: a number costs nothing to look up, and a record has to be hashed by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from npuc.schedule.layers import BLOCK, LayerOp, Rows, Tensor
from npuc.schedule.lifetimes import Lifetimes
from npuc.schedule.turns import rows_in_one


class Operand(NamedTuple):
    """An operand of a layer."""

    number: int
    """Of its storage."""
    whole: Rows | None
    """All rows of the storage, if no tile can do with some of them."""
    producer: int
    """The layer that makes it; -1 for inputs."""


class NumberedLayer(NamedTuple):
    """A layer that can be cut by rows."""

    result: int
    rows: int
    """Of the result."""
    granule: int
    last_use: int
    """The last layer that reads the result."""
    operand_rows: Callable[[Rows], tuple[Rows, ...]]
    operands: tuple[Operand, ...]
    last_reads: tuple[tuple[int, int], ...]
    """Storages that nothing needs after this layer, and the layer that makes each; inputs are not among them."""
    scratch: Callable[[Rows], int] | None
    """None if it needs none."""


@dataclass(frozen=True)
class NumberedNetwork:
    """The tensors and layers of a network in lists, each at its number."""

    tensors: list[Tensor]
    numbers: dict[Tensor, int]
    row_sizes: list[int]
    producers: list[int]
    last_uses: list[int]
    uses: list[list[int]]
    layers: list[NumberedLayer | None]
    """None for a layer that cannot be cut by rows."""


@dataclass
class TileMemo:
    """What searches of one network on one machine have found out about tiles, whatever else they choose."""

    rows: dict[tuple[int, int, int, int], dict[int, Rows] | None] = field(default_factory=dict)
    """Group, tiles and tile: the rows of its tensors."""
    rows_behind_seams: dict[tuple[int, int, int, int], dict[int, Rows]] = field(default_factory=dict)
    """The same, of tiles that begin with what the tile before kept."""
    memory: dict[tuple[int, ...], float] = field(default_factory=dict)
    """Bytes of tensors."""
    sums: dict[tuple[int, int, int, bool], tuple[float, float]] = field(default_factory=dict)
    """Group, tiles, and whether seams are kept: cycles, and bytes loaded."""
    numbers: list[NumberedNetwork] = field(default_factory=list)
    """The network itself, once it is numbered."""


def numbered(lifetimes: Lifetimes, turns: Collection[int] = ()) -> NumberedNetwork:
    """A network by numbers; the layers `turns` are done by the loads of their groups, so that their results come from outside."""
    producers = {tensor: -1 if index in turns else index for tensor, index in lifetimes.producers.items()}
    tensors = list(lifetimes.producers)
    numbers = {tensor: number for number, tensor in enumerate(tensors)}
    layers: list[NumberedLayer | None] = []
    for index, layer in enumerate(lifetimes.network.layers):
        if index in turns:
            y = layer.outputs[0]
            layers.append(
                NumberedLayer(numbers[y], y.rows, 1, lifetimes.last_use[y], lambda _: (), (), (), None)
            )
            continue
        if not layer.by_rows or len(layer.outputs) != 1:
            layers.append(None)
            continue
        y = layer.outputs[0]
        operands, last_reads, factors = [], {}, []
        for tensor in layer.inputs:
            storage = tensor.storage
            number, producer = numbers[storage], producers[storage]
            turned = lifetimes.producers[storage] in turns
            factors.append(rows_in_one(tensor) if turned else int(tensor.view_of is None))
            whole = storage.rows == 1 or not factors[-1]
            operands.append(Operand(number, (0, storage.rows) if whole else None, producer))
            if lifetimes.dies(storage, index):
                last_reads[number] = producer
        scratch = None if type(layer.op).scratch is LayerOp.scratch else layer.op.scratch
        layers.append(
            NumberedLayer(
                numbers[y],
                y.rows,
                layer.granule,
                lifetimes.last_use[y],
                _in_storage(layer.operand_rows, factors),
                tuple(operands),
                tuple(last_reads.items()),
                scratch,
            )
        )
    return NumberedNetwork(
        tensors,
        numbers,
        [tensor.row_size for tensor in tensors],
        [producers[tensor] for tensor in tensors],
        [lifetimes.last_use[tensor] for tensor in tensors],
        [lifetimes.uses.get(tensor, []) for tensor in tensors],
        layers,
    )


def _in_storage(
    operand_rows: Callable[[Rows], tuple[Rows, ...]], factors: list[int]
) -> Callable[[Rows], tuple[Rows, ...]]:
    """The same in rows of the storage of each operand, of which a row of the operand is so many."""
    if all(factor < 2 for factor in factors):
        return operand_rows

    def scaled(rows: Rows) -> tuple[Rows, ...]:
        needs = zip(operand_rows(rows), factors, strict=True)
        return tuple((low * (factor or 1), high * (factor or 1)) for (low, high), factor in needs)

    return scaled


def rows_of_tile(
    layers: list[NumberedLayer | None], first: int, last: int, tiles: int, tile: int
) -> dict[int, Rows] | None:
    """The rows of every tensor of a group that one tile computes or reads; None if it cannot be cut."""
    rows: dict[int, Rows] = {}
    for index in range(last - 1, first - 1, -1):
        layer = layers[index]
        if layer is None:
            return None
        y, y_rows, granule, last_use, operand_rows, operands, _, _ = layer
        needed = rows.get(y)
        if last_use >= last:
            if y_rows < tiles:
                return None
            low, high = y_rows * tile // tiles, y_rows * (tile + 1) // tiles
            if needed is not None:
                low, high = min(low, needed[0]), max(high, needed[1])
        elif needed is None:
            return None
        else:
            low, high = needed
        # Whole granules.
        needed = low // granule * granule, min(-(-high // granule) * granule, y_rows)
        rows[y] = needed
        for need, (number, whole, producer) in zip(operand_rows(needed), operands, strict=True):
            if whole is not None:
                if producer >= first:
                    return None
                need = whole
            before = rows.get(number)
            if before is not None:
                need = min(before[0], need[0]), max(before[1], need[1])
            rows[number] = need
    return rows


def rows_behind_seam(
    layers: list[NumberedLayer | None],
    first: int,
    last: int,
    before: dict[int, Rows],
    rows: dict[int, Rows],
) -> dict[int, Rows]:
    """The rows of every tensor that a tile has in memory if the tile before kept its seam.

    `before` and `rows` are what the two need on their own. How far each result is made follows from them; a tile begins where
    the one before ended, and needs of its operands what the rows that it makes need, and no others.
    """
    lowest: dict[int, int] = {}
    kept: dict[int, Rows] = {}
    for index in range(last - 1, first - 1, -1):
        layer = layers[index]
        assert layer is not None
        y, y_rows, granule, last_use, operand_rows, operands, _, _ = layer
        begin, end = before[y][1], rows[y][1]
        low = lowest.get(y, y_rows)
        if last_use < last and low > begin:  # nobody needs the rows between
            begin = min(low // granule * granule, end)
        kept[y] = min(low, begin), end
        if begin >= y_rows:
            continue
        # A tile that makes nothing keeps what the first row of the next needs.
        needs = operand_rows((begin, max(end, min(begin + granule, y_rows))))
        for (need, _), (number, whole, _) in zip(needs, operands, strict=True):
            need = need if whole is None else 0
            lowest[number] = min(lowest.get(number, need), need)
    for number, (_, high) in rows.items():
        if number not in kept:
            kept[number] = min(lowest.get(number, high), high), high
    return kept


def memory_of_tile(
    network: NumberedNetwork,
    rows: dict[int, Rows],
    kept: dict[int, Rows],
    held: set[int],
    group: tuple[int, int],
    buffers: int,
    overlaps: bool,
) -> int:
    """The most bytes of tensors that are not `held` in local memory while a tile with these rows is at work.

    `kept` are rows that stay for the next tile, `buffers` the tiles whose operands are there at a time. With `overlaps`,
    what the tile before leaves is on its way out while the first layer is at work.
    """
    first, last = group
    row_sizes, producers, layers = network.row_sizes, network.producers, network.layers
    now = 0
    for number, (low, high) in kept.items():
        if number not in held:
            now += -(-(high - low) * row_sizes[number] // BLOCK) * BLOCK
    live: dict[int, int] = {}
    for number, (low, high) in rows.items():
        if number not in held:
            size = -(-(high - low) * row_sizes[number] // BLOCK) * BLOCK
            live[number] = size
            if producers[number] < first:
                now += buffers * size  # the next tile's rows are on their way
    most = 0
    if overlaps:
        head = layers[first]
        assert head is not None
        most = now + live.get(head.result, 0)
        for number, size in live.items():
            if producers[number] >= first and network.last_uses[number] >= last:
                most += size
    for layer in layers[first:last]:
        assert layer is not None
        now += live.get(layer.result, 0)
        scratch = layer.scratch
        need = now if scratch is None else now + scratch(rows[layer.result])
        if need > most:
            most = need
        for number, producer in layer.last_reads:
            if producer >= first and number in live:
                now -= live[number]
    return most
