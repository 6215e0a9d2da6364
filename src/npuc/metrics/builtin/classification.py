"""Classification: whether the right class is among the best scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.datasets.sample import Observation
from npuc.errors import EvaluationDataError
from npuc.metrics.measuring import metric, of_type, only_output, weighted_mean
from npuc.runtime.postprocess import top_k


def class_scores(observation: Observation) -> tuple[Array, int]:
    """The scores of the classes, and the right class; of several rows of scores, their mean."""
    scores = only_output(observation, "a class")
    truth = int(of_type(observation, (int, np.integer), "class"))
    rows = scores.reshape(len(scores), -1) if scores.ndim > 1 else scores.reshape(1, -1)
    values: Array = rows.mean(axis=0, dtype=np.float64) if len(rows) > 1 else rows[0]
    if not 0 <= truth < max(values.size, 2):
        raise EvaluationDataError(
            f"its class is {truth}, and the model has scores for {values.size} classes (0 to {values.size - 1})",
            where=observation.name,
            fix="Check the labels; --label-offset shifts them, for a model with a class more",
        )
    return values, truth


@metric("top1", task="classification", unit="%", proportion=True)
def top1(observation: Observation) -> float:
    """The share of samples whose class has the best score (of equal scores the lower class)."""
    scores, truth = class_scores(observation)
    return float(top_k(scores, 1)[0][0] == truth)


@metric("top5", task="classification", unit="%", proportion=True)
def top5(observation: Observation) -> float:
    """The share of samples whose class is among the five best scores."""
    scores, truth = class_scores(observation)
    return float(truth in top_k(scores, 5)[0])


@metric("topk", unit="%", proportion=True)
@dataclass(frozen=True)
class TopKMetric:
    """The share of samples whose class is among the `k` best scores."""

    k: int = 3

    def observe(self, observation: Observation) -> float:
        """1 if it is."""
        scores, truth = class_scores(observation)
        return float(truth in top_k(scores, self.k)[0])

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The share."""
        return {f"top{self.k}": weighted_mean(np.array(records, np.float64), weights)}


@metric("accuracy", unit="%", proportion=True)
@dataclass(frozen=True)
class AccuracyMetric:
    """The share of samples that are classified right; a single score is class 1 from `threshold` on."""

    threshold: float = 0.5

    def observe(self, observation: Observation) -> float:
        """1 if it is right."""
        scores, truth = class_scores(observation)
        if scores.size == 1:
            return float(int(scores[0] >= self.threshold) == truth)
        return float(top_k(scores, 1)[0][0] == truth)

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The share."""
        return {"accuracy": weighted_mean(np.array(records, np.float64), weights)}


@metric("agreement", unit="%", proportion=True)
def agreement(observation: Observation) -> float:
    """The share of samples whose first choice is that of the reference: the data's outputs, or the first model."""
    ours = only_output(observation, "a first choice")
    if observation.reference is None or len(observation.reference) != 1:
        raise EvaluationDataError("there is no reference with one output", where=observation.name)
    theirs = np.asarray(next(iter(observation.reference.values())))
    return float(top_k(ours.reshape(-1), 1)[0][0] == top_k(theirs.reshape(-1), 1)[0][0])
