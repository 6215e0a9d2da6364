"""Two lower bounds of the cycles of a network on a machine: what no schedule can beat.

*Roofline*: the longest of the matrix engine's cycles, the vector engine's, and the compulsory bytes (constants once, inputs,
outputs) over the bandwidth. *Buffered*: an ideal machine runs the layers in order, with nothing lost at starts and seams,
and its DMA runs ahead of the layer at work by as many bytes as local memory could hold. On a machine with a weight decoder,
the constants of a layer count as the codec stores them in one block; in tiles they may come to a little less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from npuc.program.instruction import TypedInstruction
from npuc.schedule.cost import Costs
from npuc.schedule.layers import Layer, Rows, Tensor
from npuc.schedule.network import Network
from npuc.schedule.tiler import Tiler
from npuc.target import Target


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of a network."""

    matrix: int
    """Cycles of the matrix engine, at the array's own fit."""
    vector: int
    bytes: int
    """Compulsory bytes; constants as they are in DRAM."""
    roofline: int
    buffered: int


def bounds(network: Network, target: Target, cores: int | None = None) -> Bounds:
    """The bounds of a network; `cores` share the work evenly."""
    cores = cores or target.compute.cores
    costs = Costs(target)
    tiler = Tiler(costs)
    rate = float(costs.bytes_per_cycle)
    capacity = int(target.memory.local.size) * cores
    inputs = sum(tensor.size for tensor in network.inputs)
    outputs = sum(tensor.size for tensor in network.outputs)
    matrix = vector = 0
    done = 0.0
    loaded = 0.0
    needed_bytes = float(inputs)
    released = 0.0
    total = inputs + outputs
    for layer, instructions in needed_work(network, tiler):
        work = {"matrix": 0, "vector": 0}
        for instruction in instructions:
            work[instruction.queue] += costs.work(instruction)
        matrix += work["matrix"]
        vector += work["vector"]
        size = layer.constant_size((0, layer.channels))
        if costs.decoder is not None:
            size = network.stored.size(layer, (0, layer.channels), costs.decoder_contexts)
        total += size
        needed_bytes += size
        # The two engines may work on parts of one layer at a time, and on neighbours; the longer one counts.
        spent = max(work.values()) / cores if work["matrix"] else 0.0
        end = max(done + spent, done + max(0.0, needed_bytes - loaded) / rate)
        loaded = max(loaded, min(loaded + rate * (end - done), max(released + capacity, needed_bytes)))
        done, released = end, needed_bytes
    roofline = max(matrix / cores, vector / cores, total / rate)
    return Bounds(matrix, vector, total, ceil(roofline), ceil(max(done, roofline)))


def needed_work(network: Network, tiler: Tiler) -> Iterator[tuple[Layer, list[TypedInstruction]]]:
    """The layers that some result depends on, each with the instructions that make its needed rows in one tile."""
    needed = _needed(network, tiler)
    for layer in network.layers:
        rows = needed.get(layer.outputs[0])
        if rows is not None:
            tile = tiler.tile(layer, rows, (0, layer.channels))
            yield layer, [template.instruction for template in layer.templates(tile)]


def _needed(network: Network, tiler: Tiler) -> dict[Tensor, Rows]:
    """The rows of every tensor that some result depends on: nobody has to compute the others."""
    rows_of = {tensor: (0, tensor.rows) for tensor in network.stored_results}
    for layer in reversed(network.layers):
        y = layer.outputs[0]
        results = [rows_of[tensor] for tensor in layer.outputs if tensor in rows_of]
        if not results:
            continue
        whole = not layer.by_rows or len(layer.outputs) > 1
        rows = tiler.whole(layer) if whole else tiler.expanded(layer, results[0])
        rows_of[y] = rows
        for need, tensor in zip(tiler.needs(layer, rows), layer.inputs, strict=True):
            before = rows_of.get(tensor.storage, need)
            rows_of[tensor.storage] = min(before[0], need[0]), max(before[1], need[1])
    return rows_of
