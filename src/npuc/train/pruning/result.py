"""What pruning gave: a slim network, and how it compares with the one before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from npuc.ir import Graph
from npuc.train.pruning.budget import Budget


@dataclass(frozen=True)
class PruningResult:
    """A slim network."""

    graph: Graph
    """Top IR; `npuc.export.onnx` writes it as ONNX, and `TrainableNetwork` makes a torch module of it."""
    method: str
    budget: Budget
    widths: dict[str, int]
    """For each group, how many channels stay."""
    sizes: dict[str, int]
    """For each group, how many there were."""
    cost: float
    whole: float
    """What the network cost before."""
    score: float
    base: float
    """The score of the network before."""
    kernels: dict[str, int] = field(default_factory=dict)
    """Convolutions whose kernel became smaller, with its new size."""
    history: tuple[dict[str, Any], ...] = ()
    """What each step or candidate gave."""

    @property
    def ratio(self) -> float:
        """The share of the cost that is left."""
        return self.cost / self.whole

    def as_json(self) -> dict[str, Any]:
        """All but the network."""
        return {
            "method": self.method,
            "budget": {"kind": self.budget.kind, "limit": self.budget.limit},
            "cost": self.cost,
            "cost_before": self.whole,
            "ratio": self.ratio,
            "score": self.score,
            "score_before": self.base,
            "groups": {
                name: {"channels": width, "before": self.sizes[name]} for name, width in self.widths.items()
            },
            "kernels": self.kernels,
            "history": list(self.history),
        }
