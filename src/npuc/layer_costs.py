"""What layers and networks cost on a machine, by the compiler's own formulas: what mixed precision is chosen by.

A layer on the NPU costs the cycles of the engine that is longer at work for it, and the way of its constants from DRAM; one
on the CPU what the partitioner thinks of the host. A whole network is compiled and simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.errors import CompileError
from npuc.ir import Graph, result_names, value_name
from npuc.partition import partition
from npuc.partition.work import LAUNCH, host_seconds
from npuc.quant.mixed_precision.cost_model import LayerCost
from npuc.schedule.cost import START, Costs
from npuc.schedule.network import build_network
from npuc.schedule.tiler import Tiler
from npuc.sim import simulate
from npuc.target import Target

REFERENCE = "edge-4t"
"""The machine whose cycles count where no target is given."""
_LEVEL = 1
"""How hard the compiler searches: which of two networks is faster shows at once."""


@dataclass(frozen=True)
class Pricing:
    """The cost model of one machine."""

    target: Target

    @property
    def machine(self) -> str:
        """Its name."""
        return self.target.name

    def layers(self, graph: Graph) -> dict[str, LayerCost]:
        """What every layer of an integer network takes, by the name of its first result."""
        costs = Costs(self.target)
        tiler = Tiler(costs)
        rate, clock = float(costs.bytes_per_cycle), float(self.target.compute.clock)
        found: dict[str, LayerCost] = {}
        for part in partition(graph, self.target, island_threshold=0.0).parts:
            if part.device == "cpu":
                found |= {result_names(op)[0]: LayerCost(clock * host_seconds(op)) for op in part.ops}
            if part.device != "npu":
                continue
            for layer in build_network(graph, part.ops, part.inputs, part.outputs).layers:
                tile = tiler.tile(layer, tiler.whole(layer), (0, layer.channels))
                work = {"matrix": 0, "vector": 0}
                for template in layer.templates(tile):
                    work[template.instruction.queue] += costs.work(template.instruction)
                engine = max(work.values()) / self.target.compute.cores + START
                load = layer.constant_size((0, layer.channels)) / rate
                found[value_name(layer.source.results[0])] = LayerCost(engine, load)
        return found

    def network(self, graph: Graph) -> int | None:
        """The cycles of a whole integer network, those of the CPU included; None if it does not compile."""
        try:
            done = compile_program(graph, self.target, CompileOptions(level=_LEVEL))
        except CompileError:
            return None
        parts = done.partition.parts
        host = sum(host_seconds(op) for part in parts if part.device == "cpu" for op in part.ops)
        calls = sum(part.device == "npu" for part in parts)
        waits = 2 * LAUNCH * max(0, calls - 1)
        return simulate(done.model).total + ceil((host + waits) * float(self.target.compute.clock))

    def requant(self, elements: int) -> float:
        """What bringing a tensor to another type takes."""
        return START + elements / self.target.compute.vector_lanes / self.target.compute.cores

    def switch(self) -> float:
        """What leaving the NPU for the CPU and coming back takes."""
        return 2 * LAUNCH * float(self.target.compute.clock)
