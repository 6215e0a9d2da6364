"""Room beyond what was seen, for tensors next to an output of which little was seen.

A network with two scores and eight calibration samples shows sixteen values of its output: the largest of sixteen normal
values lies 1.8 deviations from their mean, on average, and one value in twelve of other data lies further out at one of the
ends. There it saturates, and no later layer mends that. So ends that come from few values go as far as those of `SEEN` would:
with sixteen, 1.7 times as far from the mean, or three deviations. What an op cannot give (a score of a softmax above 1) gets
no room.
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
"""Values from which the extremes are taken for what they are."""
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
    """How much further the extremes of `SEEN` normal values lie from their mean than those of `count` do.

    >>> [round(reach(count), 2) for count in (1, 16, 64, 500)]
    [2.0, 1.71, 1.29, 1.0]
    """
    if count < 2:
        return MOST
    return min(max(_extreme(SEEN) / _extreme(count), 1.0), MOST)


def _extreme(count: int) -> float:
    """About the mean of the largest of so many normal values (Blom's approximation)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def with_room(
    graph: Graph, statistics: Statistics, table: Mapping[str, Entry], names: Collection[str]
) -> dict[str, Entry]:
    """Wider entries for those of some tensors of which fewer than `SEEN` values were seen."""
    found: dict[str, Entry] = {}
    values = {value_name(value): value for op in graph.ops for value in op.results}
    for name in names:
        seen, entry = statistics.get(name), table.get(name)
        if seen is None or entry is None or not 0 < seen.count < SEEN or name not in values:
            continue
        found[name] = _wider(entry, seen, limits(values[name]))
    return found


def _wider(entry: Entry, seen: TensorStatistics, bounds: tuple[float, float]) -> Entry:
    # Of few values the deviation tells more than the extremes do, unless it is these that stand out.
    more, deviations = reach(seen.count), _extreme(SEEN) * seen.deviation
    down, up = (max(more * end, deviations) for end in (seen.mean - seen.min, seen.max - seen.mean))
    # What was never negative stays so, as behind a relu; an entry has zero in it.
    low = entry.min if seen.one_sided else seen.mean - down
    high = entry.max if seen.max <= 0 else seen.mean + up
    low, high = min(entry.min, max(low, bounds[0])), max(entry.max, min(high, bounds[1]))
    return replace(entry, min=low, max=high, threshold=max(entry.threshold, -low, high))


def limits(value: Value) -> tuple[float, float]:
    """What a tensor cannot leave, whatever the data is; infinite where nothing is known."""
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
