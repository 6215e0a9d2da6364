"""Which ops of a program are f32 on the NPU, rather than on the CPU beside it.

Both have tensors of plain f32. Ops that compute with f32 on the NPU are those of the `npu` dialect, whose order of sums is
defined. An op that only moves elements gives the same on both sides: it is where the ops around it are.
"""

from __future__ import annotations

from typing import Any

from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import dtype_of, is_static
from npuc.ir.npu.blocks import BlockLinear
from npuc.ir.npu.floating import FloatOp
from npuc.ir.top.movement import MOVERS, Concat, Pad
from npuc.ir.top.resampling import Resize


def computes_in_f32(op: Any) -> bool:
    """Whether an op computes with f32 by an instruction."""
    return isinstance(op, FloatOp | BlockLinear) and dtype_of(op.to).name == "f32"


def is_f32_on_npu(op: TensorOp) -> bool:
    """Whether an op computes with f32 by an instruction, or moves elements before or behind one that does."""
    if computes_in_f32(op):
        return True
    pending: list[Any] = [op]
    visited: set[Any] = {op}
    while pending:
        mover = pending.pop()
        if not _moves_f32(mover):
            continue
        near = [value.owner for value in mover.operands]
        near += [use.operation for value in mover.results for use in value.uses]
        if any(computes_in_f32(neighbour) for neighbour in near):
            return True
        pending += [neighbour for neighbour in near if neighbour not in visited]
        visited.update(near)
    return False


def _moves_f32(op: Any) -> bool:
    moves = isinstance(op, (*MOVERS, Concat, Pad)) or (isinstance(op, Resize) and op.mode == "nearest")
    return moves and all(
        is_static(value) and dtype_of(value.type).name == "f32" for value in (*op.operands, *op.results)
    )
