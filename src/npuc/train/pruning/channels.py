"""The channels of a user's own model, in whatever framework it lives: which can be removed, how much it costs to lose them.

A subclass brings the model's arrays under the names of the weights of its network, and makes models without channels; which
channels go together, what they cost and which are worth least is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from npuc.activity import activity
from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.ir import Weight, WeightStore
from npuc.train.pruning.budget import Budget, WidthCosts, width_costs
from npuc.train.pruning.criteria import Criterion, importance
from npuc.train.pruning.groups import DependencyGraph, RemainingChannels
from npuc.train.pruning.one_step import draw_widths
from npuc.train.pruning.scoring import Score
from npuc.train.pruning.search import harm_of_importance, require_possible, search_widths
from npuc.train.pruning.sensitivities import GroupSensitivity, Sensitivity, measured_widths
from npuc.train.pruning.slimming import Selection
from npuc.train.pruning.widths import Widths, dropped

Evaluate = Callable[[Any], float]
"""A user's measure of a model; more is better."""


@dataclass(frozen=True)
class Candidate:
    """Widths that were drawn, what they cost and how good the model is with them."""

    widths: dict[str, int]
    macs: float
    score: float


class Channels(ABC):
    """The groups of channels of a model."""

    dependencies: DependencyGraph
    _fixed: dict[str, str]
    """Weights of the network whose sizes stay, each with the reason."""
    _separator: ClassVar[str] = "."
    """Between the name of a block and that of a layer in it."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """The weights that the model has now, by their names in the network."""

    @abstractmethod
    def original(self) -> Any:
        """A copy of the model to be measured."""

    @abstractmethod
    def masked(self, selection: Selection) -> Any:
        """A copy of the model with zeros for the selected channels, which training leaves zeros."""

    @abstractmethod
    def slim(self, selection: Selection) -> Any:
        """A copy of the model without the selected channels; it computes what the masked one does."""

    def excluding(self, names: Collection[str]) -> Self:
        """The same model, of which the channels of some layers stay: of a layer, or of all layers in a block."""
        if not names:
            return self
        layers = {name for group in self.dependencies.all_groups for name in group.layers}
        chosen: list[str] = []
        for name in names:
            inside = [
                layer for layer in layers if layer == name or layer.startswith(f"{name}{self._separator}")
            ]
            # A name that is none of these is looked up as a layer, with a message that lists some.
            chosen += inside or [name]
        other = copy(self)
        other.__dict__.pop("costs", None)
        other.dependencies = DependencyGraph(self.dependencies.graph, chosen, self._fixed)
        return other

    @cached_property
    def costs(self) -> WidthCosts:
        """The multiply-adds of the model with other widths."""
        return width_costs(self.dependencies, "macs")

    def macs(self, widths: Widths) -> float:
        """The multiply-adds of the model with these widths."""
        return self.costs.estimate(widths)

    # Which channels

    def importance(self, criterion: Criterion = "l2") -> dict[str, Array]:
        """The scores of all channels, by the weights that the model has now."""
        graph = self.dependencies.graph
        weights = {ref: Weight.of(array) for ref, array in self.arrays().items()}
        graph.weights = WeightStore(dict(graph.weights) | weights)
        return importance(self.dependencies, criterion)

    def widths(self, kept: float, sensitivity: Sensitivity | None = None) -> dict[str, int]:
        """The widths that leave a share of the multiply-adds with the least harm: as measured, or by the size of weights."""
        if not 0 < kept < 1:
            raise UsageError(
                f"{kept:g} of the multiply-adds cannot be left", fix="Give a share between 0 and 1"
            )
        harm = harm_of_importance(self.importance()) if sensitivity is None else sensitivity.harm()
        return search_widths(self.costs, Budget("macs", kept), harm).widths

    def dropped(self, widths: Widths, scores: Mapping[str, Array] | None = None) -> dict[str, list[int]]:
        """The channels to remove for these widths: the least important ones."""
        return dropped(self.dependencies, widths, scores or self.importance())

    def sensitivity(self, evaluate: Evaluate, path: Path | None = None) -> Sensitivity:
        """How much worse the model gets when each group alone has fewer channels.

        The harm of a width is the share of the score that is lost. With a `path`, the file is written after each measurement,
        and what it has already is not measured again: it belongs to the groups of the model, whatever its weights are now.
        """
        identity = ",".join(f"{group.name}:{group.size}" for group in self.dependencies.groups)
        result = Sensitivity(identity, Score(0.0, 0.0))
        if path is not None and path.exists():
            result = Sensitivity.load(path)
            if result.network != identity:
                raise UsageError(
                    f"{path} has the sensitivities of another model", fix="Delete it to measure anew"
                )
        else:
            result.base = Score(0.0, float(evaluate(self.original())))
        scores, base = self.importance(), result.base.score
        jobs = [
            (group, keep)
            for group in self.dependencies.groups
            for keep in measured_widths(group.size, 1, group.unit)
            if keep not in result.groups.setdefault(group.name, GroupSensitivity(group.size)).points
        ]
        with activity("measuring sensitivity", len(jobs)) as step:
            for group, keep in jobs:
                score = float(evaluate(self.masked(self.dropped({group.name: keep}, scores))))
                lost = (base - score) / max(abs(base), 1e-9)
                result.groups[group.name].points[keep] = Score(lost, score)
                if path is not None:
                    result.save(path)
                step()
        return result

    def candidates(
        self,
        kept: float,
        count: int,
        evaluate: Evaluate,
        calibrate: Callable[[Any], Any] | None = None,
        seed: int = 0,
    ) -> list[Candidate]:
        """Slim models of random widths that leave a share of the multiply-adds, calibrated and measured; the best first.

        `calibrate` takes the statistics of batch norms anew, without which the ranking says little (EagleEye).
        """
        budget = Budget("macs", kept)
        require_possible(self.costs, budget)
        rng, scores = np.random.default_rng(seed), self.importance()
        ranked: dict[tuple[int, ...], Candidate] = {}
        with activity("measuring candidates", count) as step:
            for _ in range(count):
                widths = draw_widths(self.costs, budget.absolute(self.costs.whole), rng)
                key = tuple(widths.values())
                if key not in ranked:
                    model = self.slim(self.dropped(widths, scores))
                    if calibrate is not None:
                        calibrate(model)
                    ranked[key] = Candidate(widths, self.macs(widths), float(evaluate(model)))
                step()
        return sorted(ranked.values(), key=lambda candidate: -candidate.score)

    def _left(self, selection: Selection) -> RemainingChannels:
        left = RemainingChannels(self.dependencies, self.dependencies.removed(selection))
        empty = left.empty_tensor()
        if empty is not None:
            raise UsageError(f"nothing would be left of '{empty}'", fix="Keep a channel of each group")
        return left
