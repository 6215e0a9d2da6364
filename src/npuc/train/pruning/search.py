"""The widths of all groups under a budget: where a removed channel saves most for the harm that it does.

Channels are removed greedily: every group proposes each of its smaller widths, and the one that saves most per unit of harm is
taken, until the budget is met. Then widths are exchanged: one group gets a step wider or narrower and the others make up for it,
as long as the harm of all gets less. Costs are those of the whole network at the widths reached so far: halving the input of a
layer and halving its output save less together than the two alone.

Training mends much of what a cut does to the outputs, and cannot mend that a layer is too narrow. `capacity_harm` counts how much
narrower a group gets, and takes the measured divergence as a hint at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.train.pruning.budget import Budget, WidthCosts
from npuc.train.pruning.widths import Widths

HarmOf = Callable[[str, int], float]
"""The harm of keeping so many channels of a group: 0 for all of them, growing as they get fewer."""
_ATTEMPTS = 12
_EXCHANGES = 40
_LEAST_HARM = 1e-12
_LEAST_SHARE = 1e-3
_NARROW = 2.0
"""The exponent of how much narrower a group gets."""


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


def capacity_harm(
    costs: WidthCosts,
    sizes: Mapping[str, int] | None = None,
    measured: HarmOf | None = None,
    hint: float = 0.0,
) -> HarmOf:
    """The harm that is left after training: how much narrower a group got, squared, times its share of the cost.

    Equal shares of all groups are the least harm where costs are smooth. `sizes` are the widths that groups had before any
    pruning, if that was more. With `measured`, the divergence when half of a group is gone, to the power `hint`, makes it count
    more or less.
    """
    whole = max(costs.estimate({}), _LEAST_HARM)
    before = {group.name: group.size for group in costs.dependencies.groups}
    before |= {name: size for name, size in (sizes or {}).items() if name in before}
    shares: dict[str, float] = {}
    divergences: dict[str, float] = {}
    for group in costs.dependencies.groups:
        half = min(costs.choices(group.name), key=lambda width: abs(width - group.size / 2))
        lost = 1 - half / group.size
        saved = 1 - costs.estimate({group.name: half}) / whole
        shares[group.name] = max(saved / lost if lost else 0.0, _LEAST_SHARE)
        divergences[group.name] = measured(group.name, half) if measured is not None else 1.0
    floor = max(_LEAST_SHARE * max(divergences.values(), default=0.0), _LEAST_HARM)
    weights = {name: share * max(divergences[name], floor) ** hint for name, share in shares.items()}
    return lambda name, keep: weights[name] * ((before[name] / keep) ** _NARROW - 1)


def search_widths(costs: WidthCosts, budget: Budget, harm: HarmOf) -> ChosenWidths:
    """The widths that meet the budget with little harm; an error if none do."""
    limit = budget.absolute(costs.whole)
    require_possible(costs, budget)
    aim = limit
    widths = costs.smallest()
    for _ in range(_ATTEMPTS):
        narrower = _shrunk(costs, _whole(costs), aim, harm)
        cost = costs.exact(narrower)
        if cost <= limit:
            widths = _exchanged(costs, narrower, limit, harm)
            break
        aim *= min(limit / cost, 0.995)
    return ChosenWidths(widths, costs.exact(widths), costs.whole, _total(harm, widths))


def _whole(costs: WidthCosts) -> dict[str, int]:
    return {group.name: group.size for group in costs.dependencies.groups}


def _total(harm: HarmOf, widths: Widths) -> float:
    return sum(harm(name, width) for name, width in widths.items())


def _exchanged(costs: WidthCosts, widths: dict[str, int], limit: float, harm: HarmOf) -> dict[str, int]:
    """Better widths of the same cost: one group gets a step wider or narrower, the others make up for it."""
    refused: set[tuple[int, ...]] = set()
    for _ in range(_EXCHANGES):
        # Estimates are compared with what the limit is worth in them here.
        aim = limit * costs.estimate(widths) / costs.exact(widths)
        now = _total(harm, widths)
        trials = [_grown(costs, widths, aim, harm)]
        for name, width in widths.items():
            choices = costs.choices(name)
            at = choices.index(width)
            if at + 1 < len(choices):
                trials.append(_grown(costs, {**widths, name: choices[at + 1]}, aim, harm, name))
            if at:
                wider = {**widths, name: choices[at - 1]}
                trials.append(_grown(costs, _shrunk(costs, wider, aim, harm, name), aim, harm, name))
        better = [
            trial
            for trial in trials
            if _total(harm, trial) < now * (1 - 1e-9) and tuple(trial.values()) not in refused
        ]
        for trial in sorted(better, key=lambda trial: _total(harm, trial)):
            if costs.exact(trial) <= limit:
                widths = trial
                break
            refused.add(tuple(trial.values()))
        else:
            break
    return widths


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


def _shrunk(costs: WidthCosts, widths: Widths, limit: float, harm: HarmOf, fixed: str = "") -> dict[str, int]:
    """Narrower widths whose estimated cost is at most the limit; the group `fixed` stays."""
    widths = dict(widths)
    choices = {name: costs.choices(name) for name in widths}
    now = costs.estimate(widths)
    while now > limit:
        best: tuple[float, str, int, float] | None = None
        for name, width in widths.items():
            for narrower in (choice for choice in choices[name] if choice < width and name != fixed):
                cost = costs.estimate({**widths, name: narrower})
                added = max(harm(name, narrower) - harm(name, width), _LEAST_HARM)
                gain = (now - max(cost, limit)) / added
                if cost < now and (best is None or gain > best[0]):
                    best = gain, name, narrower, cost
        if best is None:
            # No single step saves anything: some layers get faster only when several groups shrink.
            wide = {name: width for name, width in widths.items() if width > choices[name][-1]}
            wide.pop(fixed, None)
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


def _grown(costs: WidthCosts, widths: Widths, limit: float, harm: HarmOf, fixed: str = "") -> dict[str, int]:
    """Give back what the limit leaves: the steps that harmed most, by estimated costs; the group `fixed` stays."""
    widths = dict(widths)
    while True:
        wider = []
        for name, width in widths.items():
            above = [choice for choice in costs.choices(name) if choice > width]
            if above and name != fixed and costs.estimate({**widths, name: above[-1]}) <= limit:
                wider.append((harm(name, width) - harm(name, above[-1]), name, above[-1]))
        if not wider:
            return widths
        _, name, width = max(wider)
        widths[name] = width
