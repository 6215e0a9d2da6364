"""Successive halving: bounds for all machines, a quick compilation for some, the compiler at its full level for the best.

A machine that was compiled for is better than another for certain if its figures dominate even the other's bounds: such
machines are closed without being compiled for. What is left is open, and is compiled for in rounds, the most promising first
(by what the quick rung says of the effect of each parameter, `estimates`), until nothing is open (then the front is that of all
machines) or the number of machines that a user allows is used up (then the result says how many are open). Rounds do not depend
on who compiles, or how fast: every way to run gives the same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.explore.estimates import estimated
from npuc.explore.pareto import dominated, pick

_GOLDEN = (5**0.5 - 1) / 2
ROUND = 8
"""Machines that are compiled for between two looks at what is still open."""


@dataclass(frozen=True)
class SearchOptions:
    """How far the search goes."""

    machines: int = 32
    """Machines that are compiled for at the full level, at most."""
    level: int = 2
    quick_level: int = 1
    """The level of the rung before, in which up to twice as many machines take part: half of them by their bounds, half from all
    over the space."""


@dataclass(frozen=True)
class SearchResult:
    """What a search knows; indices are those of the bounds."""

    quick: dict[int, Array]
    """Figures at the quick level."""
    full: dict[int, Array]
    """Figures at the full level."""
    failed: dict[int, str]
    """Machines that a network cannot be compiled for, and why."""
    open: tuple[int, ...]
    """Machines that may be better than those of the front, as far as their bounds tell."""


Compile = Callable[[Sequence[int], int], dict[int, Array | str]]
"""Machines and a level in; the figures of each out, or why there are none."""


def search(bounds: Array, choices: Array, compile_for: Compile, options: SearchOptions) -> SearchResult:
    """Search machines by their bounds, one row of figures for each; `choices` has the numbers of their parameter values."""
    quick: dict[int, Array] = {}
    full: dict[int, Array] = {}
    failed: dict[int, str] = {}
    alive = np.ones(len(bounds), bool)

    def run(machines: Sequence[int], level: int, into: dict[int, Array]) -> None:
        for machine, result in sorted(compile_for(machines, level).items()):
            if isinstance(result, str):
                failed[machine] = result
                alive[machine] = False
            else:
                into[machine] = result

    if len(bounds) > options.machines:
        best = pick(bounds, np.flatnonzero(alive), np.zeros(0, np.int64), options.machines)
        spread = _all_over(len(bounds), options.machines)
        run(sorted({*best, *spread}), options.quick_level, quick)
    while alive.any() and len(full) < options.machines:
        estimates = estimated(bounds, choices, {**quick, **full})
        count = min(ROUND, options.machines - len(full))
        chosen = pick(estimates, np.flatnonzero(alive), np.array(sorted(full), np.int64), count)
        run(chosen, options.level, full)
        alive[chosen] = False
        if full:
            open_now = np.flatnonzero(alive)
            reached = np.array([full[machine] for machine in sorted(full)])
            alive[open_now[dominated(bounds[open_now], reached)]] = False
    return SearchResult(quick, full, failed, tuple(int(machine) for machine in np.flatnonzero(alive)))


def _all_over(count: int, steps: int) -> list[int]:
    """Numbers below `count` that are spread evenly, in steps of the golden section: every value of every parameter is met.

    >>> _all_over(10, 4)
    [0, 6, 2, 8]
    """
    return list(dict.fromkeys(int(count * ((number * _GOLDEN) % 1.0)) for number in range(steps)))
