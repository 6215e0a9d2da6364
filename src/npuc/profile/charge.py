"""Which layer a cycle belongs to: every cycle of a timeline is charged to one layer, so that shares add up to the whole.

Queues work at the same time, and for several layers. A cycle is charged to the layer that the matrix engine works for; if
it rests, to that of the vector engine; if both rest, to that of the transfer whose data moves; if nothing moves, to the
layer whose instruction is the next to start.
"""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.program.isa import BY_NAME, QUEUES
from npuc.sim.cycles import CoreTimeline

REASONS = ("matrix", "vector", "DMA", "waiting")
"""Why a cycle is charged."""
_LOAD, _STORE, _MATRIX, _VECTOR = range(len(QUEUES))
_WAITING = REASONS.index("waiting")


def charge(records: Array, times: CoreTimeline, total: int, layers: int) -> Array:
    """Cycles of each layer by `REASONS`; all of them together are `total`."""
    charged = np.zeros((layers, len(REASONS)), np.int64)
    works = np.flatnonzero((records["opcode"] != BY_NAME["barrier"].opcode) & (times.end > times.start))
    if not works.size or not total:
        return charged
    start, end = times.start[works], times.end[works]
    queue, layer = records["queue"][works], records["layer"][works].astype(np.int64)
    points = np.unique(np.concatenate([start, end, [0, total]]))
    left, width = points[:-1], np.diff(points)
    owner = np.full(left.size, -1)
    reason = np.full(left.size, _WAITING)
    for number, why in ((_MATRIX, 0), (_VECTOR, 1), (_LOAD, 2), (_STORE, 2)):
        at = queue == number
        busy = _busy(start[at], end[at], layer[at], left)
        free = (owner < 0) & (busy >= 0)
        owner[free], reason[free] = busy[free], why
    owner = np.where(owner < 0, _next(start, layer, queue >= _MATRIX, left), owner)
    np.add.at(charged, (owner, reason), width)
    return charged


def _busy(start: Array, end: Array, layer: Array, left: Array) -> Array:
    """The layer that a queue works for from each of `left` on; -1 where it rests."""
    if not start.size:
        return np.full(left.size, -1)
    order = np.argsort(start, kind="stable")
    start, end, layer = start[order], end[order], layer[order]
    # Transfers over two channels may overlap: the one that ends last counts.
    reach = np.maximum.accumulate(end)
    last = np.maximum.accumulate(np.where(end == reach, np.arange(end.size), 0))
    at = np.searchsorted(start, left, "right") - 1
    running = last[np.maximum(at, 0)]
    return np.where((at >= 0) & (end[running] > left), layer[running], -1)


def _next(start: Array, layer: Array, engines: Array, left: Array) -> Array:
    """The layer of the engine instruction that starts next; behind the last one, its own."""
    chosen = np.flatnonzero(engines) if engines.any() else np.arange(start.size)
    order = chosen[np.argsort(start[chosen], kind="stable")]
    at = np.searchsorted(start[order], left, "left")
    return layer[order[np.minimum(at, order.size - 1)]]
