"""Steps one after the other, each kept only if it helps.

A gain counts if it is larger than its standard error over the validation samples: what one or two of them make is chance.
The gain is that of the mean over the slices of the outputs; the worst slice of the worst validation sample may not lose more
than a decibel for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from npuc.errors import EngineError, MissingExtraError, UsageError
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.registries import add_once

WORTH = 0.05
"""Decibels that a step has to gain at least: less is of no use."""
LOSS = 1.0
"""Decibels that the worst slice of the worst validation sample may lose for a gain of the mean."""


class Step(Protocol):
    """One algorithm."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """A network that may be better than the best so far; None if there is nothing here for it to do."""


@dataclass(frozen=True)
class Entry:
    """A step as it is registered."""

    name: str
    words: str
    rank: int
    """Steps run in this order."""
    make: Callable[[], Step]


STEPS: dict[str, Entry] = {}
"""By name. Importing `npuc.quant.ladder.steps` fills it."""

_StepT = TypeVar("_StepT", bound=Callable[[], Step])


def step(name: str, words: str, rank: int) -> Callable[[_StepT], _StepT]:
    """Class decorator: an algorithm of the ladder, what it does in a few words, and its place."""

    def register(cls: _StepT) -> _StepT:
        add_once(STEPS, [name], Entry(name, words, rank, cls), "a step of the ladder")
        return cls

    return register


@dataclass(frozen=True)
class StepResult:
    """What became of one step."""

    name: str
    before: float
    after: float | None
    """None if there was nothing to do."""
    kept: bool
    seconds: float
    reason: str = ""
    """Why it could not be taken, if it could not."""
    standard_error: float = 0.0
    """The standard error of the gain over the validation samples, in decibels."""
    worst: tuple[float, float] | None = None
    """The worst slice of the worst validation sample before and after."""

    @property
    def spoils(self) -> bool:
        """Whether the worst slice pays for the gain of the others."""
        return self.worst is not None and self.worst[1] < self.worst[0] - LOSS

    def __str__(self) -> str:
        if self.after is None:
            return f"{self.name}: {f'left out: {self.reason}' if self.reason else 'nothing to do'}"
        chance = f"may be chance (± {self.standard_error:.2f}), left out"
        gained = self.after - self.before >= WORTH
        if gained and self.spoils and self.worst is not None:
            chance = f"but the worst slice {self.worst[0]:.2f} to {self.worst[1]:.2f} dB, left out"
        verdict = "kept" if self.kept else chance if gained else "no gain, left out"
        return f"{self.name}: {self.before:.2f} to {self.after:.2f} dB, {verdict} ({self.seconds:.1f} s)"


def chosen(names: Sequence[str] | None = None) -> list[Entry]:
    """The steps of these names, or all, in the order in which they run."""
    import npuc.quant.ladder.steps  # noqa: F401

    for name in names or ():
        if name not in STEPS:
            raise UsageError(f"there is no step '{name}'", fix=f"The steps are {', '.join(STEPS)}")
    found = STEPS.values() if names is None else [STEPS[name] for name in names]
    return sorted(found, key=lambda entry: entry.rank)


def run_steps(
    context: QuantizationContext,
    names: Sequence[str] | None = None,
    *,
    start: Candidate | None = None,
    report: Callable[[StepResult], None] = lambda step_result: None,
) -> Candidate:
    """The best network that the steps lead to, from the default or from `start`; `report` hears of each."""
    best = start or context.start()
    for entry in chosen(names):
        step_result, found = attempt(entry, best, context)
        report(step_result)
        best = found or best
    return best


def attempt(
    entry: Entry, best: Candidate, context: QuantizationContext
) -> tuple[StepResult, Candidate | None]:
    """What becomes of a step, and its network if that is better by more than chance."""
    begun = time.perf_counter()
    reason, standard_error, kept = "", 0.0, False
    try:
        found = entry.make().propose(best, context)
    except (MissingExtraError, EngineError) as error:
        found, reason = None, error.paragraph()
    if found is not None:
        gain, standard_error = found.sqnr - best.sqnr, context.standard_error(found.made, best.made)
        kept = gain >= WORTH and gain >= standard_error and context.worst(found) >= context.worst(best) - LOSS
    after = None if found is None else found.sqnr
    worst = None if found is None else (context.worst(best), context.worst(found))
    step_result = StepResult(
        entry.name, best.sqnr, after, kept, time.perf_counter() - begun, reason, standard_error, worst
    )
    return step_result, found if kept else None
