"""Likeness of outputs to a reference: the outputs that the data set holds or, without such, those of the first model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compare.tensors import difference
from npuc.datasets.sample import Observation
from npuc.errors import EvaluationDataError
from npuc.metrics.measuring import metric


def pairs(observation: Observation) -> list[tuple[str, Array, Array]]:
    """Each output with its reference: by name, or in order where no name is in both."""
    if observation.reference is None:
        raise EvaluationDataError("there is no reference to compare with", where=observation.name)
    ours, theirs = observation.outputs, observation.reference
    common = [name for name in theirs if name in ours]
    matched: Mapping[str, str] = dict(zip(common, common, strict=True))
    if not common and len(ours) == len(theirs):
        matched = dict(zip(theirs, ours, strict=True))
    if len(matched) != len(theirs):
        raise EvaluationDataError(
            f"outputs {', '.join(ours)} have no match in the reference {', '.join(theirs)}",
            where=observation.name,
        )
    compared = []
    for name, own in matched.items():
        a, b = np.asarray(ours[own]), np.asarray(theirs[name])
        if a.shape != b.shape and a.size == b.size:
            b = b.reshape(a.shape)
        if a.shape != b.shape:
            raise EvaluationDataError(
                f"output '{own}' has shape {list(a.shape)}, and its reference {list(b.shape)}",
                where=observation.name,
            )
        compared.append((name, a, b))
    return compared


@metric("cosine", task="reference")
def cosine(observation: Observation) -> float:
    """The cosine of outputs and reference: mean over outputs and samples."""
    return float(np.mean([difference(name, a, b).cosine for name, a, b in pairs(observation)]))


@metric("sqnr", task="reference", unit="dB")
class Sqnr:
    """Signal over error of all samples together, in decibels: the mean of the outputs."""

    def observe(self, observation: Observation) -> list[list[float]]:
        """For every output the squares of signal and error."""
        energies = []
        for _, a, b in pairs(observation):
            x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
            energies.append([float(y @ y), float((x - y) @ (x - y))])
        return energies

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """Decibels; infinite without an error."""
        squares = np.array(records, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            signal, error = weights @ squares[:, :, 0], weights @ squares[:, :, 1]
            decibels = np.where(error > 0, 10 * np.log10(signal / error), np.inf)
        return {"sqnr": decibels.mean(axis=1)}
