"""Metrics of the optimizer under their public names."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compat.compass.optimizer_plugins import OptBaseMetric, PluginType, register_plugin
from npuc.errors import EvaluationDataError


def _flat(value: Any) -> Array:
    flat: Array = np.asarray(value, np.float64).reshape(-1)
    return flat


@register_plugin(PluginType.Metric, "1.0")
class TopKMetric(OptBaseMetric):
    """The share of samples whose label is among the K highest scores."""

    def __init__(self, K: str = "1") -> None:
        self.k = int(K)
        self.reset()

    def __call__(self, pred: Any, target: Any, *args: Any) -> None:
        """Count the samples of a batch."""
        scores = np.asarray(pred[0])
        rows = scores.reshape(len(scores), -1)
        for row, label in zip(rows, _flat(target), strict=False):
            self.right += int(label) in np.argsort(-row, kind="stable")[: self.k]
            self.total += 1

    def reset(self) -> None:
        """Forget all calls."""
        self.right = self.total = 0

    def compute(self) -> float:
        """The share."""
        return self.right / self.total if self.total else float("-inf")

    def report(self) -> str:
        """The share in words."""
        return f"top-{self.k} accuracy is {self.compute():f}"


class _MeanMetric(OptBaseMetric):
    """The mean of a figure over the calls."""

    title = ""

    def __init__(self, *args: str) -> None:
        self.reset()

    def figure(self, pred: Array, target: Array) -> float:
        """Of one call."""
        raise NotImplementedError

    def __call__(self, pred: Any, target: Any, *args: Any) -> None:
        """Take the figure of a batch."""
        outputs = np.concatenate([_flat(entry) for entry in pred])
        labels = _flat(target)
        if labels.size != outputs.size:
            raise EvaluationDataError(
                f"{self.title} compares outputs with labels, which are {labels.size} numbers and not {outputs.size}"
            )
        self.figures.append(self.figure(outputs, labels))

    def reset(self) -> None:
        """Forget all calls."""
        self.figures: list[float] = []

    def compute(self) -> float:
        """The mean."""
        return float(np.mean(self.figures)) if self.figures else float("-inf")

    def report(self) -> str:
        """The mean in words."""
        return f"{self.title} is {self.compute():f}"


@register_plugin(PluginType.Metric, "1.0")
class CosDistanceMetric(_MeanMetric):
    """The cosine between outputs and labels."""

    title = "cosine distance"

    def figure(self, pred: Array, target: Array) -> float:
        """Of one call."""
        length = float(np.linalg.norm(pred) * np.linalg.norm(target))
        return float(pred @ target) / length if length else float(np.array_equal(pred, target))


@register_plugin(PluginType.Metric, "1.0")
class RMSEMetric(_MeanMetric):
    """The root of the mean squared error."""

    title = "RMSE"

    def figure(self, pred: Array, target: Array) -> float:
        """Of one call."""
        return float(np.sqrt(np.mean(np.square(pred - target))))


@register_plugin(PluginType.Metric, "1.0")
class MaxAbsErrorMetric(_MeanMetric):
    """The largest error."""

    title = "max abs error"

    def figure(self, pred: Array, target: Array) -> float:
        """Of one call."""
        return float(np.abs(pred - target).max(initial=0.0))

    def compute(self) -> float:
        """The largest of all."""
        return max(self.figures, default=float("-inf"))
