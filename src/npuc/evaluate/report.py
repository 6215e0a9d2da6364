"""The result of an evaluation: every figure of every model with its interval, and its difference from the first model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.evaluate.intervals import Interval, mcnemar, paired_difference, percentiles, resamples, wilson
from npuc.metrics.measuring import Chosen
from npuc.registries import renamed


@dataclass(frozen=True)
class Confidence:
    """How intervals are made."""

    level: float = 0.95
    draws: int = 500
    """Draws with replacement of a bootstrap; 0: no intervals but those of shares."""
    seed: int = 0


@dataclass(frozen=True)
class PairedDifference:
    """A model less the first model, on the same samples."""

    value: float
    interval: Interval | None
    p_value: float | None = None
    """Of McNemar's exact test, for shares."""


@dataclass(frozen=True)
class Measured:
    """A figure of one model."""

    value: float
    interval: Interval | None
    difference: PairedDifference | None = None
    """None for the first model."""


@dataclass(frozen=True)
class Figure:
    """A figure of all models."""

    metric: str
    name: str
    unit: str
    models: tuple[Measured, ...]
    lower_is_better: bool = False


@dataclass(frozen=True)
class EvaluationReport:
    """What `evaluate` found."""

    models: tuple[str, ...]
    kinds: tuple[str, ...]
    """float, integer or compiled."""
    data: str
    dataset: str
    samples: int
    skipped: tuple[str, ...]
    """Why samples were passed over."""
    resumed: int
    """Samples whose results came from the journal."""
    seconds: float
    confidence: Confidence
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = field(default=())

    def value(self, figure: str, model: int = 0) -> float:
        """A figure by its name, as `report.value("top1")`."""
        return next(candidate for candidate in self.figures if candidate.name == figure).models[model].value

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def measure(
    chosen: Chosen,
    position: int,
    results: Sequence[Any],
    truths: Sequence[Any],
    models: int,
    confidence: Confidence,
) -> list[Figure]:
    """The figures of one metric; `results` are records by sample, model and metric."""
    count = len(results)
    records = [[result[model][position] for result in results] for model in range(models)]
    ones = np.ones((1, count))
    values = [chosen.metric.measure(own, truths, ones) for own in records]
    draws: list[dict[str, Array]] = []
    if not chosen.kind.proportion and confidence.draws and count > 1:
        # One model after the other: a metric may keep what it made of the records it saw last.
        draws = [_draws(chosen, own, truths, confidence) for own in records]
    figures = []
    for name in values[0]:
        measured = []
        for model in range(models):
            value = float(values[model][name][0])
            less = None
            if chosen.kind.proportion:
                right = np.array(records[model], np.float64)
                interval: Interval | None = wilson(float(right.sum()), count, confidence.level)
                if model:
                    first = np.array(records[0], np.float64)
                    ends = paired_difference(right, first, confidence.level)
                    less = PairedDifference(value - float(values[0][name][0]), ends, mcnemar(right, first))
            else:
                interval = percentiles(draws[model][name], confidence.level) if draws else None
                if model:
                    less = _less(value, float(values[0][name][0]), draws, model, name, confidence)
            measured.append(Measured(value, interval, less))
        kind = chosen.kind
        figures.append(Figure(chosen.text, name, kind.unit, tuple(measured), kind.lower_is_better))
    return figures


def _less(
    value: float, first: float, draws: list[dict[str, Array]], model: int, name: str, confidence: Confidence
) -> PairedDifference:
    with np.errstate(invalid="ignore"):
        # Infinite less infinite (no error at all, twice) is no difference.
        delta = 0.0 if value == first else value - first
        if not draws:
            return PairedDifference(delta, None)
        a, b = draws[model][name], draws[0][name]
        return PairedDifference(delta, percentiles(np.where(a == b, 0.0, a - b), confidence.level))


def _draws(
    chosen: Chosen, records: Sequence[Any], truths: Sequence[Any], confidence: Confidence
) -> dict[str, Array]:
    parts: dict[str, list[Array]] = {}
    for weights in resamples(len(records), confidence.draws, confidence.seed):
        for name, values in chosen.metric.measure(records, truths, weights).items():
            parts.setdefault(name, []).append(np.asarray(values))
    return {name: np.concatenate(chunks) for name, chunks in parts.items()}


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Report": EvaluationReport})
