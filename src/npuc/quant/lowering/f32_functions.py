"""Functions in f32 by instructions: the op's own formula, evaluated on terms instead of numbers.

A formula (`npuc.ir.top.functions`) is written for an array namespace. Here the array is a `Term` and the namespace `Terms`: what
the formula does to x becomes a tree of sums, products and comparisons, each of which is one float instruction. A formula that
needs more (an exponential, a quotient) has no tree; where it is smooth it is a table of polynomials (`f32_table`).

    x * clip(x / 6 + 0.5, 0, 1)      becomes      mul(x, add(mul(x, 1/6), 0.5, relu up to 1))
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from npuc.arithmetic.piecewise import NotSmooth, piecewise_table
from npuc.arrays import Array
from npuc.ir import Value, layer_name, npu, value_name
from npuc.ir.top.functions import FUNCTIONS
from npuc.quant.lower import LoweringContext


class NoTree(Exception):
    """A formula that is not made of sums, products and comparisons."""


@dataclass(frozen=True)
class Term:
    """x itself (`kind` None), or one instruction of two operands, each a term or a number."""

    kind: type[npu.FloatOp] | None = None
    a: Any = None
    b: Any = None
    properties: dict[str, Any] = field(default_factory=dict)

    def __mul__(self, other: Any) -> Term:
        return Term(npu.FloatMul, self, other)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Term:
        return Term(npu.FloatAdd, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Term:
        return Term(npu.FloatSub, self, other)

    def __neg__(self) -> Term:
        return self * -1.0

    def __truediv__(self, other: Any) -> Term:
        if isinstance(other, Term):
            raise NoTree
        return Term(npu.FloatMul, self, 1.0 / other)

    def __ge__(self, other: float) -> Condition:
        return Condition(self, other)


@dataclass(frozen=True)
class Condition:
    """Whether a term is not below a number."""

    term: Term
    least: float


class Terms:
    """The namespace of a formula."""

    def __getattr__(self, name: str) -> Any:
        raise NoTree(name)

    @staticmethod
    def clip(term: Term, low: float | None, high: float | None) -> Term:
        """The fused relu of a sum, or comparisons with both ends."""
        low, high = -np.inf if low is None else low, np.inf if high is None else high
        if low == 0 and high > 0:
            relu = {"relu": True, "relu_limit": float(high) if np.isfinite(high) else 0.0}
            if term.kind is npu.FloatAdd and not term.properties:
                return replace(term, properties=relu)
            return Term(npu.FloatAdd, term, 0.0, relu)
        raised = Term(npu.FloatMax, term, low) if np.isfinite(low) else term
        return Term(npu.FloatMin, raised, high) if np.isfinite(high) else raised

    @staticmethod
    def abs(term: Term) -> Term:
        """The larger of a number and its negative."""
        return Term(npu.FloatMax, term, -term)

    @staticmethod
    def where(condition: Any, yes: Any, no: Any) -> Term:
        """x where it is positive and a multiple of x elsewhere: the larger of both, or the smaller if it is steeper."""
        if not isinstance(condition, Condition) or condition.least != 0 or yes is not condition.term:
            raise NoTree
        scaled = isinstance(no, Term) and no.kind is npu.FloatMul and no.a is yes
        if not scaled or isinstance(no.b, Term):
            raise NoTree
        return Term(npu.FloatMax if no.b <= 1 else npu.FloatMin, yes, no)


def f32_function(op: Any, context: LoweringContext) -> Value | None:
    """The result of a function of f32 by instructions; None if its formula needs more than they compute."""
    x = Term()
    try:
        root = FUNCTIONS[type(op)].formula(op, x, Terms())
    except (NoTree, TypeError):
        return None
    return None if not isinstance(root, Term) or root.kind is None else _emitted(root, op, context, root)


def f32_table(op: Any) -> Array | None:
    """The table of a function of f32 by piecewise polynomials; None if none of a reasonable size follows it."""
    kind: type = type(op)
    return _table_of(kind, tuple(op.native_properties().items()))


@lru_cache(maxsize=64)
def _table_of(kind: type, properties: tuple[tuple[str, Any], ...]) -> Array | None:
    record, op = FUNCTIONS[kind], SimpleNamespace(**dict(properties))
    try:
        return piecewise_table(lambda x: record.in_f64(op, x))
    except NotSmooth:
        return None


def _emitted(term: Any, op: Any, context: LoweringContext, root: Term) -> Value:
    to = context.type_of(op.results[0])
    if not isinstance(term, Term):
        number = np.array([term], np.float32)
        return context.shared_weight(f"f32/{float(number[0]):g}", number)
    if term.kind is None:
        return context.short(op.operands[0], to)
    operands = [_emitted(operand, op, context, root) for operand in (term.a, term.b)]
    name = value_name(op.results[0]) if term is root else context.derived(op.results[0], term.kind.name[10:])
    step = context.emit(term.kind, *operands, to=to, name=name, layer=layer_name(op), **term.properties)
    computed: Value = step.y
    return computed
