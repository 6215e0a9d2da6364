"""Keywords in a stream of sound: scores of overlapping windows to words that were said, each once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.words import counted


@dataclass(frozen=True)
class Keyword:
    """A word that was heard."""

    label: str
    score: float
    """The mean probability over the last windows."""
    time: float
    """Seconds, as given with the window that settled it."""


class KeywordSpotter:
    """Smooths the probabilities of the last windows and reports a word when its mean passes a threshold.

    `average` is the time that is smoothed over and `pause` the time after a word in which nothing is reported, in seconds.
    Nothing is reported before `least` windows have been heard. Labels in `ignored`, as silence, are no words.

    >>> spotter = KeywordSpotter(["silence", "yes"], average=0.5, threshold=0.6, least=2)
    >>> [spotter.add([0.1, 0.9], at / 4) for at in range(2)]
    [None, Keyword(label='yes', score=0.9, time=0.25)]
    """

    def __init__(
        self,
        labels: Sequence[str],
        *,
        average: float = 1.0,
        threshold: float = 0.7,
        pause: float = 1.5,
        least: int = 3,
        ignored: Sequence[str] = ("silence", "unknown", "_silence_", "_unknown_"),
    ) -> None:
        if not labels or average <= 0 or pause < 0 or least < 1:
            raise InputDataError("a spotter needs labels, a time to average over, and at least one window")
        self._labels, self._ignored = tuple(labels), frozenset(ignored)
        self._average, self._threshold, self._pause, self._least = average, threshold, pause, least
        self._heard: deque[tuple[float, Array]] = deque()
        self._last: float | None = None

    def add(self, probabilities: Sequence[float] | Array, time: float) -> Keyword | None:
        """The probabilities of one window, and its time, later than the one before; the word that is settled by it."""
        row = np.asarray(probabilities, np.float64).reshape(-1)
        if row.size != len(self._labels):
            raise InputDataError(f"{counted(len(self._labels), 'label')} and {row.size} probabilities")
        if self._heard and time <= self._heard[-1][0]:
            raise InputDataError(f"the window at {time:g} s is not after the one at {self._heard[-1][0]:g} s")
        self._heard.append((time, row))
        while self._heard[0][0] <= time - self._average:
            self._heard.popleft()
        if len(self._heard) < self._least or (self._last is not None and time - self._last < self._pause):
            return None
        mean = np.mean([window for _, window in self._heard], axis=0)
        best = int(mean.argmax())
        if mean[best] < self._threshold or self._labels[best] in self._ignored:
            return None
        self._last = time
        return Keyword(self._labels[best], float(mean[best]), time)
