"""Block floating point (mx6, mx9) for evaluation: which operands of an op are rounded, and along which axis.

Only products are computed with such numbers, so only their operands are rounded, along the axis that is summed over.
"""

from __future__ import annotations

from npuc.ir import shape_of, top
from npuc.ir.definition import TopOp


def block_axes(op: TopOp) -> dict[int, int] | None:
    """Operand number to axis, for an op that multiplies; None for others."""
    match op:
        case top.Conv():
            return {0: 1, 1: 1}
        case top.Deconv():
            return {0: 1, 1: 0}
        case top.MatMul():
            last = len(shape_of(op.b)) - 1
            return {0: len(shape_of(op.a)) - 1, 1: last if op.transpose_b else last - 1}
    return None
