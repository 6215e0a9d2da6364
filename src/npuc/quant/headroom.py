"""Headroom beyond the observed range, for tensors next to an output of which few values were observed.

A network with two scores and eight calibration samples yields sixteen values of its output. The largest of sixteen normally
distributed values is 1.8 standard deviations from the mean on average, and one value in twelve of other data lies beyond
one of the ends, where it would saturate; no later layer can correct that. So a range from few values is extended to where
the extremes of `SEEN` values would be: from sixteen values, 1.7 times as far from the mean, or three deviations. Values that
an op cannot produce (a softmax score above 1) get no headroom.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf
from statistics import NormalDist

from npuc.calib.statistics import Statistics, TensorStatistics
from npuc.calib.table import Entry
from npuc.ir import Graph, Value, top, value_name
from npuc.ir.top.movement import MOVERS

SEEN = 500
"""From this number of values on, the observed extremes are used as they are."""
MOST = 2.0

_UNIT, _SIGNED = (0.0, 1.0), (-1.0, 1.0)
_LIMITS = {
    top.Sigmoid: _UNIT,
    top.HardSigmoid: _UNIT,
    top.Softmax: _UNIT,
    top.Tanh: _SIGNED,
    top.Softsign: _SIGNED,
    top.Erf: _SIGNED,
    top.Sign: _SIGNED,
    top.Sin: _SIGNED,
    top.Cos: _SIGNED,
}


def reach(count: int) -> float:
    """How many times further the extremes of `SEEN` normal values are from their mean than those of `count` values.

    >>> [round(reach(count), 2) for count in (1, 16, 64, 500)]
    [2.0, 1.71, 1.29, 1.0]
    """
    if count < 2:
        return MOST
    return min(max(_extreme(SEEN) / _extreme(count), 1.0), MOST)


def _extreme(count: int) -> float:
    """The expected largest of `count` standard normal values (Blom's approximation)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def with_room(
    graph: Graph, statistics: Statistics, table: Mapping[str, Entry], names: Collection[str]
) -> dict[str, Entry]:
    """Wider entries for those of the named tensors of which fewer than `SEEN` values were observed."""
    wider: dict[str, Entry] = {}
    values = {value_name(value): value for op in graph.ops for value in op.results}
    for name in names:
        observed, entry = statistics.get(name), table.get(name)
        if observed is None or entry is None or not 0 < observed.count < SEEN or name not in values:
            continue
        wider[name] = _wider(entry, observed, limits(values[name]))
    return wider


def _wider(entry: Entry, observed: TensorStatistics, bounds: tuple[float, float]) -> Entry:
    # For few values the standard deviation is more reliable than the extremes, unless the extremes are far out.
    factor, deviations = reach(observed.count), _extreme(SEEN) * observed.deviation
    down, up = (
        max(factor * end, deviations) for end in (observed.mean - observed.min, observed.max - observed.mean)
    )
    # A tensor that was never negative, as after a relu, stays so; a range always contains zero.
    low = entry.min if observed.one_sided else observed.mean - down
    high = entry.max if observed.max <= 0 else observed.mean + up
    low, high = min(entry.min, max(low, bounds[0])), max(entry.max, min(high, bounds[1]))
    return replace(entry, min=low, max=high, threshold=max(entry.threshold, -low, high))


def limits(value: Value) -> tuple[float, float]:
    """The range that a tensor cannot leave for any data; infinite if nothing is known."""
    op = value.owner
    if type(op) in _LIMITS:
        return _LIMITS[type(op)]
    if isinstance(op, top.Relu):
        return 0.0, op.limit or inf
    if isinstance(op, top.Clip):
        return op.min, op.max
    if isinstance(op, MOVERS):
        return limits(op.operands[0])
    if isinstance(op, top.Concat):
        ends = [limits(operand) for operand in op.inputs]
        return min(low for low, _ in ends), max(high for _, high in ends)
    return -inf, inf
