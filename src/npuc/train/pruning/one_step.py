"""One-step pruning, after EagleEye: many candidates are drawn under the budget, calibrated, measured, and the best is trained.

Widths are drawn at random, and of each few draws the one stays that leaves no group too narrow (`search.capacity_harm`); in each
group the most important channels stay. A candidate's batch norm statistics are taken anew
before it is measured, without which the ranking says little about the networks after training. Where batch norms were folded
into the layers, the mean and deviation of each channel are restored instead (`batch_norms`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.activity import activity
from npuc.train.pruning.batch_norms import channel_moments
from npuc.train.pruning.budget import WidthCosts
from npuc.train.pruning.prepared import PruningTask
from npuc.train.pruning.result import PruningResult
from npuc.train.pruning.search import capacity_harm, require_possible
from npuc.train.pruning.widths import dropped

_TRIES = 200
_DRAWS = 8
_TIGHT = 0.9
"""A candidate uses at least this share of the budget: what is far below it was pruned too much."""


def draw_widths(costs: WidthCosts, limit: float, rng: np.random.Generator) -> dict[str, int]:
    """Random widths whose estimated cost is at most the limit, and close to it if some are."""
    names = [group.name for group in costs.dependencies.groups]
    choices = {name: costs.choices(name) for name in names}
    widths = costs.smallest()
    best = widths, -1.0
    for _ in range(_TRIES):
        lowest = rng.uniform(0, 1)
        widths = {}
        for name in names:
            share = rng.uniform(lowest, 1)
            size = choices[name][0]
            widths[name] = min(choices[name], key=lambda width: abs(width - share * size))
        cost = costs.estimate(widths)
        if _TIGHT * limit <= cost <= limit:
            return widths
        if best[1] < cost <= limit:
            best = widths, cost
    return best[0]


def prune_in_one_step(task: PruningTask) -> PruningResult:
    """Draw candidates, rank them, train the best."""
    dependencies = task.groups_of(task.graph)
    costs = task.costs_of(dependencies)
    require_possible(costs, task.budget)
    limit = task.budget.absolute(costs.whole)
    scores = task.importance_of(dependencies)
    scorer = task.scorer(task.graph)
    moments = channel_moments(task.graph, task.statistics, task.device)
    rng = np.random.default_rng(task.options.seed)
    harm = capacity_harm(costs)
    candidates: dict[tuple[int, ...], dict[str, Any]] = {}
    aim = limit
    with activity("measuring candidates", task.options.candidates) as step:
        for _ in range(task.options.candidates):
            draws = [draw_widths(costs, aim, rng) for _ in range(_DRAWS)]
            widths = min(draws, key=lambda draw: sum(harm(name, width) for name, width in draw.items()))
            key = tuple(widths.values())
            if key not in candidates:
                cost = costs.exact(widths)
                if cost > limit:  # the estimate was too low: aim lower from now on
                    aim *= max(0.9, limit / cost)
                else:
                    graph = task.cut(dependencies, dropped(dependencies, widths, scores), moments)
                    score = scorer.of(graph)
                    candidates[key] = {
                        "widths": widths,
                        "cost": cost,
                        "score": score.score,
                        "divergence": score.divergence,
                    }
            step()
    if not candidates:
        widths = costs.smallest()
        candidates[()] = {"widths": widths, "cost": costs.exact(widths), "score": 0.0, "divergence": 0.0}
    ranked = sorted(candidates.values(), key=lambda entry: (-entry["score"], entry["divergence"]))
    best = ranked[0]
    task.report(
        f"best of {len(ranked)} candidates: {best['cost']:,.0f} {task.budget.kind} "
        f"({best['cost'] / costs.whole:.1%}), score {best['score']:.4f} before training"
    )
    graph = task.cut(dependencies, dropped(dependencies, best["widths"], scores), moments)
    checkpoint = None
    if task.work_dir is not None:
        task.work_dir.mkdir(parents=True, exist_ok=True)
        checkpoint = task.work_dir / "training.safetensors"
    graph = task.fine_tuned(graph, checkpoint)
    return PruningResult(
        graph,
        "one-step",
        task.budget,
        best["widths"],
        {group.name: group.size for group in dependencies.groups},
        best["cost"],
        costs.whole,
        task.final_score(graph),
        task.final_score(task.graph),
        history=tuple(ranked),
    )
