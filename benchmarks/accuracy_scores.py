"""How the results of quantizers compare with float on the same samples: top-1 or mAP, SQNR, and paired differences.

A difference of two shares of hits has the standard error of the mean of paired differences; one of two mAPs has the
deviation over draws of the images with replacement, the same draws for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.evaluate.intervals import resamples
from npuc.metrics.builtin.detection import CocoPrecision

_DRAWS = 200
_SEED = 0


@dataclass
class Score:
    """How one result compares with float."""

    hits: list[bool] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    found: list[dict[str, Any]] = field(default_factory=list)
    """What a detector found, an image each."""
    truths: list[Any] = field(default_factory=list)
    cosines: list[float] = field(default_factory=list)
    signal: dict[str, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)

    def add(self, reference: Mapping[str, Array], found: Mapping[str, Array], label: int) -> None:
        """Take in one sample."""
        for name, exact in reference.items():
            x, y = exact.astype(np.float64).reshape(-1), found[name].astype(np.float64).reshape(-1)
            norm = float(np.linalg.norm(x) * np.linalg.norm(y))
            self.cosines.append(float(x @ y) / norm if norm else float(not (x.any() or y.any())))
            self.signal[name] = self.signal.get(name, 0.0) + float(x @ x)
            self.error[name] = self.error.get(name, 0.0) + float((x - y) @ (x - y))
        if label >= 0:
            exact, got = (next(iter(values.values())).reshape(-1) for values in (reference, found))
            self.hits.append(int(got.argmax()) == label)
            self.same.append(int(got.argmax()) == int(exact.argmax()))

    @property
    def samples(self) -> int:
        """How many were taken in."""
        return len(self.cosines) // max(1, len(self.signal))

    @property
    def sqnr(self) -> float:
        """Decibels: signal over error of all samples, the mean of the outputs."""
        return float(
            np.mean([10 * np.log10(s / max(self.error[n], 1e-30)) for n, s in self.signal.items() if s])
        )

    @property
    def cosine(self) -> float:
        """The mean of samples and outputs."""
        return float(np.mean(self.cosines))

    @property
    def figure(self) -> float | None:
        """Top-1 or mAP in per cent, where one of them is known."""
        if self.hits:
            return 100 * float(np.mean(self.hits))
        return float(self._precision(np.ones((1, len(self.found))))[0]) if self.found else None

    def less(self, other: Score) -> tuple[float, float] | None:
        """This figure less another one, and its standard error, in points."""
        if self.hits:
            difference = 100 * (np.array(self.hits, float) - np.array(other.hits, float))
            return float(difference.mean()), float(difference.std() / len(difference) ** 0.5)
        if not self.found:
            return None
        spread = self.drawn - other.drawn
        assert self.figure is not None
        assert other.figure is not None
        return self.figure - other.figure, float(np.nanstd(spread))

    @property
    def drawn(self) -> Array:
        """mAP of draws of the images with replacement, the same draws for every result."""
        return self._precision(np.concatenate(list(resamples(len(self.found), _DRAWS, _SEED))))

    def _precision(self, weights: Array) -> Array:
        key = weights.shape
        if key not in self._kept:
            self._kept[key] = 100 * CocoPrecision().measure(self.found, self.truths, weights)["AP"]
        return self._kept[key]

    _kept: dict[tuple[int, ...], Array] = field(default_factory=dict, repr=False)
    """mAP by the shape of the weights: plain, or the draws."""
