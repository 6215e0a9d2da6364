"""Advice: which method of pruning fits a network, and what to expect of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from npuc.ir import Graph, top
from npuc.target import Target
from npuc.train.pruning.budget import CostKind, width_costs
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.options import Method
from npuc.words import counted

_FEW, _MANY = 2_000, 20_000
"""Samples below which training after each step would learn them by heart, and above which a super-net can learn."""


@dataclass(frozen=True)
class PruningAdvice:
    """What is advised, in words that a command prints."""

    method: Method | None
    """None if pruning does not help this network."""
    words: tuple[str, ...]
    """Why, and what to expect, a sentence each."""
    smallest: float = 1.0
    """The share of cycles, or of multiply-adds without a target, that the narrowest network has."""

    @property
    def text(self) -> str:
        """All of it as sentences."""
        sentences = ". ".join(words[0].upper() + words[1:] for words in self.words)
        return f"Pruning: {sentences}."

    def as_json(self) -> dict[str, Any]:
        """The advice as data."""
        return {"method": self.method, "words": list(self.words), "smallest": self.smallest}


def advise(
    graph: Graph, target: Target | None = None, samples: int | None = None, exclude: Collection[str] = ()
) -> PruningAdvice:
    """Which method fits: by what of the network can be pruned, what that would save, and the samples that there are.

    `exclude` names layers whose channels stay.
    """
    dependencies = DependencyGraph(graph, exclude)
    if not dependencies.groups:
        reasons = sorted({group.reason for group in dependencies.frozen})
        words = "no channel of the network can be removed"
        return PruningAdvice(None, (f"{words}: {reasons[0]}" if reasons else words,))
    kind: CostKind = "cycles" if target is not None else "macs"
    costs = width_costs(dependencies, kind, target)
    least = costs.exact(costs.smallest()) / costs.whole
    unit = f"cycles of {target.name}" if target is not None else "multiply-adds"
    channels = sum(group.size for group in dependencies.groups)
    sentences = [
        f"{counted(channels, 'channel')} in {counted(len(dependencies.groups), 'group')} can be removed; the narrowest network "
        f"has {least:.0%} of the {unit}"
    ]
    if costs.lanes > 1:
        fixed = [group.name for group in dependencies.groups if len(costs.choices(group.name)) == 1]
        if fixed:
            sentences.append(
                f"{counted(len(fixed), 'group')} of them, such as '{fixed[0]}', "
                f"{'has' if len(fixed) == 1 else 'have'} no more channels than fill the lanes once: narrower is not faster"
            )
    if least > 0.9:
        sentences.append("pruning saves less than a tenth: not worth its accuracy")
        return PruningAdvice(None, tuple(sentences), least)
    norms = any(isinstance(op, top.BatchNorm) for op in graph.ops)
    if samples is None:
        method: Method = "iterative"
        sentences.append(
            f"with {_FEW:,} labelled samples or more to train on, 'iterative' keeps most accuracy; with fewer take 'one-step', "
            "which needs some hundred for statistics; 'once-for-all' gives networks for several budgets from one training"
        )
    elif samples < _FEW:
        method = "one-step"
        sentences.append(
            "with few samples, 'one-step' fits: its candidates need statistics of some hundred samples, and little training. "
            "Expect to lose more accuracy than with training data"
        )
    elif samples >= _MANY and len(dependencies.groups) >= 4:
        method = "iterative"
        sentences.append(
            "with so many samples, 'iterative' keeps most accuracy for one budget; 'once-for-all' pays off if several budgets "
            "or targets are wanted from one training, which takes about four times as long an epoch"
        )
    else:
        method = "iterative"
        sentences.append("'iterative' fits: train a few epochs after each step")
    sentences.append(
        "batch norms are there: their statistics are taken anew after each cut"
        if norms
        else "its batch norms are folded, or it has none: means and deviations of channels are restored instead, and "
        "training puts batch norms back"
    )
    return PruningAdvice(method, tuple(sentences), least)
