"""What a machine asks for layers and networks, as the choice of types needs it. `npuc.layer_costs` has the compiler's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from npuc.ir import Graph


@dataclass(frozen=True)
class LayerCost:
    """What one layer takes."""

    engine: float
    """Cycles of the engine that is longer at work for it."""
    load: float = 0.0
    """Cycles of its constants on the way from DRAM."""


class CostModel(Protocol):
    """What layers and networks cost on a machine."""

    @property
    def machine(self) -> str:
        """Its name."""

    def layers(self, graph: Graph) -> Mapping[str, LayerCost]:
        """What every layer of an integer network takes, by the name of its first result."""

    def network(self, graph: Graph) -> int | None:
        """The cycles of a whole integer network; None if it cannot run there."""

    def requant(self, elements: int) -> float:
        """What bringing a tensor to another type takes."""

    def switch(self) -> float:
        """What leaving the NPU for the CPU and coming back takes."""


def exposed(layers: Mapping[str, LayerCost]) -> float:
    """The part of the loads that work cannot hide, were they spread at will.

    >>> exposed({"a": LayerCost(30, 100), "b": LayerCost(45)})
    0.25
    """
    load = sum(one.load for one in layers.values())
    work = sum(one.engine for one in layers.values())
    return max(0.0, 1.0 - work / load) if load else 0.0
