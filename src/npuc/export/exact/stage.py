"""The output stage of an op, as the numbers of docs/arithmetic.md."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.exact.registry import Exact
from npuc.export.exact.rounding import Stage

_NONE = np.zeros(1, np.int64)


def channel_stage(op: Any, exact: Exact, shape: tuple[int, ...]) -> Stage:
    """Of an op whose numbers are constants, one or one a channel; `shape` makes a channel's broadcast to the sums."""

    def numbers(value: Any) -> Array:
        array = exact.graph.constant(value)
        if array is None:
            return _NONE
        return array.reshape(()) if array.size == 1 else array.reshape(shape)

    return _stage(op, numbers(op.multiplier), numbers(op.shift), numbers(op.factor))


def flat_stage(op: Any, index: Any = 0) -> Stage:
    """Of an op that states its numbers as properties; `index` chooses among several (an array gives an array)."""
    numbers = np.array(op.parameters, np.int64)
    if op.kind.has_scale:
        return _stage(op, _NONE, _NONE, np.array(op.factors, np.float32)[index])
    if not op.kind.has_multiplier:
        return _stage(op, _NONE, numbers[index], _NONE)
    return _stage(op, numbers[0::2][index], numbers[1::2][index], _NONE)


def _stage(op: Any, multiplier: Any, shift: Any, scale: Any) -> Stage:
    whole = np.asarray
    return Stage(
        op.kind, whole(multiplier), whole(shift), whole(scale, np.float32), op.to.zero_point, op.lo, op.hi
    )
