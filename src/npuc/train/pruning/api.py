"""Pruning as functions: one call for each thing that the command line does."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from npuc.errors import UsageError
from npuc.ir import Graph
from npuc.target import Target, load_target
from npuc.train.data import TrainingData
from npuc.train.options import TrainingOptions
from npuc.train.pruning.budget import Budget
from npuc.train.pruning.criteria import Criterion, importance
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.iterative import prune_iteratively
from npuc.train.pruning.once_for_all import prune_once_for_all
from npuc.train.pruning.one_step import prune_in_one_step
from npuc.train.pruning.options import PruningOptions
from npuc.train.pruning.prepared import CalibrationFunction, PruningTask
from npuc.train.pruning.result import PruningResult
from npuc.train.pruning.scoring import EvalFunction, Scorer, weight_salience
from npuc.train.pruning.sensitivities import Sensitivity, measure_sensitivity

_METHODS: dict[str, Callable[[PruningTask], PruningResult]] = {
    "iterative": prune_iteratively,
    "one-step": prune_in_one_step,
    "once-for-all": prune_once_for_all,
}
_HELD_BACK = 0.1


def prune(
    graph: Graph,
    data: Any,
    validation: Any = None,
    *,
    budget: Budget | str,
    target: Target | str | None = None,
    method: str = "iterative",
    options: PruningOptions | None = None,
    training: TrainingOptions | None = None,
    exclude: Collection[str] = (),
    eval_fn: EvalFunction | None = None,
    calibration_fn: CalibrationFunction | None = None,
    work_dir: Path | str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> PruningResult:
    """A slim network that costs no more than the budget.

    `method` is iterative, one-step or once-for-all.
    `data` is `TrainingData` or a pair (inputs, labels); without `validation`, a tenth of it is held back. `exclude` names layers
    whose channels stay. `eval_fn` measures a network in place of the share of right classes, `calibration_fn` calibrates a
    pruned network in place of taking its statistics anew. With a `work_dir`, an interrupted run goes on.
    """
    if method not in _METHODS:
        raise UsageError(f"'{method}' is no method of pruning", fix=f"Use one of {', '.join(_METHODS)}")
    samples = TrainingData.of(data)
    if validation is None:
        samples, held = samples.split(max(1, int(len(samples) * _HELD_BACK)))
    else:
        held = TrainingData.of(validation)
    task = PruningTask(
        graph,
        samples,
        held,
        Budget.parse(budget) if isinstance(budget, str) else budget,
        load_target(target) if isinstance(target, str) else target,
        options or PruningOptions(),
        training or TrainingOptions(epochs=2),
        exclude,
        eval_fn,
        calibration_fn,
        None if work_dir is None else Path(work_dir),
        report,
    )
    return _METHODS[method](task)


def sensitivity(
    graph: Graph,
    data: Any,
    *,
    criterion: Criterion = "l2",
    target: Target | str | None = None,
    exclude: Collection[str] = (),
    eval_fn: EvalFunction | None = None,
    path: Path | str | None = None,
    device: str = "cpu",
) -> Sensitivity:
    """How much the outputs change when each group alone gets narrower; kept in the file `path` while it is measured."""
    samples = TrainingData.of(data)
    dependencies = DependencyGraph(graph, exclude)
    if not dependencies.groups:
        raise UsageError("no channel of the network can be removed, so nothing is sensitive to it")
    scores = importance(dependencies, criterion, lambda: weight_salience(graph, samples, device))
    machine = load_target(target) if isinstance(target, str) else target
    lanes = 1
    if machine is not None:
        lanes = max(machine.compute.array.input_channels, machine.compute.array.output_channels)
    scorer = Scorer(graph, samples, eval_fn, device)
    return measure_sensitivity(
        dependencies,
        scorer,
        scores,
        lanes=lanes,
        criterion=criterion,
        path=None if path is None else Path(path),
    )
