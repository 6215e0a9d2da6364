"""Which tensors of rank 4 are batches of matrices: those around products of activations, the heads of attention.

Images have their channels last in memory. A product wants whole matrices instead, and a tensor that is nothing but an
operand or a result of products does better in the order of its axes: nothing has to be turned, and the reshape that made
heads of channels is a view. Such a tensor may go through ops that take any order, and through those that keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from npuc.ir import Graph, Value, npu, shape_of, top


def batches_of_matrices(ops: Iterable[Any], graph: Graph, kept: Collection[Value]) -> set[Value]:
    """The values that are to lie in the order of their axes; `kept` are those whose order others rely on."""
    ops = list(ops)
    inside = set(ops)
    results = {value for op in ops for value in op.results if len(shape_of(value)) == 4 and value not in kept}
    matrices = {
        value for op in ops if _is_product(op, graph) for value in (*op.operands, *op.results)
    } & results
    pending = list(matrices)
    while pending:
        value = pending.pop()
        for op in (value.owner, *(use.operation for use in value.uses)):
            if op in inside and (_takes_any(op, graph) or _keeps(op, graph)):
                near = {*op.operands, *op.results} & results - matrices
                matrices |= near
                pending += near
    while True:
        # All who touch one can do with it, and an op that keeps the order has it on both sides.
        wrong = {
            value
            for value in matrices
            for op in (value.owner, *(use.operation for use in value.uses))
            if op not in inside
            or not (
                _takes_any(op, graph)
                or (_keeps(op, graph) and matrices >= {_operand(op, graph), op.results[0]})
            )
        }
        if not wrong:
            return matrices
        matrices -= wrong


def _is_product(op: Any, graph: Graph) -> bool:
    return (
        isinstance(op, npu.MatMul | npu.FloatMatMul)
        and graph.constant(op.x) is None
        and graph.constant(op.weight) is None
    )


def _takes_any(op: Any, graph: Graph) -> bool:
    """Whether an op is content with any order of its operands and its result."""
    return isinstance(op, top.Reshape | top.Permute) or _is_product(op, graph)


def _keeps(op: Any, graph: Graph) -> bool:
    """Whether an op leaves elements where they are, or works along the last axis."""
    match op:
        case npu.Requant() | npu.Table() | npu.FloatTable() | npu.Cast():
            return True
        case npu.Softmax() | npu.FloatSoftmax():
            return op.axis in (-1, 3)
        case npu.Mul() | npu.FloatMul():
            arrays = [graph.constant(op.a), graph.constant(op.b)]
            return any(array is not None and array.size == 1 for array in arrays)
    return False


def _operand(op: Any, graph: Graph) -> Value | None:
    """The only operand of such an op that is not a constant; None if all are."""
    return next((value for value in op.operands if graph.constant(value) is None), None)
