"""Outputs that are made by their parts: a concat whose operands lie in its result one behind the other.

That is a concat along the outermost axis in memory, such as the one behind the heads of a detector. Where its result is an
output of the network, each operand is stored to its place in that output when it is made, and there is no layer.

Example: heads of 3 x 4 and 2 x 4 bytes, concatenated to 5 x 4. The first is stored to bytes 0 to 12 of the output in DRAM, the
second to bytes 12 to 20.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from npuc.schedule.layers import Layer, Tensor
from npuc.schedule.rules.movement import ConcatOp


def joined_outputs(
    layers: Sequence[Layer], inputs: Collection[Tensor], outputs: Collection[Tensor]
) -> dict[Tensor, tuple[Tensor, ...]]:
    """The outputs that need no layer, each with its parts in their order."""
    taken = {tensor.storage for tensor in (*inputs, *outputs)}
    produced = {tensor for layer in layers for tensor in layer.outputs}
    read = {tensor.storage for layer in layers for tensor in layer.inputs}
    joined: dict[Tensor, tuple[Tensor, ...]] = {}
    for layer in layers:
        op = layer.op
        if not isinstance(op, ConcatOp) or op.y not in outputs or op.y in read or not _is_dense(op):
            continue
        parts = [tensor.storage for tensor in op.inputs]
        if op.constant_operands or len(set(parts)) < len(parts) or not produced >= set(parts):
            continue
        if taken.isdisjoint(parts):
            joined[op.y] = op.inputs
            taken.update(parts)  # a part of one output only
    return joined


def _is_dense(op: ConcatOp) -> bool:
    """Whether each operand is one block of the result, as it is."""
    y = op.y
    outer = y.order[: y.order.index(op.axis)]
    same = all(tensor.order == y.order and tensor.dtype == y.dtype for tensor in op.inputs)
    return same and prod(y.shape[axis] for axis in outer) == 1
