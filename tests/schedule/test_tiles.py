"""The rows and the memory of tiles, which the search works out by numbers, against the same by records on random networks."""

from __future__ import annotations

import pytest

from npuc.flow import quantize_network
from npuc.partition import partition
from npuc.schedule.cost import Costs
from npuc.schedule.grouping import Grouping
from npuc.schedule.layers import Rows, Tensor, aligned
from npuc.schedule.network import Network, build_network
from npuc.schedule.tiler import Tiler
from npuc.target import Target, load_target
from support.networks import backend

SEEDS = range(12)
CUT: dict[int, int] = {}


def _network(seed: int, target: Target) -> Network | None:
    graph, ranges = backend.network(seed, most_steps=16)
    integers = quantize_network(graph, ranges, target=target).graph
    part = next((one for one in partition(integers, target).parts if one.device == "npu"), None)
    return None if part is None else build_network(integers, part.ops, part.inputs, part.outputs)


def _rows(grouping: Grouping, first: int, last: int, tiles: int, tile: int) -> dict[Tensor, Rows] | None:
    """What a tile needs, asked from the last layer to the first, with nothing remembered or numbered."""
    needed: dict[Tensor, set[int]] = {}
    for index in reversed(range(first, last)):
        layer = grouping.network.layers[index]
        y = layer.outputs[0]
        own = set(needed.get(y, ()))
        if not layer.by_rows or len(layer.outputs) > 1:
            return None
        if grouping.last_use[y] >= last:
            if y.rows < tiles:
                return None
            own |= set(range(y.rows * tile // tiles, y.rows * (tile + 1) // tiles))
        if not own:
            return None
        step = layer.granule
        low, high = min(own) // step * step, min(-(-(max(own) + 1) // step) * step, y.rows)
        needed[y] = set(range(low, high))
        for (begin, end), tensor in zip(layer.op.operand_rows((low, high)), layer.inputs, strict=True):
            storage = tensor.storage
            if storage.rows == 1 or tensor.view_of is not None:
                if grouping.producers[storage] >= first:
                    return None
                begin, end = 0, storage.rows
            needed.setdefault(storage, set()).update(range(begin, end))
    return {tensor: (min(rows), max(rows) + 1) for tensor, rows in needed.items()}


def _memory(grouping: Grouping, first: int, last: int, rows: dict[Tensor, Rows]) -> int:
    """The most bytes of tensors at a time, two tiles' operands among them, by looking at every layer anew."""
    size = {tensor: aligned((high - low) * tensor.row_size) for tensor, (low, high) in rows.items()}
    outside = sum(2 * size[tensor] for tensor in rows if grouping.producers[tensor] < first)
    most = 0
    for index in range(first, last):
        alive = [
            tensor
            for tensor in rows
            if first <= grouping.producers[tensor] <= index and grouping.last_use[tensor] >= index
        ]
        scratch = grouping.network.layers[index].scratch(rows[grouping.network.layers[index].outputs[0]])
        most = max(most, outside + sum(size[tensor] for tensor in alive) + scratch)
    return most


@pytest.mark.parametrize("seed", SEEDS)
def test_tiles_by_number_are_those_by_record(seed: int) -> None:
    target = load_target("edge-4t")
    network = _network(seed, target)
    if network is None:
        return
    grouping = Grouping(network, Tiler(Costs(target)), 1 << 20)
    cut = 0
    for first in range(len(network.layers)):
        for last in range(first + 1, min(first + 6, len(network.layers)) + 1):
            for tiles in (2, 3, 5):
                middle = tiles // 2 if tiles > 2 else 0
                for tile in {0, middle, tiles - 1}:
                    expected = _rows(grouping, first, last, tiles, tile)
                    assert grouping.tile_rows(first, last, tiles, tile) == expected
                if expected is None:
                    continue
                cut += 1
                tallest = max(
                    range(middle, tiles),
                    key=lambda tile: (_own_rows(network, last, tiles, tile), -tile),
                )
                rows = _rows(grouping, first, last, tiles, tallest)
                assert rows is not None
                chunks = 2 * max(map(grouping.block, network.layers[first:last]))
                need = grouping.tiled_memory(first, last, tiles, False, False, False)
                assert need == chunks + _memory(grouping, first, last, rows)
    CUT[seed] = cut


def test_enough_of_them_were_cut() -> None:
    """Runs after those above."""
    assert sum(CUT.values()) > 100 or len(CUT) < len(SEEDS)


def _own_rows(network: Network, last: int, tiles: int, tile: int) -> int:
    rows = network.layers[last - 1].outputs[0].rows
    return rows * (tile + 1) // tiles - rows * tile // tiles
