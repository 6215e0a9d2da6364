"""What every pruning method starts from: a network, its groups and costs, data, and how to train and measure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.ir import Graph, top, value_name
from npuc.target import Target
from npuc.train.checkpoint import fingerprint
from npuc.train.data import TrainingData
from npuc.train.loop import fit
from npuc.train.network import TrainableNetwork
from npuc.train.options import TrainingOptions
from npuc.train.pruning.batch_norms import channel_moments, folded, recalibrated, with_batch_norms
from npuc.train.pruning.budget import Budget, CostCache, WidthCosts, width_costs
from npuc.train.pruning.criteria import Importance, importance
from npuc.train.pruning.groups import DependencyGraph, RemainingChannels
from npuc.train.pruning.options import PruningOptions
from npuc.train.pruning.scoring import EvalFunction, Scorer, weight_salience
from npuc.train.pruning.slimming import Selection, slim

CalibrationFunction = Callable[[Graph], Graph]
"""A user's own calibration of a pruned network before it is measured, in place of taking its statistics anew."""
Report = Callable[[str], None]
_STATISTICS = 256
"""Samples that statistics are taken on."""


@dataclass(frozen=True)
class PruningTask:
    """A network to prune, and everything that is needed for it."""

    graph: Graph
    data: TrainingData
    validation: TrainingData
    budget: Budget
    target: Target | None = None
    options: PruningOptions = field(default_factory=PruningOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)
    exclude: Collection[str] = ()
    eval_fn: EvalFunction | None = None
    calibration_fn: CalibrationFunction | None = None
    work_dir: Path | None = None
    """Where steps are kept, so that an interrupted run goes on; None keeps nothing."""
    report: Report = lambda line: None
    cache: CostCache = field(default_factory=CostCache, repr=False)

    def __post_init__(self) -> None:
        if self.budget.limit <= 0:
            raise UsageError("a budget has to be more than zero")

    @property
    def device(self) -> str:
        """Where networks run."""
        return self.training.device

    @cached_property
    def measured(self) -> TrainingData:
        """The samples that candidates are measured on."""
        return self.validation[: self.options.samples]

    @cached_property
    def statistics(self) -> TrainingData:
        """The samples that statistics are taken on: some of those that are trained on."""
        return self.data[:_STATISTICS]

    def groups_of(self, graph: Graph) -> DependencyGraph:
        """The groups of a version of the network."""
        return DependencyGraph(graph, self.exclude)

    def costs_of(self, dependencies: DependencyGraph) -> WidthCosts:
        """The costs of its widths, in what the budget counts."""
        return width_costs(dependencies, self.budget.kind, self.target, self.options.snap, self.cache)

    def importance_of(self, dependencies: DependencyGraph) -> Importance:
        """The importance of its channels by the criterion of the options."""
        graph = dependencies.graph
        return importance(
            dependencies,
            self.options.criterion,
            lambda: weight_salience(graph, self.data[: self.options.samples], self.device),
        )

    def scorer(self, graph: Graph) -> Scorer:
        """What measures versions of a network."""
        return Scorer(graph, self.measured, self.eval_fn, self.device)

    def final_score(self, graph: Graph) -> float:
        """The score of a network on all validation samples."""
        return Scorer(graph, self.validation, self.eval_fn, self.device).base().score

    def cut(
        self,
        dependencies: DependencyGraph,
        selection: Selection,
        moments: Mapping[str, tuple[Array, Array]] | None = None,
    ) -> Graph:
        """The slim network, its statistics taken anew."""
        graph = slim(dependencies, selection)
        if self.calibration_fn is not None:
            return self.calibration_fn(graph)
        if moments is None:
            moments = channel_moments(dependencies.graph, self.statistics, self.device)
        left = RemainingChannels(dependencies, dependencies.removed(selection))
        return recalibrated(graph, self.statistics, _kept_moments(dependencies, left, moments), self.device)

    def _choices(self) -> dict[str, Any]:
        """What decides which channels are left, as plain values."""
        return {
            "budget": [self.budget.kind, self.budget.limit],
            "target": self.target.name if self.target else "",
            "options": self.options.model_dump(mode="json"),
            "exclude": sorted(self.exclude),
        }

    def fine_tuned(self, graph: Graph, checkpoint: Path | None = None) -> Graph:
        """The network after training; batch norms that were folded are put back for it."""
        if not self.training.epochs:
            return graph
        live = with_batch_norms(graph, self.statistics, self.device) if self.options.batch_norms else graph
        module = TrainableNetwork(live)
        teacher: Any = None
        if self.training.loss != "labels":
            teacher = TrainableNetwork(self.graph)
        fit(
            module,
            self.data,
            self.validation,
            self.training,
            teacher=teacher,
            checkpoint=checkpoint,
            settings={"network": fingerprint(self.graph), "pruning": self._choices()},
            report=lambda epoch: self.report(epoch.line),
        )
        return folded(module.cpu().to_graph(), graph)


def _kept_moments(
    dependencies: DependencyGraph, left: RemainingChannels, moments: Mapping[str, tuple[Array, Array]]
) -> dict[str, tuple[Array, Array]]:
    """The moments of the channels that stay."""
    kept: dict[str, tuple[Array, Array]] = {}
    for op in dependencies.graph.ops:
        if isinstance(op, top.WeightOp) or not op.results:
            continue
        name = value_name(op.results[0])
        if name in moments:
            axis = -1 if isinstance(op, top.MatMul) else 1
            indices = np.asarray(left.indices(op.results[0], axis))
            kept[name] = moments[name][0][indices], moments[name][1][indices]
    return kept
