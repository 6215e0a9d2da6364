"""The widths of all groups under a budget: where a removed channel saves most for the harm that it does.

Channels are removed greedily. In each step every group proposes each of its smaller widths; the one that saves most per unit
of harm is taken, until the budget is met. Costs are those of the whole network at the widths reached so far: halving the
input of a layer and halving its output save less together than the two alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.train.pruning.budget import Budget, WidthCosts

HarmOf = Callable[[str, int], float]
"""The harm of keeping so many channels of a group: 0 for all of them, growing as they get fewer."""
_ATTEMPTS = 12
_LEAST_HARM = 1e-12


@dataclass(frozen=True)
class ChosenWidths:
    """Widths that keep a budget."""

    widths: dict[str, int]
    cost: float
    """What the network of these widths costs."""
    whole: float
    """What it cost before."""
    harm: float

    @property
    def ratio(self) -> float:
        """The share of the cost that is left."""
        return self.cost / self.whole


def harm_of_importance(importance: Mapping[str, Array]) -> HarmOf:
    """The harm as the share of a group's importance that is lost."""
    losses: dict[str, Array] = {}
    for name, scores in importance.items():
        ordered = np.sort(np.asarray(scores, np.float64))
        total = max(float(ordered.sum()), _LEAST_HARM)
        losses[name] = np.concatenate([[0.0], np.cumsum(ordered)]) / total
    return lambda name, keep: float(losses[name][len(losses[name]) - 1 - keep])


def search_widths(costs: WidthCosts, budget: Budget, harm: HarmOf) -> ChosenWidths:
    """The widths that meet the budget with little harm; an error if none do."""
    limit = budget.absolute(costs.whole)
    require_possible(costs, budget)
    aim = limit
    for _ in range(_ATTEMPTS):
        widths = _greedy(costs, aim, harm)
        cost = costs.exact(widths)
        if cost <= limit:
            widths = _grown(costs, widths, limit, harm)
            total = sum(harm(name, width) for name, width in widths.items())
            return ChosenWidths(widths, costs.exact(widths), costs.whole, total)
        aim *= min(limit / cost, 0.995)
    widths = costs.smallest()
    total = sum(harm(name, width) for name, width in widths.items())
    return ChosenWidths(widths, costs.exact(widths), costs.whole, total)


def require_possible(costs: WidthCosts, budget: Budget) -> None:
    """An error if even the narrowest network costs more than the budget."""
    if not costs.dependencies.groups:
        reasons = sorted({group.reason for group in costs.dependencies.frozen})
        raise UsageError(
            "no channel of the network can be removed: "
            + ("; ".join(reasons[:3]) or "no layer makes channels"),
            fix="Name fewer layers to be excluded, or prune another network",
        )
    limit, least = budget.absolute(costs.whole), costs.exact(costs.smallest())
    if least > limit:
        raise UsageError(
            f"the budget of {limit:,.0f} {budget.kind} cannot be met: the narrowest network still needs {least:,.0f}, "
            f"{least / costs.whole:.0%} of the {costs.whole:,.0f} of now",
            fix=f"Allow at least {budget.kind}={math.ceil(100 * least / costs.whole) / 100:g}, or exclude fewer layers",
        )


def _greedy(costs: WidthCosts, limit: float, harm: HarmOf) -> dict[str, int]:
    widths = {group.name: group.size for group in costs.dependencies.groups}
    choices = {name: costs.choices(name) for name in widths}
    now = costs.estimate(widths)
    while now > limit:
        best: tuple[float, str, int, float] | None = None
        for name, width in widths.items():
            for narrower in (choice for choice in choices[name] if choice < width):
                cost = costs.estimate({**widths, name: narrower})
                added = max(harm(name, narrower) - harm(name, width), _LEAST_HARM)
                gain = (now - max(cost, limit)) / added
                if cost < now and (best is None or gain > best[0]):
                    best = gain, name, narrower, cost
        if best is None:
            # No single step saves anything: some layers get faster only when several groups shrink.
            wide = {name: width for name, width in widths.items() if width > choices[name][-1]}
            if not wide:
                break
            name = min(wide, key=lambda name: harm(name, _next(choices[name], wide[name])))
            widths[name] = _next(choices[name], widths[name])
            now = costs.estimate(widths)
            continue
        _, name, narrower, now = best
        widths[name] = narrower
    return widths


def _next(choices: list[int], width: int) -> int:
    return next(choice for choice in choices if choice < width)


def _grown(costs: WidthCosts, widths: dict[str, int], limit: float, harm: HarmOf) -> dict[str, int]:
    """Give back what the budget leaves: the steps that harmed most, as long as the network still meets it."""
    widths = dict(widths)
    refused: set[tuple[str, int]] = set()
    while True:
        wider = []
        for name, width in widths.items():
            above = [choice for choice in costs.choices(name) if choice > width]
            if (
                above
                and (name, above[-1]) not in refused
                and costs.estimate({**widths, name: above[-1]}) <= limit
            ):
                wider.append((harm(name, width) - harm(name, above[-1]), name, above[-1]))
        if not wider:
            return widths
        _, name, width = max(wider)
        if costs.exact({**widths, name: width}) <= limit:
            widths[name] = width
        else:
            refused.add((name, width))
