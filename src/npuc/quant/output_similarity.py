"""How similar the outputs of integer networks are to those of the float network that they were made of, as single figures.

    similarity = OutputSimilarity(graph, samples)
    best, figures = best_table(tables, quantize, similarity)

A choice between a few whole networks needs one figure of each. A user's program may stand behind the outputs (`behind`):
what it makes of them is compared then, such as boxes in place of raw heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from npuc.arrays import Array
from npuc.compare.layers import ErrorMeter
from npuc.compare.tensors import difference
from npuc.engine import IntegerEngine, float_engine
from npuc.engine.rounded import relative_noise
from npuc.ir import Graph
from npuc.quant.validation import Program, check_same_shapes

Sample = Mapping[str, Array]
Figure = Literal["cosine", "snr"]
_Table = TypeVar("_Table")


@dataclass(frozen=True)
class Similarity:
    """The figures of one integer network; 1 is the float network itself."""

    cosine: float
    """The mean of the samples and of the outputs."""
    least_cosine: float
    """That of the worst output over all samples together."""
    snr: float
    """1 - error / signal, the mean of the outputs."""


class OutputSimilarity:
    """Compares integer networks with one float network on some samples, whose float outputs are held."""

    def __init__(
        self, source: Graph, samples: Sequence[Sample], behind: Program | None = None, threads: int = 1
    ) -> None:
        self.samples, self._behind, self._threads = list(samples), behind, threads
        engine = float_engine(source, threads=threads)
        names = [port.name for port in source.outputs]
        self._expected = [
            self._judged({name: values[name] for name in names}) for values in map(engine.run, samples)
        ]

    def _judged(self, outputs: Mapping[str, Array]) -> list[Array]:
        return [np.asarray(array) for array in (self._behind(outputs) if self._behind else outputs).values()]

    def of(self, quantized: Graph) -> Similarity:
        """The figures of an integer network."""
        engine = IntegerEngine(quantized, threads=self._threads)
        names = [port.name for port in quantized.outputs]
        rows = [
            self._judged({name: values[name] for name in names}) for values in map(engine.run, self.samples)
        ]
        check_same_shapes(rows, self._expected)
        cosines, meters = [], [ErrorMeter() for _ in rows[0]]
        for row, expected in zip(rows, self._expected, strict=True):
            for array, reference, meter in zip(row, expected, meters, strict=True):
                cosines.append(difference("", array, reference).cosine)
                meter.add(array, reference)
        least = min((meter.figures().cosine for meter in meters), default=1.0)
        return Similarity(float(np.mean(cosines)), least, 1 - relative_noise(rows, self._expected))


def best_table(
    tables: Mapping[str, _Table],
    quantize: Callable[[_Table], Graph],
    similarity: OutputSimilarity,
    by: Figure = "cosine",
) -> tuple[str, dict[str, Similarity]]:
    """The name of the calibration table whose integer network is most similar, the first of equals, and the figures of all."""
    figures = {name: similarity.of(quantize(table)) for name, table in tables.items()}
    return max(figures, key=lambda name: getattr(figures[name], by)), figures
