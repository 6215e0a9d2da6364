"""The lower bounds of `npuc.schedule.bounds` for many machines at once.

The work of a layer depends on the lanes of a machine, and the recurrence of the buffered bound on the rest: bandwidth, memory,
cores, a decoder. So instructions are made once a network, counted once for each kind of core, and the recurrence runs over all
machines of that kind as one array. The result is that of `bounds`, to the cycle.

Which layers run on the NPU is asked of the base machine. A machine with too little memory for a layer leaves it to the CPU, whose
time is an estimate and no bound; the search says so where it happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph
from npuc.partition import partition
from npuc.partition.work import LAUNCH, host_seconds, macs
from npuc.program.instruction import TypedInstruction
from npuc.schedule.bounds import needed_work
from npuc.schedule.cost import Costs
from npuc.schedule.network import Network, build_network
from npuc.schedule.tiler import Tiler
from npuc.target import Target

_TILED = 0.97
"""Compressed in tiles, constants may come to a little less than in one block, as which the bound counts them."""


@dataclass(frozen=True)
class _Subgraph:
    network: Network
    layers: tuple[tuple[TypedInstruction, ...], ...]
    constants: Array
    """Bytes of each layer's constants."""
    stored: Array
    """The same where a machine has a decoder."""


@dataclass(frozen=True)
class BoundedNetwork:
    """What the bounds of a network are made of."""

    subgraphs: tuple[_Subgraph, ...]
    host: float
    """Seconds of the CPU and of calls between it and the NPU."""
    macs: int


@dataclass(frozen=True)
class MachineFigures:
    """What bounds depend on beside the kind of core."""

    core: tuple[object, ...]
    """What decides the cycles of an instruction."""
    clock: float
    cores: int
    rate: float
    """Bytes of DRAM in a cycle."""
    local: int
    """Bytes of local memory, of one core."""
    has_decoder: bool


def figures_of(target: Target) -> MachineFigures:
    """The figures of a machine."""
    compute, costs = target.compute, Costs(target)
    array = compute.array
    rates = tuple((x, *sorted(by.items())) for x, by in sorted(array.rates.items()))
    core = (
        (array.input_channels, array.output_channels, array.pixels, array.depthwise),
        rates,
        compute.vector_lanes,
        compute.table_units,
    )
    return MachineFigures(
        core,
        float(compute.clock),
        compute.cores,
        float(costs.bytes_per_cycle),
        int(target.memory.local.size),
        costs.decoder is not None,
    )


def bounded(graph: Graph, base: Target, with_decoder: bool = True, contexts: int = 0) -> BoundedNetwork:
    """What is to be known of an integer network; sizes of compressed constants only where a machine has a decoder, with as
    many contexts as any machine has: fewer make them no smaller."""
    tiler = Tiler(Costs(base))
    subgraphs: list[_Subgraph] = []
    parts = partition(graph, base).parts
    for part in parts:
        if part.device != "npu":
            continue
        network = build_network(graph, part.ops, part.inputs, part.outputs, target=base)
        work = list(needed_work(network, tiler))
        whole = [(layer, (0, layer.channels)) for layer, _ in work]
        subgraphs.append(
            _Subgraph(
                network,
                tuple(tuple(instructions) for _, instructions in work),
                np.array([layer.constant_size(channels) for layer, channels in whole], np.int64),
                np.array(
                    [network.stored.size(*pair, contexts) if with_decoder else 0 for pair in whole], np.int64
                ),
            )
        )
    host = sum(host_seconds(op) for part in parts if part.device == "cpu" for op in part.ops)
    waits = 2 * LAUNCH * max(0, len(subgraphs) - 1)
    products = sum(macs(op) for part in parts for op in part.ops)
    return BoundedNetwork(tuple(subgraphs), host + waits, products)


def buffered_bounds(network: BoundedNetwork, target: Target, machines: Sequence[MachineFigures]) -> Array:
    """The buffered bound in cycles, and the compulsory bytes, of machines with one kind of core, that of `target`."""
    rate = np.array([machine.rate for machine in machines])
    cores = np.array([machine.cores for machine in machines])
    capacity = np.array([machine.local * machine.cores for machine in machines])
    decoder = np.array([machine.has_decoder for machine in machines])
    costs = Costs(target)
    results = np.zeros((len(machines), 2))
    for subgraph in network.subgraphs:
        inputs = sum(tensor.size for tensor in subgraph.network.inputs)
        outputs = sum(tensor.size for tensor in subgraph.network.outputs)
        matrix = vector = 0
        done, loaded, released = (np.zeros(len(machines)) for _ in range(3))
        needed = np.full(len(machines), float(inputs))
        for instructions, size, stored in zip(
            subgraph.layers, subgraph.constants, subgraph.stored, strict=True
        ):
            work = {"matrix": 0, "vector": 0}
            for instruction in instructions:
                work[instruction.queue] += costs.work(instruction)
            matrix += work["matrix"]
            vector += work["vector"]
            needed = needed + np.where(decoder, stored, size)
            spent = max(work.values()) / cores if work["matrix"] else 0.0
            end = np.maximum(done + spent, done + np.maximum(0.0, needed - loaded) / rate)
            most = np.maximum(released + capacity, needed)
            loaded = np.maximum(loaded, np.minimum(loaded + rate * (end - done), most))
            done, released = end, needed
        total = needed + outputs
        roofline = np.maximum(np.maximum(matrix / cores, vector / cores), total / rate)
        results[:, 0] += np.ceil(np.maximum(done, roofline))
        results[:, 1] += total
    return results


def lower_bounds(network: BoundedNetwork, target: Target, machines: Sequence[MachineFigures]) -> Array:
    """Seconds of a run with its CPU parts, and bytes of DRAM, that no program goes below."""
    results = buffered_bounds(network, target, machines)
    decoder = np.array([machine.has_decoder for machine in machines])
    results *= np.where(decoder, _TILED, 1.0)[:, None]
    results[:, 0] = results[:, 0] / np.array([machine.clock for machine in machines]) + network.host
    return results
