"""Some ops of a network as a network of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from npuc.ir.definition import TensorOp
from npuc.ir.graph import Graph, Value
from npuc.ir.top.weight import WeightOp


def subgraph_of(
    graph: Graph,
    ops: Iterable[TensorOp],
    inputs: Sequence[tuple[str, Value]],
    outputs: Sequence[tuple[str, Value]],
) -> tuple[Graph, dict[Value, Value]]:
    """Copies of ops, in their order, between named values; also the value of the copy for each value of the original.

    Constants come along: both networks have one store of weights. Everything else that the ops read is among `inputs`.
    """
    small = Graph.empty([(name, value.type) for name, value in inputs], graph.weights)
    known: dict[Value, Value] = dict(zip((value for _, value in inputs), small.block.args, strict=True))
    for op in ops:
        for value in op.operands:
            if value not in known:
                owner = value.owner
                assert isinstance(owner, WeightOp)
                copy = WeightOp.of(owner.ref, owner.output.type)
                small.block.add_op(copy)
                known[value] = copy.output
        clone: Any = type(op).create(
            operands=[known[value] for value in op.operands],
            result_types=[value.type for value in op.results],
            properties=op.properties,
            attributes=op.attributes,
            location=op.location,
        )
        small.block.add_op(clone)
        known.update(zip(op.results, clone.results, strict=True))
    small.set_outputs([(name, known[value]) for name, value in outputs])
    return small, known
