"""Sixteen bits where eight cost the network too much.

A few tensors can spoil a whole network: channels of very different sizes under one scale, most often near the input. What
the rounding of each tensor alone does to the outputs is measured; the noises add up, so the worst few are known at once.
A tensor has 16 bits if the layer that makes it and those that read it compute with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from npuc.engine.rounded import output_noise
from npuc.ir import Graph, Value, top, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.lowering.tables import FUNCTIONS
from npuc.quant.scheme import Scheme

Array = np.ndarray[Any, Any]
SchemeOf = Callable[[Any], Scheme | None]

_SHARE = 0.05
"""A tensor that makes less of the noise than this part is left alone."""
_MOST = 0.1
"""At most this part of the tensors gets 16 bits."""


def spoilers(
    graph: Graph,
    types: Mapping[str, QuantType],
    samples: Sequence[Mapping[str, Array]],
    goal: float,
    threads: int = 1,
) -> list[Value]:
    """The 8-bit tensors that have to go for the outputs to reach `goal` decibels, or those worth it."""
    units = list(
        dict.fromkeys(
            _unit(value)
            for op in graph.ops
            if not isinstance(op, top.WeightOp)
            for value in op.results
            if (kind := types.get(value_name(value))) is not None and kind.dtype.itemsize == 1
        )
    )
    sets = [[name for value in unit if (name := value_name(value)) in types] for unit in units]
    noise = np.array(list(output_noise(graph, sets, types, samples, threads)))
    total = left = float(noise.sum())
    chosen: list[Value] = []
    for index in np.argsort(-noise, kind="stable")[: max(1, int(_MOST * len(units)))]:
        if left <= 10 ** (-goal / 10) or noise[index] < _SHARE * total:
            break
        chosen += units[index]
        left -= float(noise[index])
    return chosen


def widened(scheme_of: SchemeOf, tensors: Collection[Value], wide: Callable[[Scheme], Scheme]) -> SchemeOf:
    """The same schemes, but wide ones for the layers that make or read some tensors."""
    ops = {use.operation for value in tensors for use in value.uses}
    ops |= {value.owner for value in tensors}

    def choose(op: Any) -> Scheme | None:
        scheme = scheme_of(op)
        return wide(scheme) if scheme is not None and op in ops else scheme

    return choose


def _unit(value: Value) -> tuple[Value, ...]:
    """A tensor; with the operand or result of the function beside it, if that is all there is between them."""
    owner = value.owner
    if type(owner) in FUNCTIONS and owner.operands[0].has_one_use():  # type: ignore[union-attr]
        return (owner.operands[0], value)  # type: ignore[union-attr]
    reader = next(iter(value.uses)).operation if value.has_one_use() else None
    return (value, reader.results[0]) if type(reader) in FUNCTIONS else (value,)  # type: ignore[union-attr]
