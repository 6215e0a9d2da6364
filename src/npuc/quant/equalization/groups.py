"""Groups of tensors that have to be scaled together, and the ops that can absorb the factors.

The tensors of a group are tied by ops that commute with a positive factor per channel, and by sums. Its makers can divide
their output channels, its readers can multiply their input channels. A group is not usable if one of its tensors is an input
or output of the network, or is used by any other op.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from npuc.ir import Graph, Value, dtype_of, shape_of, top
from npuc.ir.definition import TopOp

_COMMUTES = (top.LeakyRelu, top.MaxPool, top.AvgPool)
"""Ops that commute with a positive factor per channel, if channels are axis 1."""
NEARLY = (top.SiLU, top.HardSwish)
"""Functions that nearly commute with a factor: near zero they are half of their operand, and far from it a relu."""


@dataclass(eq=False)
class EqualizationGroup:
    """Tensors that share one factor per channel."""

    channels: int
    axis: int
    """The channel axis: 1 in feature maps, the last in matrices."""
    values: list[Value] = field(default_factory=list)
    makers: list[Any] = field(default_factory=list)
    readers: list[tuple[Any, int]] = field(default_factory=list)
    """Ops, and which of their operands is a value of the group."""
    functions: list[Any] = field(default_factory=list)
    """Functions between its tensors that commute only nearly (`NEARLY`)."""
    limit: float = inf
    """The lowest limit of its relus (relu6), which a factor would shift."""


def channel_axis(value: Value) -> int:
    """The channel axis of a tensor: 1 in feature maps, the last in matrices."""
    rank = len(shape_of(value))
    return 1 if rank == 4 else rank - 1


def find_groups(graph: Graph, *, nearly: bool = False) -> list[EqualizationGroup]:
    """The groups of a network that have makers and readers, in the order of their first tensor.

    With `nearly`, they extend through functions that commute with factors only nearly.
    """
    functions = NEARLY if nearly else ()
    ties = _Ties()
    excluded: set[Value] = {port.value for port in (*graph.inputs, *graph.outputs)}
    for op in graph.ops:
        if isinstance(op, top.WeightOp):
            continue
        assert isinstance(op, TopOp)
        tied = _tied(op, graph, functions)
        for value in tied[1:]:
            ties.join(tied[0], value)
        known = set(tied)
        for index, value in enumerate(op.operands):
            if value not in known and graph.constant(value) is None and not _reads(op, index, graph):
                excluded.add(value)
        for value in op.results:
            if value not in known and not _makes(op, graph):
                excluded.add(value)
    groups: dict[Value, EqualizationGroup] = {}
    bad: set[Value] = set()
    for value in (v for op in graph.ops if not isinstance(op, top.WeightOp) for v in op.results):
        root = ties.root(value)
        if value in excluded or dtype_of(value.type).name != "f32" or len(shape_of(value)) < 2:
            bad.add(root)
            continue
        axis = channel_axis(value)
        group = groups.setdefault(root, EqualizationGroup(shape_of(value)[axis], axis))
        if shape_of(value)[axis] != group.channels or axis != group.axis:
            bad.add(root)
            continue
        _enter(group, value, graph, functions)
    for value in excluded:
        bad.add(ties.root(value))
    return [
        group
        for root, group in groups.items()
        if root not in bad and group.makers and group.readers and group.channels > 1
    ]


def _enter(group: EqualizationGroup, value: Value, graph: Graph, functions: tuple[type[TopOp], ...]) -> None:
    op: Any = value.owner
    group.values.append(value)
    if isinstance(op, functions):
        group.functions.append(op)
    if _makes(op, graph) and value not in _tied(op, graph, functions):
        group.makers.append(op)
    limit = op.relu_limit if getattr(op, "relu", False) else op.limit if isinstance(op, top.Relu) else 0.0
    if limit > 0:
        group.limit = min(group.limit, limit)
    for use in value.uses:
        if _reads(use.operation, use.index, graph) and value not in _tied(use.operation, graph, functions):
            group.readers.append((use.operation, use.index))


def _tied(op: Any, graph: Graph, functions: tuple[type[TopOp], ...]) -> list[Value]:
    """Operands and results of an op that have to have the same factors."""
    if functions and isinstance(op, NEARLY):
        return [op.x, op.y] if len(shape_of(op.y)) == 4 else []
    if isinstance(op, top.Relu):
        return [op.x, op.y]
    if isinstance(op, _COMMUTES) or (isinstance(op, top.PRelu) and graph.constant(op.slope) is not None):
        return [op.operands[0], op.y] if len(shape_of(op.y)) == 4 else []
    if isinstance(op, top.Resize) and len(shape_of(op.y)) == 4:
        return [op.x, op.y] if shape_of(op.x)[1] == shape_of(op.y)[1] else []
    if isinstance(op, top.Pad) and op.value == 0 and len(shape_of(op.y)) == 4:
        return [op.x, op.y] if shape_of(op.x)[1] == shape_of(op.y)[1] else []
    if isinstance(op, top.Add | top.Sub) and shape_of(op.a) == shape_of(op.b):
        constant = any(graph.constant(value) is not None for value in (op.a, op.b))
        return [] if constant else [op.a, op.b, op.y]
    if isinstance(op, top.Reduce) and op.kind == "mean" and len(shape_of(op.x)) == 4:
        axes = {axis % 4 for axis in op.axes}
        return [op.x, op.y] if axes == {2, 3} or (axes < {2, 3} and op.keepdims) else []
    if isinstance(op, top.Reshape) and len(shape_of(op.x)) == 4 and shape_of(op.x)[2:] == (1, 1):
        return [op.x, op.y] if shape_of(op.y) == shape_of(op.x)[:2] else []
    return []


def _makes(op: Any, graph: Graph) -> bool:
    """Whether an op can divide the channels of its result: its constants are not used elsewhere."""
    if isinstance(op, top.Conv):
        return len(shape_of(op.y)) == 4 and _own(op.weight, graph) and _own(op.bias, graph)
    if isinstance(op, top.Deconv):
        return op.group == 1 and len(shape_of(op.y)) == 4 and _own(op.weight, graph) and _own(op.bias, graph)
    if isinstance(op, top.MatMul):
        flat = _own(op.b, graph) and len(shape_of(op.b)) == 2 and _own(op.bias, graph)
        return flat and len(shape_of(op.y)) < 4
    if isinstance(op, top.LayerNorm | top.RMSNorm):
        last = op.axis % len(shape_of(op.y)) == len(shape_of(op.y)) - 1
        return (
            last
            and len(shape_of(op.y)) < 4
            and op.scale is not None
            and _own(op.scale, graph)
            and _own(op.bias, graph)
        )
    if isinstance(op, top.BatchNorm | top.Scale):
        return len(shape_of(op.y)) == 4 and _own(op.scale, graph) and _own(op.bias, graph)
    return False


def _reads(op: Any, index: int, graph: Graph) -> bool:
    """Whether an op can multiply the channels of its operand `index`."""
    if index != 0:
        return False
    if isinstance(op, top.Conv):
        return len(shape_of(op.x)) == 4 and _own(op.weight, graph)
    if isinstance(op, top.Deconv):
        return op.group == 1 and len(shape_of(op.x)) == 4 and _own(op.weight, graph)
    if isinstance(op, top.MatMul):
        return _own(op.b, graph) and len(shape_of(op.b)) == 2 and len(shape_of(op.a)) < 4
    return False


def _own(value: Value | None, graph: Graph) -> bool:
    """Whether a value is a constant with a single use, or absent."""
    return value is None or (graph.constant(value) is not None and value.has_one_use())


class _Ties:
    """A union-find structure of tied values."""

    def __init__(self) -> None:
        self._parent: dict[Value, Value] = {}

    def root(self, value: Value) -> Value:
        while (parent := self._parent.get(value, value)) is not value:
            value = parent
        return value

    def join(self, a: Value, b: Value) -> None:
        a, b = self.root(a), self.root(b)
        if a is not b:
            self._parent[b] = a
