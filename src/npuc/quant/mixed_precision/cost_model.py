"""The interface of cost models: the cycles of layers and networks on a target. `npuc.layer_costs` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from npuc.ir import Graph


@dataclass(frozen=True)
class LayerCost:
    """The cost of one layer."""

    engine: float
    """The cycles of its busier engine."""
    load: float = 0.0
    """The cycles to load its constants from DRAM."""


class CostModel(Protocol):
    """The cost of layers and networks on a target."""

    @property
    def machine(self) -> str:
        """The name of the target."""

    def layers(self, graph: Graph) -> Mapping[str, LayerCost]:
        """The cost of every layer of an integer network, by the name of its first result."""

    def network(self, graph: Graph) -> int | None:
        """The cycles of a whole integer network; None if it does not compile for the target."""

    def requant(self, elements: int) -> float:
        """The cycles to requantize a tensor to another type."""

    def switch(self) -> float:
        """The cycles to switch from the NPU to the CPU and back."""


def exposed(layers: Mapping[str, LayerCost]) -> float:
    """The share of the loads that computation cannot hide, if loads and computation overlap freely.

    >>> exposed({"a": LayerCost(30, 100), "b": LayerCost(45)})
    0.25
    """
    load = sum(cost.load for cost in layers.values())
    work = sum(cost.engine for cost in layers.values())
    return max(0.0, 1.0 - work / load) if load else 0.0
