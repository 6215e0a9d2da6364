"""Units: sets of tensors that share one type, with the layers that read them.

An op that only moves elements keeps the type of its operand, a concat has one type for all operands, and a function such as
silu benefits from 16 bits only with 16 bits on both sides: such tensors change together. A tensor has 16 bits if the layers
that write and read it compute with 16 bits; the readers pay for it, because their products take longer. So a unit is a set of
tensors with its readers, and each layer with weights belongs to exactly one unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuc.ir import Graph, Value, dtype_of, result_names, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.ir.top.functions import FUNCTIONS
from npuc.quant.lowering.registry import keeps_type


@dataclass(frozen=True, eq=False)
class Unit:
    """A set of tensors that share one type."""

    values: tuple[Value, ...]
    narrow: tuple[Value, ...]
    """The tensors that have 8 bits now."""
    readers: tuple[TopOp, ...]
    makers: tuple[TopOp, ...]
    weighted: tuple[TopOp, ...]
    """The readers that multiply with constant weights."""

    @property
    def name(self) -> str:
        """The name of its first tensor."""
        return value_name(self.values[0])

    @property
    def ops(self) -> set[Any]:
        """The layers that write or read its tensors."""
        return {*self.readers, *self.makers}


def find_units(graph: Graph, types: Mapping[str, QuantType]) -> list[Unit]:
    """The units of a network in the order of the program; `types` are those of its integer form, by name."""
    leader: dict[Value, Value] = {}

    def find(value: Value) -> Value:
        while leader.setdefault(value, value) is not value:
            value = leader[value]
        return value

    for op in graph.ops:
        if not isinstance(op, TopOp) or isinstance(op, top.WeightOp) or not op.results:
            continue
        together: list[Value] = []
        if isinstance(op, top.Concat):
            together = [*op.operands, *op.results]
        elif keeps_type(op) or (type(op) in FUNCTIONS and op.operands[0].has_one_use()):
            together = [op.operands[0], *op.results]
        real = [value for value in together if _is_tensor(value)]
        for value in real[1:]:
            leader[find(value)] = find(real[0])
    members: dict[Value, list[Value]] = {}
    inner = [value for op in graph.ops if not isinstance(op, top.WeightOp) for value in op.results]
    for value in (*graph.block.args, *inner):
        if _is_tensor(value):
            members.setdefault(find(value), []).append(value)
    units = [_unit(graph, values, types) for values in members.values()]
    return [unit for unit in units if unit.narrow or unit.weighted]


def _unit(graph: Graph, values: list[Value], types: Mapping[str, QuantType]) -> Unit:
    readers = dict.fromkeys(
        use.operation for value in values for use in value.uses if isinstance(use.operation, TopOp)
    )
    ordered = [op for op in graph.ops if op in readers]
    inside = set(values)
    return Unit(
        tuple(values),
        tuple(
            value
            for value in values
            if (kind := types.get(value_name(value))) is not None and kind.dtype.itemsize == 1
        ),
        tuple(op for op in ordered if isinstance(op, TopOp)),
        tuple(value.owner for value in values if isinstance(value.owner, TopOp)),
        tuple(op for op in ordered if _is_weighted(op, graph) and op.operands[0] in inside),  # type: ignore[misc]
    )


def _is_weighted(op: Any, graph: Graph) -> bool:
    if isinstance(op, top.Conv | top.Deconv):
        return graph.constant(op.weight) is not None
    return isinstance(op, top.MatMul) and graph.constant(op.b) is not None


def _is_tensor(value: Value) -> bool:
    return not isinstance(value.owner, top.WeightOp) and dtype_of(value.type).name == "f32"


def key(op: Any) -> str:
    """The name of a layer in both networks: that of its first result."""
    return result_names(op)[0]
