"""The search for an accuracy goal: the goal, the networks measured so far, and their checks on held-back samples.

The labelled samples are split in two. All networks are measured on the first part, which steers the search; the best of many
measurements is too optimistic. So a network is accepted only if it also meets the goal on the second part, which is held back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from npuc.ir import Graph
from npuc.quant.ladder.context import Candidate
from npuc.quant.mixed_precision.cost_model import CostModel

POINTS = " points"
"""The unit of differences of shares."""


@dataclass(frozen=True)
class Loss:
    """The loss of a network against float, on the same samples."""

    value: float
    interval: tuple[float, float]
    """The 95 % confidence interval of the loss on samples of this kind."""

    @property
    def spread(self) -> float:
        """The larger distance from the value to an end of the interval."""
        low, high = self.interval
        return max(high - self.value, self.value - low)


@dataclass(frozen=True)
class Goal:
    """How much of a metric may be lost."""

    measure: Callable[[Graph], float]
    """Computes the metric of an integer network on the steering samples."""
    exact: float
    """The metric of the float network."""
    drop: float
    metric: str = "the metric"
    unit: str = ""
    lower_is_better: bool = False
    samples: int = 0
    """The number of steering samples."""
    confirm: Callable[[Graph], Loss] | None = None
    """Computes the loss of an integer network on the held-back samples; None if there are none."""
    held_back: int = 0
    """The number of held-back samples."""
    grain: float = 0.0
    """The change of the metric by one held-back sample, if the metric is a share of samples."""

    def lost(self, figure: float) -> float:
        """By how much a figure is worse than float."""
        return (figure - self.exact if self.lower_is_better else self.exact - figure) + 0.0

    def shown(self, value: float, sign: str = "") -> str:
        """A figure or a difference as text."""
        return f"{value:{sign}.2f}" if self.unit == POINTS else f"{value:{sign}.5g}"

    def allows(self, lost: float) -> bool:
        """Whether a loss is allowed, with a tolerance for rounding."""
        return lost <= self.drop + 1e-9

    def met_by(self, figure: float) -> bool:
        """Whether a figure is good enough."""
        return self.allows(self.lost(figure))

    def confirmed_by(self, lost: float) -> bool:
        """Whether a loss is allowed on the held-back samples: the allowed drop is rounded up to whole samples.

        >>> Goal(lambda network: 0.0, 90.0, 0.4, grain=0.5).confirmed_by(0.5)
        True
        """
        allowed = self.grain * ceil(self.drop / self.grain - 1e-9) if self.grain else self.drop
        return lost <= allowed + 1e-9


@dataclass(frozen=True)
class Measurement:
    """The metric and the cycles of one network."""

    words: str
    figure: float
    lost: float
    met: bool
    cycles: int | None
    """None if it does not compile."""
    seconds: float
    candidate: Candidate = field(repr=False)

    @property
    def sqnr(self) -> float:
        """The SQNR of its outputs, in decibels."""
        return self.candidate.sqnr

    @property
    def cycles_or_inf(self) -> float:
        """The cycles as a sort key; infinite if the network does not compile."""
        return float("inf") if self.cycles is None else float(self.cycles)


@dataclass(frozen=True)
class GoalCheck:
    """The check of a network that met the goal, on the held-back samples."""

    measurement: Measurement
    loss: Loss
    met: bool
    seconds: float

    def words(self, goal: Goal) -> str:
        """Both losses in words, with the confidence of the second."""
        return (
            f"drop {goal.shown(self.measurement.lost)}{goal.unit} (steering, {goal.samples} samples), "
            f"{goal.shown(self.loss.value)} ± {goal.shown(self.loss.spread)} on {goal.held_back} held-back samples"
        )


@dataclass(frozen=True)
class GoalResult:
    """The chosen network, and all measurements and checks of the search."""

    best: Measurement
    measurements: tuple[Measurement, ...]
    checks: tuple[GoalCheck, ...] = ()
    """The checks in order, including that of the chosen network."""

    def check_of(self, measurement: Measurement) -> GoalCheck | None:
        """The check of a network, if there was one."""
        return next((check for check in self.checks if check.measurement is measurement), None)


class MeasurementLog:
    """The measurements and checks of a search, in order."""

    def __init__(
        self, goal: Goal, cost_model: CostModel, report: Callable[[Measurement | GoalCheck], None]
    ) -> None:
        self.goal, self.cost_model, self.report = goal, cost_model, report
        self.measurements: list[Measurement] = []
        self.checks: list[GoalCheck] = []

    def measured(self, words: str, candidate: Candidate, begun: float | None = None) -> Measurement:
        """Measure a network."""
        begun = time.perf_counter() if begun is None else begun
        figure, cycles = self.goal.measure(candidate.quantized), self.cost_model.network(candidate.quantized)
        # A network that does not compile cannot meet the goal, unless the first network did not compile either.
        runs = cycles is not None or not self.measurements or self.measurements[0].cycles is None
        measurement = Measurement(
            words,
            figure,
            self.goal.lost(figure),
            runs and self.goal.met_by(figure),
            cycles,
            time.perf_counter() - begun,
            candidate,
        )
        self.measurements.append(measurement)
        self.report(measurement)
        return measurement

    def is_good(self, measurement: Measurement) -> bool:
        """Whether a network meets the goal on the steering and on the held-back samples; it is checked once."""
        if not measurement.met or self.goal.confirm is None:
            return measurement.met
        known = self._checked(measurement)
        if known is None:
            begun = time.perf_counter()
            loss = self.goal.confirm(measurement.candidate.quantized)
            known = GoalCheck(
                measurement, loss, self.goal.confirmed_by(loss.value), time.perf_counter() - begun
            )
            self.checks.append(known)
            self.report(known)
        return known.met

    def may_be_good(self, measurement: Measurement) -> bool:
        """Whether a network meets the goal on the steering samples, and no check has failed."""
        known = self._checked(measurement)
        return measurement.met and (known is None or known.met)

    def best(self) -> Measurement | None:
        """The network with the fewest cycles that meets the goal on all samples.

        After a failed check, only networks with a smaller loss or a higher SQNR are checked.
        """
        failed: list[Measurement] = []
        for measurement in sorted(
            (earlier for earlier in self.measurements if earlier.met),
            key=lambda earlier: (earlier.cycles_or_inf, earlier.lost),
        ):
            is_checked = self._checked(measurement) is not None
            if not is_checked and any(
                measurement.lost >= earlier.lost and measurement.sqnr <= earlier.sqnr for earlier in failed
            ):
                continue
            if self.is_good(measurement):
                return measurement
            failed.append(measurement)
        return None

    def _checked(self, measurement: Measurement) -> GoalCheck | None:
        return next((check for check in self.checks if check.measurement is measurement), None)
