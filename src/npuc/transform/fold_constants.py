"""Ops on constants are evaluated now.

    %0 = top.weight @a                         %1 = top.weight @"y"
    %1 = top.exp(%0)  loc("y")        →

The constant part of the graph is cut out, exported, and run once by the float engine, so that a folded value is the
value the network would have computed. Results that would make the program much larger stay as they are, and so do
`dequantize` ops, because they say how their weight is quantized.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Operation, SSAValue

from npuc.errors import NpucError
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import dtype_of, is_static
from npuc.ir.graph import Graph
from npuc.ir.names import location, value_name
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import Dequantize, WeightOp
from npuc.transform.determinism import is_deterministic
from npuc.transform.eliminate_dead_code import drop_unused_weights
from npuc.transform.patterns import size_of

_SMALL = 1 << 20
_GROWTH = 8
_ALLOWED = 256 << 20
"""Bytes of all results together, beside twice those of the weights: a long chain of ops on one constant is not followed to its
end, for every link of it may be in memory at once."""


@register_pass
@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluate ops whose operands are all constant."""

    name: ClassVar[str] = "fold-constants"

    limit: int = 64 << 20
    """The largest result in bytes."""

    def run(self, graph: Graph) -> None:
        """Collect in order, evaluate together; if that fails, evaluate one by one and leave what cannot be."""
        ops = self._constant_ops(graph)
        if not ops:
            return
        try:
            self._fold(graph, ops)
        except NpucError:
            for op in ops:
                # An operand that could not be folded is no weight: its users stay too.
                if all(isinstance(value.owner, WeightOp) for value in op.operands):
                    with suppress(NpucError):
                        self._fold(graph, [op])
        drop_unused_weights(graph)

    def _constant_ops(self, graph: Graph) -> list[TopOp]:
        constant: set[SSAValue] = set()
        ops: list[TopOp] = []
        left = _ALLOWED
        for op in graph.ops:
            if isinstance(op, WeightOp):
                constant.add(op.results[0])
                left += 2 * _nbytes(op.results)
            elif (
                isinstance(op, TopOp)
                and all(value in constant for value in op.operands)
                and self._may_fold(op)
                and _nbytes(op.results) <= left
            ):
                constant.update(op.results)
                ops.append(op)
                left -= _nbytes(op.results)
        return ops

    def _may_fold(self, op: TopOp) -> bool:
        if isinstance(op, Dequantize) or not op.results or not is_deterministic(op):
            return False
        if not all(is_static(value) for value in (*op.operands, *op.results)):
            return False
        out, into = _nbytes(op.results), _nbytes(op.operands)
        return out <= self.limit and into <= 4 * self.limit and (out <= _SMALL or out <= _GROWTH * into)

    def _fold(self, graph: Graph, ops: Sequence[TopOp]) -> None:
        inside = set(ops)
        read_outside = [
            value
            for op in ops
            for value in op.results
            if any(use.operation not in inside for use in value.uses)
        ]
        arrays = _evaluate(graph, ops, read_outside)
        for value, array in zip(read_outside, arrays, strict=True):
            owner = value.owner
            assert isinstance(owner, Operation)
            name = value_name(value)
            weight = graph.add_weight(name or "folded", array)
            if name:
                weight.location = location(name)
            graph.block.insert_op_before(weight, owner)
            value.replace_uses_with_if(weight.results[0], lambda use: use.operation not in inside)
        for op in reversed(ops):
            graph.block.erase_op(op)


def _nbytes(values: Sequence[SSAValue]) -> int:
    return sum(size_of(value) * dtype_of(value.type).itemsize for value in values)


def _evaluate(
    graph: Graph, ops: Sequence[TopOp], results_read: Sequence[SSAValue]
) -> list[np.ndarray[Any, Any]]:
    """Run ops on constants in the float engine."""
    from npuc.engine import FloatEngine

    part = Graph.empty([], graph.weights)
    copies: dict[SSAValue, SSAValue] = {}
    for op in ops:
        for value in op.operands:
            if value not in copies:
                source = value.owner
                assert isinstance(source, WeightOp)
                weight = source.clone()
                part.block.add_op(weight)
                copies[value] = weight.results[0]
        part.block.add_op(op.clone(copies))
    outputs = [(f"folded.{index}", copies[value]) for index, value in enumerate(results_read)]
    part.set_outputs(outputs)
    results = FloatEngine(part, threads=1).run({})
    arrays = []
    for (name, value), old in zip(outputs, results_read, strict=True):
        array = np.asarray(results[name])
        expected = dtype_of(old.type).numpy
        if array.shape != tuple(value.type.get_shape()) or array.dtype != expected:  # type: ignore[attr-defined]
            raise _wrong_type(name, array, old)
        arrays.append(array)
    return arrays


def _wrong_type(name: str, array: np.ndarray[Any, Any], value: SSAValue) -> NpucError:
    from npuc.errors import EngineError

    return EngineError(f"'{name}' came out as {array.dtype}{list(array.shape)} instead of {value.type}")
