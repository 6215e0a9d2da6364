"""Channel pruning: fewer channels, chosen by what they do and by what they cost on the machine.

    result = prune(graph, data, budget="cycles=0.6", target="edge-1t", method="iterative")
    save_graph(result.graph, "slim.mlir")

`groups` finds which channels disappear together, `slimming` removes them, `search` finds widths under a budget.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuc.train.pruning.advice import PruningAdvice, advise
    from npuc.train.pruning.api import prune, sensitivity
    from npuc.train.pruning.budget import Budget
    from npuc.train.pruning.groups import DependencyGraph, PruningGroup
    from npuc.train.pruning.options import PruningOptions
    from npuc.train.pruning.result import PruningResult
    from npuc.train.pruning.slimming import masked, slim

_HOMES = {
    "Budget": "budget",
    "DependencyGraph": "groups",
    "PruningAdvice": "advice",
    "PruningGroup": "groups",
    "PruningOptions": "options",
    "PruningResult": "result",
    "advise": "advice",
    "masked": "slimming",
    "prune": "api",
    "sensitivity": "api",
    "slim": "slimming",
}
"""Where each public name is: modules that import torch are loaded when they are used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'npuc.train.pruning' has no attribute '{name}'")
    return getattr(import_module(f"npuc.train.pruning.{_HOMES[name]}"), name)


__all__ = [
    "Budget",
    "DependencyGraph",
    "PruningAdvice",
    "PruningGroup",
    "PruningOptions",
    "PruningResult",
    "advise",
    "masked",
    "prune",
    "sensitivity",
    "slim",
]
