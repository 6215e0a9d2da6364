"""The way to an accuracy: what may be lost, the networks that were measured, and what held-back samples say of them.

Labelled samples are in two parts. One steers: all networks are measured on it, and the best figures among many flatter. The
other is held back: the network that would be the result has to keep its promise there too.
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
    """What a network loses against float, on the same samples."""

    value: float
    interval: tuple[float, float]
    """Where it is, with 95 % confidence, on all samples of this kind."""

    @property
    def spread(self) -> float:
        """The larger of the ways to the ends of the interval."""
        low, high = self.interval
        return max(high - self.value, self.value - low)


@dataclass(frozen=True)
class Goal:
    """How much of a metric may be lost."""

    measure: Callable[[Graph], float]
    """The figure of an integer network on the samples that steer."""
    exact: float
    """That of the float network."""
    drop: float
    metric: str = "the metric"
    unit: str = ""
    lower_is_better: bool = False
    samples: int = 0
    """That steer."""
    confirm: Callable[[Graph], Loss] | None = None
    """What an integer network loses on the samples that are held back; None if there are none."""
    held_back: int = 0
    grain: float = 0.0
    """What one of these is in the figure, where it is a share of samples."""

    def lost(self, figure: float) -> float:
        """What a figure is worse than float."""
        return (figure - self.exact if self.lower_is_better else self.exact - figure) + 0.0

    def shown(self, value: float, sign: str = "") -> str:
        """A figure, or a difference, in as many digits as it needs."""
        return f"{value:{sign}.2f}" if self.unit == POINTS else f"{value:{sign}.5g}"

    def allows(self, lost: float) -> bool:
        """Whether so much may be lost; sums of rounded shares may."""
        return lost <= self.drop + 1e-9

    def met_by(self, figure: float) -> bool:
        """Whether a figure is good enough."""
        return self.allows(self.lost(figure))

    def confirmed_by(self, lost: float) -> bool:
        """Whether so much may be lost on the samples that are held back: the drop, rounded up to whole samples.

        >>> Goal(lambda made: 0.0, 90.0, 0.4, grain=0.5).confirmed_by(0.5)
        True
        """
        whole = self.grain * ceil(self.drop / self.grain - 1e-9) if self.grain else self.drop
        return lost <= whole + 1e-9


@dataclass(frozen=True)
class Measurement:
    """A network that was measured on the way."""

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
        """Of its outputs, in decibels."""
        return self.candidate.sqnr

    @property
    def price(self) -> float:
        """Cycles, for comparison."""
        return float("inf") if self.cycles is None else float(self.cycles)


@dataclass(frozen=True)
class Check:
    """A network that met the goal, on the samples that are held back."""

    measurement: Measurement
    loss: Loss
    met: bool
    seconds: float

    def words(self, goal: Goal) -> str:
        """Both losses, and how sure the second is."""
        return (
            f"drop {goal.shown(self.measurement.lost)}{goal.unit} (steering, {goal.samples} samples), "
            f"{goal.shown(self.loss.value)} ± {goal.shown(self.loss.spread)} on {goal.held_back} held-back samples"
        )


@dataclass(frozen=True)
class GoalResult:
    """The way that was taken."""

    best: Measurement
    measurements: tuple[Measurement, ...]
    checks: tuple[Check, ...] = ()
    """Of the networks that were asked to keep their promise, in order; the best is among them."""

    def check_of(self, measurement: Measurement) -> Check | None:
        """What the samples that are held back say of a network, if they were asked."""
        return next((check for check in self.checks if check.measurement is measurement), None)


class MeasurementLog:
    """The networks that were measured, in order."""

    def __init__(
        self, goal: Goal, cost_model: CostModel, report: Callable[[Measurement | Check], None]
    ) -> None:
        self.goal, self.cost_model, self.report = goal, cost_model, report
        self.measurements: list[Measurement] = []
        self.checks: list[Check] = []

    def measured(self, words: str, candidate: Candidate, begun: float | None = None) -> Measurement:
        """Measure a network."""
        begun = time.perf_counter() if begun is None else begun
        figure, cycles = self.goal.measure(candidate.made), self.cost_model.network(candidate.made)
        # Types that the compiler has no instructions for are of no use, unless the network is not for this machine at all.
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
        """Whether a network meets the goal where it steers, and on the samples that are held back; asks them once."""
        if not measurement.met or self.goal.confirm is None:
            return measurement.met
        known = self._checked(measurement)
        if known is None:
            begun = time.perf_counter()
            loss = self.goal.confirm(measurement.candidate.made)
            known = Check(measurement, loss, self.goal.confirmed_by(loss.value), time.perf_counter() - begun)
            self.checks.append(known)
            self.report(known)
        return known.met

    def may_be_good(self, measurement: Measurement) -> bool:
        """Whether a network meets the goal where it steers, and nothing is known against it."""
        known = self._checked(measurement)
        return measurement.met and (known is None or known.met)

    def best(self) -> Measurement | None:
        """The network of the fewest cycles that is good; after one that is not, those that promise more."""
        failed: list[Measurement] = []
        for measurement in sorted(
            (one for one in self.measurements if one.met), key=lambda one: (one.price, one.lost)
        ):
            asked = self._checked(measurement) is not None
            if not asked and any(
                measurement.lost >= one.lost and measurement.sqnr <= one.sqnr for one in failed
            ):
                continue
            if self.is_good(measurement):
                return measurement
            failed.append(measurement)
        return None

    def _checked(self, measurement: Measurement) -> Check | None:
        return next((check for check in self.checks if check.measurement is measurement), None)
