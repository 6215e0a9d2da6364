"""Outputs that concatenate parts of very different magnitudes, such as boxes of 0 to 640 and scores of 0 to 1.

A common scale leaves almost no steps for the small parts. If the concat is the last op before the output, the parts need
not share a scale: each leaves the NPU with its own scale, and they are concatenated in float on the CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from npuc.calib.statistics import TensorStatistics
from npuc.ir import Graph, Value, top, value_name
from npuc.quant.layer_schemes import LayerSchemes

APART = 4.0
"""Parts whose magnitudes differ by this factor or more: the smaller ones lose two bits."""
_MOVES = (top.Reshape, top.Permute, top.Slice)


def joining_ops(
    graph: Graph, scheme_of: LayerSchemes, statistics: Mapping[str, TensorStatistics] | None = None
) -> list[Any]:
    """The concats that build an output of parts of different magnitudes, and the ops that only move their results, in order.

    Ops that are float already are left out. Without statistics, all magnitudes count as different.
    """
    ops: set[Any] = set()
    for port in graph.outputs:
        _collect(port.value, ops, statistics)
    return [op for op in graph.ops if op in ops and scheme_of(op) is not None]


def _collect(value: Value, ops: set[Any], statistics: Mapping[str, TensorStatistics] | None) -> bool:
    """Whether a tensor comes from such a concat; if so, the concat and the ops after it are added to `ops`."""
    op = value.owner
    if isinstance(op, top.Concat):
        inner = [_collect(operand, ops, statistics) for operand in op.inputs]
        joins = any(inner) or _differ(op, statistics)
    elif isinstance(op, _MOVES):
        joins = _collect(op.operands[0], ops, statistics)
    else:
        return False
    if joins:
        ops.add(op)
    return joins


def _differ(op: Any, statistics: Mapping[str, TensorStatistics] | None) -> bool:
    if statistics is None:
        return True
    sizes = [statistics[name].magnitude for value in op.inputs if (name := value_name(value)) in statistics]
    known = [size for size in sizes if size > 0]
    return len(known) > 1 and max(known) >= APART * min(known)


def with_joins_in_float(scheme_of: LayerSchemes, joins: Collection[Any]) -> LayerSchemes:
    """The same schemes, but with some ops kept float."""
    return scheme_of.as_float(joins)
