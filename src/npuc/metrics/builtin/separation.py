"""Two classes told apart by a score, as in the detection of anomalies and of wake words: areas under the ROC curve.

The score of a sample is, by `score`: `value`, the one number that the network gives; `class`, the second score less the first;
`error`, the mean squared difference of output and input (an autoencoder), also over several rows. `auto` takes what fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.datasets.sample import Observation
from npuc.errors import EvaluationDataError, UsageError
from npuc.metrics.measuring import metric, of_type, only_output

_SCORES = ("auto", "value", "class", "error")


@dataclass(frozen=True)
class _Separation:
    score: str = "auto"

    def __post_init__(self) -> None:
        if self.score not in _SCORES:
            raise UsageError(f"score cannot be '{self.score}'", fix=f"There are: {', '.join(_SCORES)}")

    def observe(self, observation: Observation) -> list[float]:
        """Whether the sample is of class 1, and its score."""
        truth = int(of_type(observation, (int, np.integer), "class"))
        if truth not in (0, 1):
            raise EvaluationDataError(
                f"its class is {truth}, and the area under a curve is of two classes, 0 and 1",
                where=observation.name,
            )
        return [truth, self._score(observation)]

    def _score(self, observation: Observation) -> float:
        output = only_output(observation, "a score").astype(np.float64)
        given = next(iter(observation.inputs.values()), None)
        same = given is not None and given.size == output.size and output.size > 2
        score = self.score
        if score == "auto":
            score = "error" if same else "value" if output.size == 1 else "class"
        if score == "error" and same:
            assert given is not None
            return float(np.square(output - given.reshape(output.shape).astype(np.float64)).mean())
        if score == "value" and output.size == 1:
            return float(output.reshape(()))
        if score == "class" and output.shape[-1] == 2:
            return float((output[..., 1] - output[..., 0]).mean())
        raise EvaluationDataError(
            f"an output of shape {list(output.shape)} is no {'score' if score == 'auto' else score} of two classes",
            where=observation.name,
            fix="The score is one number, two scores, or the error of an output as large as the input",
        )


@metric("auc", unit="")
@dataclass(frozen=True)
class Auc(_Separation):
    """The area under the ROC curve of two classes."""

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The area; NaN where one class is missing."""
        return {"auc": _areas(records, weights, 1.0)}


@metric("pauc", unit="")
@dataclass(frozen=True)
class PartialAuc(_Separation):
    """The area under the ROC curve up to a rate of false alarms, scaled so that chance is 0.5 and perfection 1."""

    max_fpr: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.max_fpr <= 1:
            raise UsageError(f"max_fpr is {self.max_fpr:g}, not above 0 and at most 1")

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The area; NaN where one class is missing."""
        return {"pauc": _areas(records, weights, self.max_fpr)}


def _areas(records: Sequence[Any], weights: Array, limit: float) -> Array:
    table = np.array(records, np.float64).reshape(-1, 2)
    order = np.argsort(-table[:, 1], kind="stable")
    labels, scores = table[order, 0], table[order, 1]
    # Equal scores make one step of the curve.
    starts = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    areas = np.full(len(weights), np.nan)
    for row, own in enumerate(weights):
        hits, alarms = own[order] * labels, own[order] * (1 - labels)
        if not hits.sum() or not alarms.sum():
            continue
        true = np.concatenate([[0.0], np.cumsum(np.add.reduceat(hits, starts))]) / hits.sum()
        false = np.concatenate([[0.0], np.cumsum(np.add.reduceat(alarms, starts))]) / alarms.sum()
        areas[row] = roc_area(false, true, limit)
    return areas


def roc_area(false: Array, true: Array, limit: float = 1.0) -> float:
    """The area under a curve of rates; below 1, `limit` cuts it, and the result is scaled after McClish."""
    if limit >= 1:
        return float(np.trapezoid(true, false))
    stop = int(np.searchsorted(false, limit, "right"))
    edge = np.interp(limit, false[stop - 1 : stop + 1], true[stop - 1 : stop + 1])
    area = float(np.trapezoid(np.append(true[:stop], edge), np.append(false[:stop], limit)))
    least = limit * limit / 2
    return 0.5 * (1 + (area - least) / (limit - least))
