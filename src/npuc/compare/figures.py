"""How far outputs are from their reference, per slice and per sample, with the worst beside the mean.

Each slice has a signal-to-quantization-noise ratio (SQNR) in decibels, over all samples together and in each sample alone.
In a single sample a slice may have almost no signal (a text detector on an image without text), and any error would look
infinite; so its signal counts as at least a tenth of its mean over the samples. A slice that is zero in all samples is left
out. Decibels are limited to `BEST`: higher values are beyond the precision of 16 bits, and would hide other slices in a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.compare.slices import Slice
from npuc.registries import renamed

Tensors = Mapping[str, Array]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Figures": OutputFigures, "judge": measure_outputs})


LOST = 15.0
"""Decibels below which a slice is named in a warning."""
BEST = 100.0
NOTHING = 0.0
"""Decibels at which the error is as large as the signal: a slice that is further below is not worse for any use."""
_LEAST_SIGNAL = 0.1
"""The least signal of a slice in one sample, as a share of its mean over the samples."""


@dataclass(frozen=True)
class Worst:
    """The slice and the sample that are furthest from the reference."""

    slice: Slice
    sample: int
    """The index of the sample."""
    sqnr: float


@dataclass(frozen=True, eq=False)
class OutputFigures:
    """Signal and error of the slices of the outputs in each sample."""

    slices: tuple[Slice, ...]
    squares: Array
    """samples x slices x (signal, error)"""

    @property
    def has_signal(self) -> bool:
        """Whether any slice has a signal to compare with."""
        return bool(self._known.any())

    @property
    def _known(self) -> Array:
        signal: Array = self.squares[..., 0].sum(axis=0) > 0
        return signal

    @property
    def by_slice(self) -> dict[Slice, float]:
        """The decibels of every slice with a signal, over all samples together."""
        if not len(self.squares):
            return {}
        decibels = sqnr(self.squares.sum(axis=0))
        return {part: float(decibels[i]) for i, part in enumerate(self.slices) if self._known[i]}

    @property
    def mean(self) -> float:
        """The mean of the slices' decibels, each over all samples."""
        decibels = self.by_slice.values()
        return float(np.mean(list(decibels))) if decibels else BEST

    @property
    def by_sample(self) -> Array:
        """The decibels of every slice in every sample; those of slices without a signal are `BEST`."""
        signal, error = self.squares[..., 0], self.squares[..., 1]
        least = _LEAST_SIGNAL * signal.mean(axis=0, keepdims=True) if len(signal) else signal
        decibels = sqnr(np.stack([np.maximum(signal, least), error], axis=-1))
        return np.where(self._known[None, :], decibels, BEST)

    @property
    def worst(self) -> Worst | None:
        """The worst slice of the worst sample; None if there is no signal."""
        if not self.squares.size or not self.has_signal:
            return None
        decibels = self.by_sample
        sample, index = np.unravel_index(int(decibels.argmin()), decibels.shape)
        return Worst(self.slices[int(index)], int(sample), float(decibels[sample, index]))

    @property
    def worst_slice(self) -> tuple[Slice, float] | None:
        """The slice with the fewest decibels over all samples."""
        decibels = self.by_slice
        return min(decibels.items(), key=lambda pair: pair[1]) if decibels else None

    @property
    def lost(self) -> list[tuple[Slice, float]]:
        """Slices below `LOST` decibels over all samples, the worst first."""
        return sorted(
            ((part, value) for part, value in self.by_slice.items() if value < LOST), key=lambda pair: pair[1]
        )

    @property
    def score(self) -> float:
        """The score that candidates are compared by: halfway between the mean and the worst slice of the worst sample.

        A worst slice below `NOTHING` counts as that: how far below is chance, and would decide instead of the mean.
        """
        worst = self.worst
        return self.mean if worst is None else (self.mean + max(worst.sqnr, NOTHING)) / 2

    def of_samples(self, chosen: Sequence[int] | slice) -> OutputFigures:
        """The figures of some of the samples."""
        return OutputFigures(self.slices, self.squares[chosen])

    def plus(self, other: OutputFigures) -> OutputFigures:
        """The figures of these and more samples."""
        return OutputFigures(self.slices, np.concatenate([self.squares, other.squares]))


def sqnr(squares: Array) -> Array:
    """Signal over error (... x 2) in decibels, between minus `BEST` and `BEST`.

    >>> sqnr(np.array([[100.0, 1.0], [1.0, 0.0]])).tolist()
    [20.0, 100.0]
    """
    signal, error = np.maximum(squares[..., 0], 1e-200), np.maximum(squares[..., 1], 1e-200)
    decibels: Array = np.clip(10 * np.log10(signal / error), -BEST, BEST)
    return decibels


def slice_squares(outputs: Tensors, reference: Tensors, slices: Iterable[Slice]) -> Array:
    """The squares of signal and error of each slice in one sample: slices x 2.

    Elements that are NaN or infinite in the reference do not count; where only the output is, it counts as zero.
    """
    rows = []
    by_tensor: dict[str, tuple[Array, Array]] = {}
    for part in slices:
        if part.tensor not in by_tensor:
            expected = np.asarray(reference[part.tensor], np.float64)
            finite = np.isfinite(expected)
            expected = np.where(finite, expected, 0.0)
            actual = np.nan_to_num(np.asarray(outputs[part.tensor], np.float64), posinf=0.0, neginf=0.0)
            by_tensor[part.tensor] = expected, np.where(finite, actual, 0.0) - expected
        signal, error = (part.of(array) for array in by_tensor[part.tensor])
        rows.append((float(np.square(signal).sum()), float(np.square(error).sum())))
    return np.array(rows, np.float64).reshape(len(rows), 2)


def measure_outputs(
    run: Callable[[Tensors], Tensors],
    samples: Iterable[Tensors],
    reference: Iterable[Tensors],
    slices: Mapping[str, Sequence[Slice]],
) -> OutputFigures:
    """The figures of the outputs that `run` computes for samples, against the outputs of the float network."""
    parts = tuple(part for tensor_slices in slices.values() for part in tensor_slices)
    rows = [
        slice_squares(run(inputs), exact, parts) for inputs, exact in zip(samples, reference, strict=True)
    ]
    return OutputFigures(parts, np.array(rows, np.float64).reshape(len(rows), len(parts), 2))
