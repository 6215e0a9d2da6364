"""Outputs that are joined of parts of very different sizes: boxes of 0 to 640 and scores of 0 to 1.

One scale for all leaves the small parts no steps. Where the join is the last thing that happens, it need not share a scale:
the parts leave the NPU as integers of their own, and are joined in float on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from npuc.calib.statistics import TensorStatistics
from npuc.ir import Graph, Value, top, value_name
from npuc.quant.scheme import Scheme

SchemeOf = Callable[[Any], Scheme | None]

APART = 4.0
"""Sizes of parts that differ by this factor or more cost the smaller ones two bits."""
_MOVES = (top.Reshape, top.Permute, top.Slice)


def joining_ops(
    graph: Graph, scheme_of: SchemeOf, seen: Mapping[str, TensorStatistics] | None = None
) -> list[Any]:
    """The concats that make an output of parts of different sizes, and what only moves their results, in order.

    Those that are float already do not count. Without statistics, all sizes count as different.
    """
    found: set[Any] = set()
    for port in graph.outputs:
        _collect(port.value, found, seen)
    return [op for op in graph.ops if op in found and scheme_of(op) is not None]


def _collect(value: Value, found: set[Any], seen: Mapping[str, TensorStatistics] | None) -> bool:
    """Whether a tensor comes of such a concat; if so, it and all on the way are found."""
    op = value.owner
    if isinstance(op, top.Concat):
        inner = [_collect(operand, found, seen) for operand in op.inputs]
        joins = any(inner) or _differ(op, seen)
    elif isinstance(op, _MOVES):
        joins = _collect(op.operands[0], found, seen)
    else:
        return False
    if joins:
        found.add(op)
    return joins


def _differ(op: Any, seen: Mapping[str, TensorStatistics] | None) -> bool:
    if seen is None:
        return True
    sizes = [seen[name].magnitude for value in op.inputs if (name := value_name(value)) in seen]
    known = [size for size in sizes if size > 0]
    return len(known) > 1 and max(known) >= APART * min(known)


def with_joins_in_float(scheme_of: SchemeOf, joins: Collection[Any]) -> SchemeOf:
    """The same schemes, but some ops stay float."""
    real = set(joins)
    return lambda op: None if op in real else scheme_of(op)
