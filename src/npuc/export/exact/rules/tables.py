"""Tables: docs/arithmetic-tables.md."""

from __future__ import annotations

import numpy as np

from npuc.arrays import Array
from npuc.export.exact.algebra import Algebra, T, int64
from npuc.export.exact.registry import Exact, computes, type_of
from npuc.export.exact.rounding import half_up
from npuc.ir import npu, shape_of


@computes(npu.Table)
def table(op: npu.Table, exact: Exact) -> list[T]:
    """256 entries, or 513 with interpolation."""
    entries, x = exact.array(op.table).astype(np.int64), exact.integers(op.x)
    a = exact.algebra
    y = (
        a.take(entries, a.sub(x.tensor, int64(x.low)))
        if entries.size == 256
        else interpolated(a, x.tensor, entries)
    )
    return [exact.stored(y, type_of(op.y))]


def interpolated(a: Algebra, x: T, entries: Array) -> T:
    """A look-up of int16 values among 513 entries."""
    code = a.add(x, int64(32768))
    place = a.floor_div(code, int64(128))
    rest = a.sub(code, a.mul(place, int64(128)))
    low = a.take(entries, place)
    span = a.take(np.append(np.diff(entries), 0), place)
    return a.add(low, half_up(a, a.mul(span, rest), 7))


@computes(npu.ChannelTable)
def channel_table(op: npu.ChannelTable, exact: Exact) -> list[T]:
    """A table for each channel, one behind the other."""
    entries, x, a = exact.array(op.table).astype(np.int64), exact.integers(op.x), exact.algebra
    first = 256 * np.arange(len(entries)).reshape(-1, *[1] * (len(shape_of(op.x)) - 2))
    index = a.add(a.sub(x.tensor, int64(x.low)), int64(first))
    return [exact.stored(a.take(entries.reshape(-1), index), type_of(op.y))]
