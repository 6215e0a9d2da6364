"""Segmentation: intersection over union of every class, over all pixels of all images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.datasets.sample import Observation
from npuc.errors import EvaluationDataError
from npuc.metrics.measuring import metric, only_output
from npuc.runtime.postprocess import label_map


@metric("miou", task="segmentation", unit="%")
@dataclass(frozen=True)
class MeanIou:
    """Mean intersection over union of the classes that occur, and the share of right pixels."""

    ignored: int = 255
    """Pixels whose true label is this do not count; -1: all count."""
    axis: int = 0
    """Where the classes of the output are: 1, or -1 for channels last; 0: where their number suggests."""
    threshold: float = 0.0
    """For an output of one class."""

    def observe(self, observation: Observation) -> list[list[int]]:
        """For every class that occurs: its number, pixels right, pixels found, pixels true."""
        if not isinstance(observation.truth, np.ndarray) or observation.view is None:
            raise EvaluationDataError("the data set has no mask for it", where=observation.name)
        labels = observation.view.labels(
            self._labels(only_output(observation, "a segmentation"), observation), outside=0
        )
        truth = observation.truth
        if truth.shape != labels.shape:
            raise EvaluationDataError(
                f"its mask is {truth.shape[0]} x {truth.shape[1]}, and the image {labels.shape[0]} x {labels.shape[1]}",
                where=observation.name,
            )
        counted = truth != self.ignored
        a, b = labels[counted].astype(np.int64), truth[counted].astype(np.int64)
        size = int(max(a.max(initial=0), b.max(initial=0))) + 1
        right = np.bincount(a[a == b], minlength=size)
        predicted, true = np.bincount(a, minlength=size), np.bincount(b, minlength=size)
        return [
            [k, int(right[k]), int(predicted[k]), int(true[k])]
            for k in range(size)
            if predicted[k] or true[k]
        ]

    def _labels(self, output: Array, observation: Observation) -> Array:
        if output.dtype.kind in "iu" or output.ndim < 4:
            # The network has chosen already.
            flat = output.squeeze()
            if flat.ndim == 2:
                return flat
        if output.ndim != 4 or len(output) != 1:
            raise EvaluationDataError(
                f"an output of shape {list(output.shape)} is no map of classes", where=observation.name
            )
        axis = self.axis
        if axis == 0:
            height, width = observation.view.input_size if observation.view is not None else (0, 0)
            last = output.shape[1:3] == (height, width) and output.shape[2:4] != (height, width)
            axis = -1 if last else 1
        labels: Array = label_map(output, axis, self.threshold)[0]
        return labels

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The mean over classes, and the share of right pixels."""
        size = 1 + max((int(entry[0]) for record in records for entry in record), default=0)
        table = np.zeros((3, len(records), size))
        for index, record in enumerate(records):
            for number, *counts in record:
                table[:, index, number] = counts
        right, predicted, true = (weights @ pixel_counts for pixel_counts in table)
        union = predicted + true - right
        with np.errstate(divide="ignore", invalid="ignore"):
            class_ious = np.where(union > 0, right / union, np.nan)
            pixels = right.sum(axis=1) / true.sum(axis=1)
            present = (union > 0).sum(axis=1)
            mean = np.where(present > 0, np.nansum(class_ious, axis=1) / present, np.nan)
        return {"mIoU": mean, "pixel accuracy": pixels}
