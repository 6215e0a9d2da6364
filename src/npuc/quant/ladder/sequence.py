"""Steps run in sequence, each kept only if it improves the network.

The gain is that of the mean over the slices of the outputs, cross-validated where the samples chose among several networks.
It has to be larger than its standard error over the validation samples, so that one or two of them do not decide, or nearly
all samples have to share it; single samples have to gain on the mean, too; and the worst slice of the worst validation sample
may not lose more than a decibel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar

from npuc.errors import EngineError, MissingExtraError, UsageError
from npuc.quant.ladder.context import Candidate, QuantizationContext
from npuc.registries import Registry

WORTH = 0.05
"""The smallest gain of a step that counts, in decibels."""
LOSS = 1.0
"""The decibels that the worst slice of the worst validation sample may lose if the mean gains."""


class Step(Protocol):
    """An algorithm of the ladder."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        """A network that may be better than the best so far; None if the algorithm does not apply."""


@dataclass(frozen=True)
class RegisteredStep:
    """A step as registered."""

    name: str
    words: str
    rank: int
    """Steps run in this order."""
    make: Callable[[], Step]


STEPS: Registry[str, RegisteredStep] = Registry("a step of the ladder", provider="npuc.quant.ladder.steps")
"""The registered steps by name."""

_StepT = TypeVar("_StepT", bound=Callable[[], Step])


def step(name: str, words: str, rank: int, *, replace: bool = False) -> Callable[[_StepT], _StepT]:
    """Class decorator that registers a step: its name, a short description, and its rank in the order."""

    def register(cls: _StepT) -> _StepT:
        STEPS.add([name], RegisteredStep(name, words, rank, cls), replace=replace)
        return cls

    return register


@dataclass(frozen=True)
class StepResult:
    """The result of one step."""

    name: str
    before: float
    after: float | None
    """None if the step did not apply."""
    kept: bool
    seconds: float
    reason: str = ""
    """Why the step could not run, if it could not."""
    standard_error: float = 0.0
    """The standard error of the gain over the validation samples, in decibels."""
    worst: tuple[float, float] | None = None
    """The worst slice of the worst validation sample before and after."""
    gain: float | None = None
    """The gain in decibels, cross-validated if the network is the best of several; None: that of the figures."""
    sample_gain: float = 0.0
    """The mean gain of single validation samples, in decibels."""

    @property
    def loses_worst_slice(self) -> bool:
        """Whether the worst slice loses too much for the gain of the mean."""
        return self.worst is not None and self.worst[1] < self.worst[0] - LOSS

    def __str__(self) -> str:
        if self.after is None:
            return f"{self.name}: {f'left out: {self.reason}' if self.reason else 'nothing to do'}"
        chance = f"may be chance (± {self.standard_error:.2f}), left out"
        gained = self.after - self.before >= WORTH
        if gained and self.gain is not None and self.gain < self.after - self.before - 0.01:
            chance = f"but {self.gain:+.2f} ± {self.standard_error:.2f} dB cross-validated, left out"
        if gained and self.sample_gain < 0:
            chance = f"but {self.sample_gain:+.2f} dB on the mean of single samples, left out"
        if gained and self.loses_worst_slice and self.worst is not None:
            chance = f"but the worst slice {self.worst[0]:.2f} to {self.worst[1]:.2f} dB, left out"
        verdict = "kept" if self.kept else chance if gained else "no gain, left out"
        return f"{self.name}: {self.before:.2f} to {self.after:.2f} dB, {verdict} ({self.seconds:.1f} s)"


def chosen(names: Sequence[str] | None = None) -> list[RegisteredStep]:
    """The steps of these names, or all, in the order in which they run."""
    for name in names or ():
        if name not in STEPS:
            raise UsageError(f"there is no step '{name}'", fix=f"The steps are {', '.join(STEPS)}")
    selected = STEPS.values() if names is None else [STEPS[name] for name in names]
    return sorted(selected, key=lambda entry: entry.rank)


def run_steps(
    context: QuantizationContext,
    names: Sequence[str] | None = None,
    *,
    start: Candidate | None = None,
    report: Callable[[StepResult], None] = lambda step_result: None,
    enough: float = inf,
) -> Candidate:
    """The best network after the steps, from the default or from `start`; `report` is called with each result.

    Steps are left out as soon as the network has `enough` decibels on the validation samples.
    """
    best = start or context.start()
    for entry in chosen(names):
        if best.sqnr >= enough:
            break
        step_result, proposed = attempt(entry, best, context)
        report(step_result)
        best = proposed or best
    return best


def attempt(
    entry: RegisteredStep, best: Candidate, context: QuantizationContext
) -> tuple[StepResult, Candidate | None]:
    """The result of one step, and its network if it is significantly better."""
    begun = time.perf_counter()
    reason, gain, sample_gain, standard_error, kept = "", 0.0, 0.0, 0.0, False
    try:
        proposed = entry.make().propose(best, context)
    except (MissingExtraError, EngineError) as error:
        proposed, reason = None, error.paragraph()
    if proposed is not None:
        gain = context.gain(proposed, best)
        sample_gain = float(context.sample_gains(proposed.quantized, best.quantized).mean())
        standard_error = context.standard_error(proposed.quantized, best.quantized)
        kept = is_better(proposed, best, context)
    after = None if proposed is None else proposed.sqnr
    worst = None if proposed is None else (context.worst(best), context.worst(proposed))
    step_result = StepResult(
        entry.name,
        best.sqnr,
        after,
        kept,
        time.perf_counter() - begun,
        reason,
        standard_error,
        worst,
        gain,
        sample_gain,
    )
    return step_result, proposed if kept else None


def is_better(candidate: Candidate, baseline: Candidate, context: QuantizationContext) -> bool:
    """Whether a network is ahead of another by more than chance on the validation samples."""
    gain = context.gain(candidate, baseline)
    return (
        gain >= WORTH
        and is_ahead(candidate, baseline, context)
        and (
            gain >= context.standard_error(candidate.quantized, baseline.quantized)
            or context.gains_in_most_samples(candidate.quantized, baseline.quantized)
        )
    )


def is_ahead(candidate: Candidate, baseline: Candidate, context: QuantizationContext) -> bool:
    """Whether a network is closer to float on all validation samples together, on the mean of single ones, and not lost in one.

    A few samples with large errors can make most of the error of all together; what they alone gain, others need not share.
    """
    return (
        context.gain(candidate, baseline) >= 0
        and context.sample_gains(candidate.quantized, baseline.quantized).mean() >= 0
        and context.worst(candidate) >= context.worst(baseline) - LOSS
    )
