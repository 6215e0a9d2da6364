"""The cost of layers and networks on a target, by the compiler's own cost model; mixed precision is chosen by it.

A layer on the NPU costs the cycles of its busier engine, and the cycles to load its constants from DRAM. A layer on the CPU
costs the partitioner's estimate for the host. A whole network is compiled and simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.errors import CompileError
from npuc.ir import Graph, result_names, value_name
from npuc.partition import partition
from npuc.partition.work import LAUNCH, host_seconds
from npuc.quant.mixed_precision.cost_model import LayerCost
from npuc.registries import renamed
from npuc.schedule.cost import START, Costs
from npuc.schedule.network import build_network
from npuc.schedule.tiler import Tiler
from npuc.sim import simulate
from npuc.target import Target


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Pricing": TargetCostModel})


REFERENCE = "edge-4t"
"""The target whose cycles are counted if no target is given."""
_LEVEL = 1
"""The optimization level: a short search is enough to tell which of two networks is faster."""


@dataclass(frozen=True)
class TargetCostModel:
    """The cost model of one target."""

    target: Target

    @property
    def machine(self) -> str:
        """The name of the target."""
        return self.target.name

    def layers(self, graph: Graph) -> dict[str, LayerCost]:
        """The cost of every layer of an integer network, by the name of its first result."""
        costs = Costs(self.target)
        tiler = Tiler(costs)
        rate, clock = float(costs.bytes_per_cycle), float(self.target.compute.clock)
        layer_costs: dict[str, LayerCost] = {}
        for part in partition(graph, self.target, island_threshold=0.0).parts:
            if part.device == "cpu":
                layer_costs |= {result_names(op)[0]: LayerCost(clock * host_seconds(op)) for op in part.ops}
            if part.device != "npu":
                continue
            for layer in build_network(graph, part.ops, part.inputs, part.outputs, target=self.target).layers:
                tile = tiler.tile(layer, tiler.whole(layer), (0, layer.channels))
                work = {"matrix": 0, "vector": 0}
                for template in layer.templates(tile):
                    work[template.instruction.queue] += costs.work(template.instruction)
                engine = max(work.values()) / self.target.compute.cores + START
                load = layer.constant_size((0, layer.channels)) / rate
                layer_costs[value_name(layer.source.results[0])] = LayerCost(engine, load)
        return layer_costs

    def network(self, graph: Graph) -> int | None:
        """The cycles of a whole integer network, including its CPU parts; None if it does not compile."""
        try:
            compilation = compile_program(graph, self.target, CompileOptions(level=_LEVEL))
        except CompileError:
            return None
        parts = compilation.partition.parts
        host = sum(host_seconds(op) for part in parts if part.device == "cpu" for op in part.ops)
        calls = sum(part.device == "npu" for part in parts)
        waits = 2 * LAUNCH * max(0, calls - 1)
        return simulate(compilation.model).total + ceil((host + waits) * float(self.target.compute.clock))

    def requant(self, elements: int) -> float:
        """The cycles to requantize a tensor to another type."""
        return START + elements / self.target.compute.vector_lanes / self.target.compute.cores

    def switch(self) -> float:
        """The cycles to switch from the NPU to the CPU and back."""
        return 2 * LAUNCH * float(self.target.compute.clock)
