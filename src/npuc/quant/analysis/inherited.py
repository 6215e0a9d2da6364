"""Inherited errors: layers that look worst in a comparison, but only pass on the errors of earlier layers."""

from __future__ import annotations

from collections.abc import Iterator

from npuc.ir import Graph, Value, top, value_name
from npuc.ir.definition import TensorOp
from npuc.quant.analysis.finding import Finding, percent
from npuc.quant.analysis.measurements import Measurements, TensorMeasure

KIND = "inherited"
_BETTER = 10.0
"""The decibels by which a layer measured alone has to be better than in the network."""
_BAD = 25.0
"""Layers above this many decibels do not look suspicious."""
_LITTLE = 0.05
"""A layer that causes this share of the noise at the outputs, or more, is itself a cause."""
_MOST = 3


def find(measurements: Measurements) -> Iterator[Finding]:
    """The worst of the tensors whose error is not their own; their severity is 0."""
    worst = sorted(
        (t for t in measurements.tensors if t.accumulated is not None and t.isolated is not None),
        key=_accumulated,
    )
    for tensor in worst[:_MOST]:
        assert tensor.accumulated is not None and tensor.isolated is not None
        here, alone = tensor.accumulated.sqnr, tensor.isolated.sqnr
        if here > _BAD or alone < here + _BETTER or measurements.share(tensor.noise) >= _LITTLE:
            continue
        before = ancestors(measurements.source, tensor.name)
        sources = [t for t in measurements.tensors if t.name in before]
        guilty = max(sources, key=lambda t: t.noise, default=None)
        if guilty is None or measurements.share(guilty.noise) < _LITTLE:
            continue
        yield Finding(
            tensor.name,
            KIND,
            f"it is among the worst tensors of the network ({here:.1f} dB), but not by its own fault: by itself the layer "
            f"has {alone:.1f} dB, and its rounding makes {percent(measurements.share(tensor.noise))} of the noise",
            f"leave it; of what is before it, '{guilty.name}' costs most",
            0.0,
        )


def _accumulated(tensor: TensorMeasure) -> float:
    return tensor.accumulated.sqnr if tensor.accumulated is not None else 0.0


def ancestors(graph: Graph, name: str) -> set[str]:
    """The names of the tensors that a tensor is computed from."""
    start = next(
        (
            v
            for op in graph.ops
            for v in op.results
            if value_name(v) == name and not isinstance(op, top.WeightOp)
        ),
        None,
    )
    waiting: list[Value] = [] if start is None else [start]
    visited: set[Value] = set()
    while waiting:
        op = waiting.pop().owner
        for value in op.operands if isinstance(op, TensorOp) else ():
            if value not in visited:
                visited.add(value)
                waiting.append(value)
    return {value_name(value) for value in visited}
