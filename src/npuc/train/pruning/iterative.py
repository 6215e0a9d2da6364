"""Iterative pruning: the budget is approached in steps, and the network is trained after each.

Each step finds widths for its share of the way, removes the channels that matter least now, and trains. Steps are
kept in a folder: a run that was killed goes on with the step, and with the epoch, in which it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuc.errors import FileFormatError, UsageError
from npuc.files import write_atomically
from npuc.ir import Graph, load_graph, save_graph
from npuc.train.checkpoint import fingerprint
from npuc.train.pruning.budget import Budget
from npuc.train.pruning.prepared import PruningTask
from npuc.train.pruning.result import PruningResult
from npuc.train.pruning.search import capacity_harm, require_possible, search_widths
from npuc.train.pruning.sensitivities import measure_sensitivity
from npuc.train.pruning.widths import dropped


def prune_iteratively(task: PruningTask) -> PruningResult:
    """Prune in steps, with training after each."""
    dependencies = task.groups_of(task.graph)
    sizes = {group.name: group.size for group in dependencies.groups}
    costs = task.costs_of(dependencies)
    require_possible(costs, task.budget)
    whole, limit = costs.whole, task.budget.absolute(costs.whole)
    base = task.final_score(task.graph)
    run = _Progress(task)
    graph, history = run.resume()
    steps = task.options.steps
    for step in range(len(history) + 1, steps + 1):
        goal = whole * (limit / whole) ** (step / steps) if step < steps else limit
        graph, entry = _step(task, graph, goal, sizes, run.folder, step)
        entry["cost_before"] = whole
        history.append(entry)
        run.save(graph, history)
        task.report(
            f"step {step} of {steps}: {entry['cost']:,.0f} {task.budget.kind} ({entry['cost'] / whole:.1%}), "
            f"score {entry['score']:.4f}"
        )
    widths = {group.name: group.size for group in task.groups_of(graph).groups}
    cost = history[-1]["cost"]
    score = task.final_score(graph)
    widths = {name: widths.get(name, 1) for name in sizes}
    return PruningResult(
        graph, "iterative", task.budget, widths, sizes, cost, whole, score, base, history=tuple(history)
    )


def _step(
    task: PruningTask, graph: Graph, goal: float, sizes: Mapping[str, int], folder: Path | None, step: int
) -> tuple[Graph, dict[str, Any]]:
    """One step: measure, choose, cut, train."""
    dependencies = task.groups_of(graph)
    costs = task.costs_of(dependencies)
    scores = task.importance_of(dependencies)
    scorer = task.scorer(graph)
    measured, weight = None, task.options.sensitivity_weight
    if weight:
        measured = measure_sensitivity(
            dependencies,
            scorer,
            scores,
            lanes=costs.lanes,
            criterion=task.options.criterion,
            path=None if folder is None else folder / f"sensitivity{step}.json",
        ).harm()
    harm = capacity_harm(costs, sizes, measured, weight)
    chosen = search_widths(costs, Budget(task.budget.kind, max(goal, 1.0000001)), harm)
    narrow = task.cut(dependencies, dropped(dependencies, chosen.widths, scores))
    before = scorer.of(narrow).score
    checkpoint = None if folder is None else folder / f"training{step}.safetensors"
    training = _training_of_step(task, step)
    trained = training.fine_tuned(narrow, checkpoint)
    after = scorer.of(trained).score
    entry = {
        "step": step,
        "cost": chosen.cost,
        "widths": chosen.widths,
        "score_before_training": before,
        "score": after,
    }
    return trained, entry


def _training_of_step(task: PruningTask, step: int) -> PruningTask:
    """The task with a seed of its own for the training of a step, and its number of epochs."""
    changes = {"seed": task.training.seed + 1000 * step}
    if step < task.options.steps and task.options.epochs_between is not None:
        changes["epochs"] = task.options.epochs_between
    training = task.training.model_copy(update=changes)
    return replace(task, training=training)


class _Progress:
    """The steps that are done, in a folder."""

    def __init__(self, task: PruningTask) -> None:
        self.task = task
        self.folder = task.work_dir
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        training = task.training.model_dump(exclude={"device"})
        self.identity = fingerprint(
            task.graph,
            task.budget,
            task.target.name if task.target else "",
            task.options.model_dump(),
            training,
            sorted(task.exclude),
            len(task.data),
            len(task.validation),
        )

    def resume(self) -> tuple[Graph, list[dict[str, Any]]]:
        """The network after the last step that is done, and what all steps gave."""
        if self.folder is None or not (path := self.folder / "progress.json").exists():
            return self.task.graph, []
        try:
            content = json.loads(path.read_bytes())
            history, identity = list(content["history"]), content["identity"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileFormatError(
                "is no progress of a pruning run", where=str(path), fix="Delete the folder to begin anew"
            ) from error
        if identity != self.identity:
            raise UsageError(
                f"{self.folder} has a run of another network, other data or other options",
                fix="Give the same ones, or another folder",
            )
        if not history:
            return self.task.graph, []
        self.task.report(f"{len(history)} of {self.task.options.steps} steps were done before")
        return load_graph(self.folder / f"step{len(history)}.mlir"), history

    def save(self, graph: Graph, history: list[dict[str, Any]]) -> None:
        """Keep a step."""
        if self.folder is None:
            return
        save_graph(graph, self.folder / f"step{len(history)}.mlir")
        content = {"identity": self.identity, "history": history}
        with write_atomically(self.folder / "progress.json") as out:
            out.write((json.dumps(content, indent=1) + "\n").encode())
