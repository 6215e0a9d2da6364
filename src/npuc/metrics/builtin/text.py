"""Speech and text recognition: errors a word, errors a letter.

An output is ids of symbols, or scores of symbols a step, of which the best are taken; repeated symbols are one, and the
blank is none (CTC, greedily). The symbols are the classes of the data set (`--classes FILE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.datasets.sample import Observation
from npuc.errors import EvaluationDataError
from npuc.metrics.measuring import metric, of_type, only_output


def edits(predicted: Sequence[Any], true: Sequence[Any]) -> int:
    """The least number of insertions, deletions and substitutions from one sequence to another.

    >>> edits("kitten", "sitting")
    3
    """
    row = list(range(len(true) + 1))
    for i, symbol in enumerate(predicted, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(true, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (symbol != other))
    return row[-1]


@dataclass(frozen=True)
class _Errors:
    blank: int = 0
    """The symbol that stands for none; -1 is the last."""

    def text(self, observation: Observation) -> str:
        """What the network heard."""
        output = only_output(observation, "a text")
        symbols = observation.classes
        if not symbols:
            raise EvaluationDataError(
                "the data set does not name the symbols of the output",
                where=observation.name,
                fix="Give --classes FILE",
            )
        rows = output.reshape(-1, output.shape[-1]) if output.dtype.kind == "f" else output.reshape(-1, 1)
        ids = rows.argmax(axis=1) if output.dtype.kind == "f" else rows[:, 0]
        blank = self.blank % len(symbols)
        if len(ids) and not 0 <= int(ids.max()) < len(symbols):
            raise EvaluationDataError(
                f"the model gives symbol {int(ids.max())}, and {len(symbols)} are named",
                where=observation.name,
            )
        kept = [int(k) for at, k in enumerate(ids) if k != blank and (at == 0 or ids[at - 1] != k)]
        return "".join(symbols[k] for k in kept)


@metric("wer", task="text", unit="%", lower_is_better=True)
@dataclass(frozen=True)
class WordErrors(_Errors):
    """Wrong, missing and needless words over the words that were said."""

    def observe(self, observation: Observation) -> list[int]:
        """Errors and words."""
        true = of_type(observation, str, "text").split()
        return [edits(self.text(observation).split(), true), len(true)]

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The rate."""
        return {"WER": _rate(records, weights)}


@metric("cer", task="text", unit="%", lower_is_better=True)
@dataclass(frozen=True)
class LetterErrors(_Errors):
    """Wrong, missing and needless letters over the letters that were said."""

    def observe(self, observation: Observation) -> list[int]:
        """Errors and letters."""
        true = of_type(observation, str, "text")
        return [edits(self.text(observation), true), len(true)]

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The rate."""
        return {"CER": _rate(records, weights)}


def _rate(records: Sequence[Any], weights: Array) -> Array:
    table = np.array(records, np.float64).reshape(-1, 2)
    errors, count = weights @ table[:, 0], weights @ table[:, 1]
    rate: Array = np.divide(errors, count, out=np.full(len(weights), np.nan), where=count > 0)
    return rate
