"""Equalization through silu and hard-swish: approximate, within a bound on what it changes.

A factor s does not commute with f = silu: s * f(x / s) is f(x) only where x is near zero (f is half of x there) or far from it
(f is a relu). How far a channel may be scaled, its values tell: the change of f is measured for a row of factors, and those
are allowed that change it by no more than a few times the error of rounding to 8 bits. For example, a channel whose values
stay within 0.01 may grow 16 times; one that lives between -2 and 2 may not be scaled at all. What the change does to the mean of
a channel is added to the biases of the layers that read it. Whether the network is the better for it, the caller measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine import float_engine
from npuc.ir import Graph, value_name
from npuc.ir.top import Conv
from npuc.ir.top.functions import FUNCTIONS
from npuc.quant.equalization.absorption import effect_of, move_bias
from npuc.quant.equalization.groups import EqualizationGroup

_FACTORS = 2.0 ** (np.arange(-16, 17) / 2)
"""The factors whose effect is measured: half powers of two from 1/256 to 256."""
_VALUES = 512
"""The values of a channel that are looked at, in each sample."""
_STEPS = 128.0
"""The steps of 8 bits on one side of zero."""


class OperandValues:
    """Values of the operands of functions on some samples, by function: channels x values."""

    def __init__(
        self,
        graph: Graph,
        groups: Sequence[EqualizationGroup],
        samples: Sequence[Mapping[str, Array]],
        threads: int,
    ) -> None:
        names = {op: value_name(op.x) for group in groups for op in group.functions}
        engine = float_engine(graph, fetch=list(dict.fromkeys(names.values())), threads=threads)
        parts: dict[Any, list[Array]] = {op: [] for op in names}
        for sample in samples:
            values = engine.run(sample)
            for op, name in names.items():
                by_channel = np.moveaxis(np.asarray(values[name], np.float64), 1, 0)
                flat = by_channel.reshape(len(by_channel), -1)
                parts[op].append(flat[:, :: -(-flat.shape[1] // _VALUES)])
        self._values = {op: np.concatenate(rows, axis=1) for op, rows in parts.items()}

    def bounds(self, group: EqualizationGroup, tolerance: float) -> tuple[Array, Array]:
        """The smallest and the largest factor of each channel of a group; `tolerance` is in errors of rounding to 8 bits.

        A group without functions has no bounds.
        """
        low, high = np.zeros(group.channels), np.full(group.channels, inf)
        for op in group.functions:
            x = self._values[op]
            exact = _result(op, x)
            rounding = (np.abs(exact).max() / _STEPS) ** 2 / 12
            changes = np.array([np.square(exact - s * _result(op, x / s)).mean(axis=1) for s in _FACTORS])
            allowed = changes <= tolerance * rounding
            middle = len(_FACTORS) // 2
            up = np.cumprod(allowed[middle:], axis=0).sum(axis=0) - 1
            down = np.cumprod(allowed[middle::-1], axis=0).sum(axis=0) - 1
            low, high = np.maximum(low, _FACTORS[middle - down]), np.minimum(high, _FACTORS[middle + up])
        return low, high

    def mean_change(self, op: Any, factor: Array) -> Array:
        """By how much the mean of each channel behind a function falls if factors are moved through it."""
        x, s = self._values[op], factor[:, None]
        change: Array = (_result(op, x) - s * _result(op, x / s)).mean(axis=1)
        return change


def _result(op: Any, x: Array) -> Array:
    result: Array = FUNCTIONS[type(op)].formula(op, x, np)
    return result


def with_corrected_means(
    scaled: Graph,
    original: Graph,
    groups: Sequence[EqualizationGroup],
    factors: Sequence[Array],
    values: OperandValues,
) -> Graph:
    """A network whose groups were scaled by these factors in all, with the means behind their functions in later biases.

    `groups` are those of the original, and `scaled` is a copy of it with other constants. Only convolutions that read a
    function directly are corrected.
    """
    new = scaled.copy()
    twins = dict(zip(_computing(original), _computing(new), strict=True))
    for group, factor in zip(groups, factors, strict=True):
        for op, _ in group.readers:
            function = op.operands[0].owner
            if function in group.functions and isinstance(op, Conv) and op.bias is not None:
                # The weights that read the channel were multiplied by the factor already.
                offsets = values.mean_change(function, factor) / factor
                move_bias(new, twins[op], effect_of(offsets, twins[op], new))
    new.notes = list(scaled.notes)
    new.verify()
    return new


def _computing(graph: Graph) -> list[Any]:
    from npuc.ir.top import WeightOp

    return [op for op in graph.ops if not isinstance(op, WeightOp)]
