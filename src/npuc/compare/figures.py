"""How far outputs are from their reference, slice by slice and sample by sample, the worst beside the mean.

The signal over error of each slice is taken in decibels (SQNR), first over all samples together, then in each sample alone.
A picture without text has next to no signal in the map of text, and any error would be infinite: the signal of a slice in one
sample counts as at least a tenth of its mean over the samples. A slice that is zero in all samples is left out. Figures
end at `BEST`: beyond the precision of 16 bits they say nothing, and must not hide another slice in a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.compare.slices import Slice

Tensors = Mapping[str, Array]

LOST = 15.0
"""Decibels below which a slice is named in a warning."""
BEST = 100.0
_LEAST_SIGNAL = 0.1
"""Of the mean of a slice over samples."""


@dataclass(frozen=True)
class Worst:
    """The slice and the sample that are furthest from the reference."""

    slice: Slice
    sample: int
    """Its place among the samples."""
    sqnr: float


@dataclass(frozen=True, eq=False)
class Figures:
    """Signal and error of slices in samples."""

    slices: tuple[Slice, ...]
    squares: Array
    """samples x slices x (signal, error)"""

    @property
    def has_signal(self) -> bool:
        """Whether anything can be said."""
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
        whole = sqnr(self.squares.sum(axis=0))
        return {one: float(whole[i]) for i, one in enumerate(self.slices) if self._known[i]}

    @property
    def mean(self) -> float:
        """The mean of the slices' decibels, each over all samples."""
        found = self.by_slice.values()
        return float(np.mean(list(found))) if found else BEST

    @property
    def by_sample(self) -> Array:
        """The decibels of every slice in every sample; those of slices without a signal are `BEST`."""
        signal, error = self.squares[..., 0], self.squares[..., 1]
        least = _LEAST_SIGNAL * signal.mean(axis=0, keepdims=True) if len(signal) else signal
        found = sqnr(np.stack([np.maximum(signal, least), error], axis=-1))
        return np.where(self._known[None, :], found, BEST)

    @property
    def worst(self) -> Worst | None:
        """The worst slice of the worst sample; None if there is no signal."""
        if not self.squares.size or not self.has_signal:
            return None
        found = self.by_sample
        sample, index = np.unravel_index(int(found.argmin()), found.shape)
        return Worst(self.slices[int(index)], int(sample), float(found[sample, index]))

    @property
    def worst_slice(self) -> tuple[Slice, float] | None:
        """The slice with the fewest decibels over all samples."""
        found = self.by_slice
        return min(found.items(), key=lambda pair: pair[1]) if found else None

    @property
    def lost(self) -> list[tuple[Slice, float]]:
        """Slices below `LOST` decibels over all samples, the worst first."""
        return sorted(
            ((one, value) for one, value in self.by_slice.items() if value < LOST), key=lambda pair: pair[1]
        )

    @property
    def score(self) -> float:
        """What choices are made by: the middle between the mean and the worst slice of the worst sample."""
        worst = self.worst
        return self.mean if worst is None else (self.mean + worst.sqnr) / 2

    def of_samples(self, chosen: Sequence[int] | slice) -> Figures:
        """The same of some samples."""
        return Figures(self.slices, self.squares[chosen])

    def plus(self, other: Figures) -> Figures:
        """Those of more samples."""
        return Figures(self.slices, np.concatenate([self.squares, other.squares]))


def sqnr(squares: Array) -> Array:
    """Signal over error (... x 2) in decibels, between minus `BEST` and `BEST`.

    >>> sqnr(np.array([[100.0, 1.0], [1.0, 0.0]])).tolist()
    [20.0, 100.0]
    """
    signal, error = np.maximum(squares[..., 0], 1e-200), np.maximum(squares[..., 1], 1e-200)
    found: Array = np.clip(10 * np.log10(signal / error), -BEST, BEST)
    return found


def slice_squares(found: Tensors, exact: Tensors, slices: Iterable[Slice]) -> Array:
    """The squares of signal and error of each slice in one sample: slices x 2.

    What is NaN or infinite in the reference does not count; where only `found` is, it counts as zero.
    """
    rows = []
    wanted: dict[str, tuple[Array, Array]] = {}
    for one in slices:
        if one.tensor not in wanted:
            reference = np.asarray(exact[one.tensor], np.float64)
            finite = np.isfinite(reference)
            reference = np.where(finite, reference, 0.0)
            got = np.nan_to_num(np.asarray(found[one.tensor], np.float64), posinf=0.0, neginf=0.0)
            wanted[one.tensor] = reference, np.where(finite, got, 0.0) - reference
        signal, error = (one.of(array) for array in wanted[one.tensor])
        rows.append((float(np.square(signal).sum()), float(np.square(error).sum())))
    return np.array(rows, np.float64).reshape(len(rows), 2)


def judge(
    run: Callable[[Tensors], Tensors],
    samples: Iterable[Tensors],
    reference: Iterable[Tensors],
    slices: Mapping[str, Sequence[Slice]],
) -> Figures:
    """The figures of what `run` makes of samples, held against what the float network makes of them."""
    chosen = tuple(one for parts in slices.values() for one in parts)
    rows = [
        slice_squares(run(inputs), exact, chosen) for inputs, exact in zip(samples, reference, strict=True)
    ]
    return Figures(chosen, np.array(rows, np.float64).reshape(len(rows), len(chosen), 2))
