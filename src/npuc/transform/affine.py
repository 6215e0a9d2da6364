"""Affine ops seen alike: x * factor + offset with constants, however they are spelled.

`scale`, `neg`, and `mul`, `add`, `sub`, `div` with a constant are all of this form. Factor and offset are double
precision arrays that broadcast to the result; folds compute with them and round once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from npuc.arrays import Array
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.top import Add, Div, Mul, Neg, Scale, Sub
from npuc.transform.patterns import commuted, exact, is_float, per_axis

_ONE, _ZERO = np.ones(()), np.zeros(())
_LARGEST = 1 << 20
"""Constants with more elements are activations in disguise, not parameters of a layer."""


@dataclass(frozen=True)
class Affine:
    """x * factor + offset, then perhaps the relu of the op."""

    op: Operation
    x: SSAValue
    factor: Array
    offset: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of x and of the result."""
        return shape_of(self.x)

    def along(self, axis: int) -> tuple[Array, Array] | None:
        """Factor and offset as vectors along an axis; None if they vary along another."""
        factor, offset = per_axis(self.factor, self.shape, axis), per_axis(self.offset, self.shape, axis)
        return None if factor is None or offset is None else (factor, offset)

    @property
    def only_adds(self) -> bool:
        """The factor is 1 throughout."""
        return bool((self.factor == 1).all())

    @property
    def only_multiplies(self) -> bool:
        """The offset is 0 throughout."""
        return bool((self.offset == 0).all())


def affine_of(graph: Graph, op: Operation | None) -> Affine | None:
    """The op as an affine function of its one operand that is not constant; None if it is not one."""
    if not isinstance(op, Scale | Neg | Mul | Add | Sub | Div) or not is_float(op.results[0]):
        return None
    parts = _parts(graph, op)
    if parts is None:
        return None
    x, factor, offset = parts
    if shape_of(x) != shape_of(op.results[0]) or max(factor.size, offset.size) > _LARGEST:
        return None
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        return None
    return Affine(op, x, factor, offset)


def _parts(graph: Graph, op: Operation) -> tuple[SSAValue, Array, Array] | None:
    match op:
        case Neg():
            return op.x, -_ONE, _ZERO
        case Scale():
            factor, offset = exact(graph, op.scale), exact(graph, op.bias)
            if factor is None or offset is None:
                return None
            shape = (-1,) + (1,) * (len(shape_of(op.x)) - 2)
            return op.x, factor.reshape(shape), offset.reshape(shape)
    operands = commuted(graph, op)
    if operands is None:
        return None
    x, value = operands
    if _elements(shape_of(value)) > _LARGEST:
        return None
    constant = exact(graph, value)
    if constant is None:
        return None
    first = x is op.operands[0]
    match op:
        case Mul():
            return x, constant, _ZERO
        case Add():
            return x, _ONE, constant
        case Sub():
            return (x, _ONE, -constant) if first else (x, -_ONE, constant)
        case Div() if first and (constant != 0).all():
            return x, 1.0 / constant, _ZERO
    return None


def _elements(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
