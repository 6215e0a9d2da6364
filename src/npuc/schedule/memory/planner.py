"""The planner: heuristics, then the exact search, until a plan is as small as the lower bound or the steps are spent.

With a capacity any plan within it will do, and the first one found is taken. Without one the plan is made as small as
possible: the search tries the lower bound first and then halves the distance between what is proven impossible (or not
found) and what was found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from npuc.arrays import ceil_div
from npuc.errors import MemoryPlanError
from npuc.schedule.memory import core
from npuc.schedule.memory.banks import shared_pairs, spread
from npuc.schedule.memory.core import Ints, Longs
from npuc.schedule.memory.model import Banks, Buffer, MemoryPlan
from npuc.schedule.memory.problem import Problem, build, check, groups_of

STEPS = 30_000_000
"""Steps unless told otherwise: about a second."""

_CLIMB_SHARE = 8  # an eighth of the steps is for climbing
_FIRST_ROUND = 200  # steps of a rank in the first round of the search, times the number of items


def plan(
    buffers: Iterable[Buffer],
    capacity: int | None = None,
    *,
    aliases: Iterable[Sequence[str]] = (),
    may_alias: Iterable[Sequence[str]] = (),
    banks: Banks | None = None,
    steps: int = STEPS,
    seconds: float | None = None,
) -> MemoryPlan:
    """Addresses for buffers, below `capacity` if one is given.

    The buffers of each group in `aliases` get the same address; those of a group in `may_alias` get the same one if that
    helps. `steps` bounds the work; the result does not depend on the speed of the machine. `seconds` also bounds the time,
    as a last resort: with it the result may differ from run to run.

    >>> plan([Buffer("a", 4, 0, 2), Buffer("b", 2, 1, 3), Buffer("c", 4, 2, 4)]).size
    6
    """
    given = tuple(buffers)
    groups, optional = [tuple(g) for g in aliases if g], [tuple(g) for g in may_alias if g]
    if capacity is not None and capacity < 0:
        raise MemoryPlanError(f"a capacity of {capacity} makes no sense")
    check(given, banks)
    if not given:
        return MemoryPlan((), {}, 0, 0, True, "nothing to place")
    budget = _Budget(steps, None if seconds is None else time.monotonic() + seconds)
    merged = groups_of(given, [*groups, *optional])
    problem = build(given, merged, banks)
    apart = groups_of(given, groups)
    best = _solve(problem, capacity, budget)
    if apart != merged:
        best = _compare(best, problem, _solve(build(given, apart, banks), capacity, budget), capacity)
    if isinstance(best, MemoryPlanError):
        raise best
    if banks is not None and banks.apart:
        room = best.size if capacity is None else capacity
        addresses = spread(given, best.addresses, banks, room, merged if apart == merged else apart)
        size = max(addresses[b.name] + b.size for b in given)
        pairs = shared_pairs(given, addresses, banks)
        best = replace(
            best, addresses=addresses, size=size, shared=pairs, proven=best.proven and size == best.size
        )
    return best


def _compare(
    together: MemoryPlan | MemoryPlanError,
    problem: Problem,
    apart: MemoryPlan | MemoryPlanError,
    capacity: int | None,
) -> MemoryPlan | MemoryPlanError:
    """The better of two plans: with all that may share an address sharing it, and with none of it."""
    if isinstance(together, MemoryPlanError):
        best = apart
    elif isinstance(apart, MemoryPlanError) or together.size <= apart.size:
        best = together
    else:
        best = apart
    if isinstance(best, MemoryPlanError):
        return best
    # Sharing some of it could be smaller still, but not than the bound of sharing all.
    bound = min(problem.lower_bound, best.size)
    return replace(best, lower_bound=bound, proven=best.size == bound)


@dataclass
class _Budget:
    left: int
    deadline: float | None

    def spend(self, steps: int) -> None:
        self.left -= steps

    @property
    def over(self) -> bool:
        return self.left <= 0 or (self.deadline is not None and time.monotonic() > self.deadline)


def _solve(problem: Problem, capacity: int | None, budget: _Budget) -> MemoryPlan | MemoryPlanError:
    try:
        _refuse(problem, capacity)
    except MemoryPlanError as error:
        return error
    enough = problem.lower_bound if capacity is None else capacity
    best = _Best(problem)
    _heuristics(best, capacity, enough, budget)
    impossible = problem.lower_bound - 1  # the largest size that is proven impossible
    if best.size is None or best.size > enough:
        impossible = _exact(best, enough, impossible, budget, only=capacity is not None)
    if best.size is None or (capacity is not None and best.size > capacity):
        return _failure(problem, best, capacity, impossible)
    assert best.address is not None
    return MemoryPlan(
        problem.buffers,
        problem.addresses(best.address),
        best.size,
        problem.lower_bound if impossible < best.size - 1 else max(problem.lower_bound, best.size),
        impossible >= best.size - 1,
        best.method,
    )


def _refuse(problem: Problem, capacity: int | None) -> None:
    fixed = [(k, b) for k, b in enumerate(problem.buffers) if b.fixed is not None]
    fixed.sort(key=lambda entry: (entry[1].start, entry[0]))
    group = {k: g for g, members in enumerate(problem.groups) for k in members}
    for i, (k, a) in enumerate(fixed):
        for m, b in fixed[i + 1 :]:
            if b.start >= a.end:
                break
            assert a.fixed is not None and b.fixed is not None
            if group[k] != group[m] and a.fixed < b.fixed + b.size and b.fixed < a.fixed + a.size:
                raise MemoryPlanError(
                    f"'{a.name}' at {a.fixed} and '{b.name}' at {b.fixed} share memory and are alive together",
                    fix="Fix one of them elsewhere",
                )
    if capacity is None:
        return
    for b in problem.buffers:
        if (b.fixed or 0) + b.size > capacity:
            at = f" at {b.fixed}" if b.fixed else ""
            raise MemoryPlanError(
                f"{b.size:,} bytes{at} do not fit a memory of {capacity:,}", where=f"buffer '{b.name}'"
            )
    if problem.lower_bound > capacity:
        raise MemoryPlanError(
            f"the buffers need at least {problem.lower_bound:,} bytes at one moment, but the memory has {capacity:,}"
        )


def _failure(problem: Problem, best: _Best, capacity: int | None, impossible: int) -> MemoryPlanError:
    reached = "" if best.size is None else f"; the smallest plan found has {best.size:,}"
    bound = f"the lower bound is {problem.lower_bound:,}"
    if capacity is None:
        return MemoryPlanError(
            f"no plan was found that keeps all fixed positions ({bound})", fix="Allow more steps"
        )
    if impossible >= capacity:
        return MemoryPlanError(f"it is proven that no plan fits {capacity:,} bytes ({bound}{reached})")
    return MemoryPlanError(
        f"no plan was found that fits {capacity:,} bytes ({bound}{reached})",
        fix="Allow more steps or a larger memory",
    )


@dataclass
class _Best:
    problem: Problem
    size: int | None = None
    address: Longs | None = None
    method: str = ""

    def offer(self, address: Longs, method: str) -> None:
        size = self.problem.size(address)
        if self.size is None or size < self.size:
            self.size, self.address, self.method = size, address, method


def _heuristics(best: _Best, capacity: int | None, enough: int, budget: _Budget) -> None:
    problem = best.problem
    items = problem.items
    reached: list[tuple[int, Ints]] = []
    for name, order in _orders(problem):
        for tight in (False, True):
            peak, address = core.greedy(items, order, tight)
            if peak < 0:
                continue
            best.offer(address, f"greedy by {name}{', smallest gap' if tight else ''}")
            reached.append((peak, order))
            assert best.size is not None
            if best.size <= enough:
                return
    # Climbing has to place everything again for one change, so large problems get a few hundred changes at least.
    share = min(budget.left // _CLIMB_SHARE, max(2_000_000, 500 * items.count))
    if reached and share > 0:
        order = min(reached, key=lambda entry: entry[0])[1]
        _, address, used = core.climb(items, order, enough // problem.unit, share)
        budget.spend(used)
        best.offer(address, "climbing")


def _orders(problem: Problem) -> Iterator[tuple[str, Ints]]:
    """Orders of items, the most demanding first; what cannot move comes before everything else."""
    items = problem.items
    first = items.first[:-1]
    size = np.maximum.reduceat(items.size, first)
    spans = (items.end - items.start).astype(np.int64)
    area = np.add.reduceat(spans * items.size, first)
    life = np.add.reduceat(spans, first)
    bound = items.high < core.LARGEST
    for name, keys in (("size", (size, life)), ("area", (area, size)), ("lifetime", (life, size))):
        yield name, np.lexsort([*(-key for key in reversed(keys)), ~bound]).astype(np.int32)


def _ranks(problem: Problem) -> list[tuple[int, Ints]]:
    """Modes and ranks for the search, in the order in which they are tried; the last is the best at proofs."""
    items = problem.items
    first = items.first[:-1]
    members = [problem.buffers[k] for group in problem.groups for k in group]
    times = np.array([float(b.end) - float(b.start) for b in members])
    begin = np.minimum.reduceat(items.start, first)
    end = np.maximum.reduceat(items.end, first)
    # How many are alive at some time between its first and its last section.
    met = np.searchsorted(np.sort(begin), end, "left") - np.searchsorted(np.sort(end), begin, "right")
    life = np.add.reduceat(times, first)
    area = np.add.reduceat(times * items.size, first)
    sections = (end - begin).astype(float)
    orders = [
        np.lexsort([-key for key in reversed(keys)]).astype(np.int32)
        for keys in ((life, area), (sections, area), (area, life), (met.astype(float), area))
    ]
    ranks = [(mode, order) for order in orders for mode in (core.PRESSED, 0)]
    return [*ranks, (core.PRESSED | core.TWINS, orders[0])]


def _exact(best: _Best, enough: int, impossible: int, budget: _Budget, only: bool) -> int:
    """Search for `enough` and, unless only that counts, for what lies above; returns what is proven impossible.

    A size that was not found within its share of the steps is given up, and so is everything below it.
    """
    problem = best.problem
    # Without rounding, sizes of plans are multiples of the unit.
    grain = 1 if (problem.heights % problem.unit).any() else problem.unit
    low = target = enough
    while not budget.over and (best.size is None or low < best.size):
        verdict = _search(best, target, budget.left if only else ceil_div(budget.left, 2), budget)
        if verdict is False:
            impossible = target + grain - 1
        if only or best.size is None:
            break
        if verdict is not True:
            low = target + grain
        target = low + (best.size - low) // 2 // grain * grain
    return impossible


def _search(best: _Best, target: int, share: int, budget: _Budget) -> bool | None:
    """Try orders in turn, each round with twice the steps of the one before."""
    problem = best.problem
    items = problem.limited(target)
    capacity = ceil_div(target, problem.unit)
    limit = _FIRST_ROUND * items.count
    left = share
    ranks = _ranks(problem)
    while left > 0 and not budget.over:
        for mode, order in ranks:
            verdict, address, used = core.search(items, order, mode, capacity, min(limit, left))
            left -= used
            budget.spend(used)
            if verdict is True:
                best.offer(address, "exact search")
            if verdict is not None:
                return verdict
            if not used:
                return None  # too many items for the search, which took no step
            if left <= 0 or budget.over:
                break
        limit *= 2
    return None
