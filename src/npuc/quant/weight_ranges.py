"""Range methods of weights, apart from those of activations: how far the integers of a layer's weights reach.

A method is a function `(rows, levels, **options) -> thresholds`: `rows` holds one row of weights a scale (one a channel, or one
for the tensor), `levels` is the largest integer, and the weights of a row beyond its threshold are clipped. All weights are
known, so that methods work on the values themselves; the methods of activations work on histograms.

    >>> weight_thresholds(np.array([[0.5, -1.0, 4.0]]), "max", 127).tolist()
    [4.0]
    >>> weight_thresholds(np.array([[0.5, -1.0, 4.0]]), "percentile:ratio=0.5", 127).tolist()
    [1.0]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuc.arrays import Array
from npuc.calib.ranges.base import MethodSpec, option_error, parse_method
from npuc.calib.ranges.divergence import divergences
from npuc.registries import Registry

DEFAULT_METHOD = "max"
_WHAT = "weight range method"
_FRACTIONS = np.linspace(1.0, 0.2, 81)
"""Thresholds that `mse` tries, as shares of the largest weight; those around the best are tried again, closer together."""
_REFINED = 9

WEIGHT_METHODS: Registry[str, Callable[..., Array]] = Registry(f"a {_WHAT}")
"""Name to method."""


def parse_weight_method(text: str | MethodSpec) -> MethodSpec:
    """Parse `name` or `name:option=value`; `UsageError` lists the valid names.

    >>> str(parse_weight_method("std:n=3"))
    'std:n=3.0'
    """
    return parse_method(text, WEIGHT_METHODS, _WHAT)


def weight_thresholds(rows: Array, method: str | MethodSpec, levels: int) -> Array:
    """The threshold of each row of weights; never beyond its largest weight."""
    spec = parse_weight_method(method)
    most: Array = np.abs(np.asarray(rows, np.float64)).max(axis=1, initial=0.0)
    if rows.shape[1] == 0:
        return most
    thresholds = WEIGHT_METHODS[spec.name](np.asarray(rows, np.float64), levels, **spec.options)
    bounded = np.minimum(thresholds, most)
    # A row of which nothing is left has the range of its largest weight.
    kept: Array = np.where(bounded > 0, bounded, most)
    return kept


@WEIGHT_METHODS.register("max")
def maximum(rows: Array, levels: int) -> Array:
    """The largest magnitude: nothing is clipped."""
    largest: Array = np.abs(rows).max(axis=1)
    return largest


@WEIGHT_METHODS.register("percentile")
def percentile(rows: Array, levels: int, *, ratio: float = 0.9999) -> Array:
    """The magnitude that a share of the weights does not exceed, interpolated linearly between neighbours."""
    if not 0.0 < ratio <= 1.0:
        raise option_error("percentile", "ratio", ratio, "is not above 0 and at most 1 (0.9999 is 99.99 %)")
    quantiles: Array = np.quantile(np.abs(rows), ratio, axis=1)
    return quantiles


@WEIGHT_METHODS.register("std")
def deviations(rows: Array, levels: int, *, n: float = 4.0) -> Array:
    """N standard deviations beyond the mean, on the side where that is further from zero."""
    if not n > 0:
        raise option_error("std", "n", n, "is not above 0")
    reach: Array = np.abs(rows.mean(axis=1)) + n * rows.std(axis=1)
    return reach


@WEIGHT_METHODS.register("mse")
def square_error(rows: Array, levels: int) -> Array:
    """The threshold of least squared error, from 20 % of the largest weight on."""
    most = np.abs(rows).max(axis=1)
    best: Array = most
    least = _errors(rows, most, levels)
    for share in _FRACTIONS[1:]:
        best, least = _better(rows, most * share, levels, best, least)
    step, around = float(_FRACTIONS[0] - _FRACTIONS[1]), best
    for share in np.linspace(-step, step, 2 * _REFINED + 1):
        trial = np.clip(around + most * share, 0.0, most)
        best, least = _better(rows, trial, levels, best, least)
    return best


@WEIGHT_METHODS.register("kl")
def divergence(rows: Array, levels: int, *, bins: int = 2048, step: int = 16) -> Array:
    """The threshold whose quantized distribution is closest to the original one (Kullback-Leibler divergence)."""
    if not levels < bins <= 1 << 16 or step < 1:
        raise option_error("kl", "bins", bins, f"is not above {levels} and at most {1 << 16}")
    thresholds: Array = np.abs(rows).max(axis=1)
    cuts = np.unique(np.append(np.arange(levels + 1, bins, step), bins))
    for index, row in enumerate(rows):
        if thresholds[index] > 0:
            counts, _ = np.histogram(np.abs(row), bins, (0.0, thresholds[index]))
            costs = divergences(counts.astype(np.float64), np.zeros_like(cuts), cuts, levels + 1)
            thresholds[index] *= cuts[int(np.argmin(costs))] / bins
    return thresholds


def _better(rows: Array, trial: Array, levels: int, best: Array, least: Array) -> tuple[Array, Array]:
    errors = _errors(rows, trial, levels)
    better = errors < least
    return np.where(better, trial, best), np.where(better, errors, least)


def _errors(rows: Array, thresholds: Array, levels: int) -> Array:
    """The summed squared error of each row, rounded to steps of threshold / levels."""
    step = np.where(thresholds > 0, thresholds / levels, 1.0)[:, None]
    rounded = np.clip(np.rint(rows / step), -levels, levels) * step
    errors: Array = np.square(rows - rounded).sum(axis=1)
    return errors
