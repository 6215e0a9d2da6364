"""What is known of the sign of a value from the op that computes it."""

from __future__ import annotations

from xdsl.ir import OpResult, SSAValue

from npuc.ir.top import (
    Abs,
    AvgPool,
    Concat,
    Exp,
    HardSigmoid,
    MaxPool,
    Permute,
    Relu,
    Reshape,
    Sigmoid,
    Slice,
    Softmax,
    Softplus,
    Split,
)
from npuc.transform.patterns import has_relu

_NOT_NEGATIVE = (Relu, Sigmoid, HardSigmoid, Softmax, Softplus, Exp, Abs)
_KEEPS_SIGN = (MaxPool, AvgPool, Reshape, Permute, Slice, Split)


def not_negative(value: SSAValue, most: int = 64) -> bool:
    """True if no element of the value can be below zero (NaN aside); at most `most` ops are looked at."""
    left = [value]
    while left:
        value = left.pop()
        op = value.op if isinstance(value, OpResult) else None
        most -= 1
        if op is None or most < 0:
            return False
        if has_relu(op) or isinstance(op, _NOT_NEGATIVE):
            continue
        if isinstance(op, _KEEPS_SIGN):
            left.append(op.operands[0])
        elif isinstance(op, Concat):
            left.extend(op.inputs)
        else:
            return False
    return True
