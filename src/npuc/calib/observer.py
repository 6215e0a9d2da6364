"""An observer accumulates the statistics of one tensor, batch after batch.

The hot loop is in the native core (`npuc.kernels.observe`), which releases Python's global lock, so that observers of
different tensors run in parallel threads. The memory of an observer does not depend on the amount of data.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.calib.statistics import ObserverOptions, TensorStatistics
from npuc.kernels.observe import EMPTY, empty_statistics, observe, observe_channels


class Observer:
    """Accumulates the statistics of one tensor.

    >>> observer = Observer("x")
    >>> observer.update(np.float32([-1, 2]))
    >>> observer.result().max
    2.0
    """

    def __init__(
        self, name: str, options: ObserverOptions | None = None, channel_axis: int | None = None
    ) -> None:
        self.name = name
        self.options = options or ObserverOptions()
        self.channel_axis = channel_axis
        self._raw = empty_statistics()
        self._histogram = np.zeros(self.options.bins, np.uint64)
        self._tail = np.zeros(self.options.bins // 2, np.uint64)
        self._batches = 0
        self._sum_min = self._sum_max = 0.0
        self._extremes = np.zeros((self.options.kept_batches, 2))
        self._kept, self._stride = 0, 1
        self._running: dict[float, tuple[float, float]] = {}
        self._channels: tuple[Array, Array] | None = None

    def update(self, values: Array) -> None:
        """Add the values of one batch."""
        values = np.ascontiguousarray(values, np.float32)
        observe(
            values,
            self._raw,
            self._histogram,
            self._tail,
            bound=self.options.bound,
            tail_ratio=self.options.tail_ratio,
        )
        if self._raw.batch_count:
            self._average(self._raw.batch_min, self._raw.batch_max)
        axis = self.channel_axis
        if axis is not None and -values.ndim <= axis < values.ndim:
            if self._channels is None:
                size = values.shape[axis]
                self._channels = (np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32))
            if self._channels[0].size == values.shape[axis]:
                observe_channels(values, axis, *self._channels, bound=self.options.bound)

    def _average(self, low: float, high: float) -> None:
        if self._batches % self._stride == 0:
            if self._kept == len(self._extremes):
                self._kept = len(self._extremes[::2])
                self._extremes[: self._kept] = self._extremes[::2].copy()
                self._stride *= 2
            if self._batches % self._stride == 0:
                self._extremes[self._kept] = low, high
                self._kept += 1
        self._batches += 1
        self._sum_min += low
        self._sum_max += high
        for momentum in self.options.momenta:
            old_low, old_high = self._running.get(momentum, (low, high))
            self._running[momentum] = (
                momentum * old_low + (1 - momentum) * low,
                momentum * old_high + (1 - momentum) * high,
            )

    def result(self) -> TensorStatistics:
        """The statistics of all batches so far."""
        raw, batches = self._raw, max(1, self._batches)
        channels = self._channels
        return TensorStatistics(
            name=self.name,
            count=raw.count,
            nans=raw.nans,
            infinite=raw.infinite,
            batches=self._batches,
            sum=raw.sum,
            square=raw.square,
            absolute=raw.absolute,
            min=raw.min,
            max=raw.max,
            mean_min=self._sum_min / batches,
            mean_max=self._sum_max / batches,
            running={m: self._running.get(m, (0.0, 0.0)) for m in self.options.momenta},
            exponent=raw.exponent if raw.exponent != EMPTY else 0,
            histogram=self._histogram.copy(),
            tail=self._tail.copy(),
            channel_axis=self.channel_axis if channels is not None else None,
            channel_min=channels[0].copy() if channels is not None else None,
            channel_max=channels[1].copy() if channels is not None else None,
            extremes=self._extremes[: self._kept].copy(),
            tail_ratio=self.options.tail_ratio,
        )
