"""Softmax in its variants becomes one op.

%e = top.exp(top.sub(%x, top.reduce(%x) {max, axes = [-1]}))
%y = top.div(%e, top.reduce(%e) {sum, axes = [-1]})           →   %y = top.softmax(%x) {axis = -1}

permute(softmax(permute(x)))    →   softmax(x) along another axis
reshape(softmax(reshape(x)))    →   softmax(x), where the axis is one of x too (as opsets below 13 flatten it)
log(softmax(x))                 →   log_softmax(x)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.ir import SSAValue

from npuc.ir import top
from npuc.ir.definition import TopOp, normal_axis
from npuc.ir.dtypes import shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.transform.formula import FunctionSymbol, Parameter, Variable, as_sum, shared
from npuc.transform.matching import Build, FormulaPattern, FormulaRule, Match
from npuc.transform.patterns import GraphPattern, replace, sole_producer

x = Variable("x")
axis, axes = Parameter("axis"), Parameter("axes")
exp, log, softmax = FunctionSymbol("exp"), FunctionSymbol("log"), FunctionSymbol("softmax")
total, maximum, log_sum_exp = FunctionSymbol("sum"), FunctionSymbol("max"), FunctionSymbol("log_sum_exp")

d = shared(x - maximum(x, axes=axes))
e, e_below_one = exp(x), exp(x - maximum(x, axes=axes))


def _along(kind: type[TopOp]) -> Build:
    """The op along the one axis found."""
    return lambda match: kind.make(match[x], axis=match[axes][0]) if len(match[axes]) == 1 else None


def _log_softmax(match: Match) -> TopOp:
    return top.LogSoftmax.make(match[x], axis=match[axis])


RULES = (
    # With the maximum subtracted first: without it, x would be the difference.
    FormulaRule(as_sum(e_below_one / total(e_below_one, axes=axes)), _along(top.Softmax)),
    FormulaRule(as_sum(e / total(e, axes=axes)), _along(top.Softmax)),
    FormulaRule(as_sum(log(softmax(x, axis=axis))), _log_softmax),
    FormulaRule(as_sum(x - log_sum_exp(x, axes=axes)), _along(top.LogSoftmax)),
    FormulaRule(as_sum(d - log(total(exp(d), axes=axes))), _along(top.LogSoftmax)),
    FormulaRule(as_sum(x - log(total(exp(x), axes=axes))), _along(top.LogSoftmax)),
)


def _sole_softmax(value: SSAValue) -> top.Softmax | top.LogSoftmax | None:
    return sole_producer(value, top.Softmax) or sole_producer(value, top.LogSoftmax)


class BetweenPermutes(GraphPattern):
    """permute(softmax(permute(x))) → softmax(x)"""

    @rewrites
    def match_and_rewrite(self, op: top.Permute, rewriter: PatternRewriter) -> None:
        """The second permute undoes the first."""
        inner = _sole_softmax(op.x)
        before = sole_producer(inner.x, top.Permute) if inner is not None else None
        if inner is None or before is None:
            return
        order = before.order
        if tuple(order[i] for i in op.order) == tuple(range(len(order))):
            replace(rewriter, op, type(inner).make(before.x, axis=order[normal_axis(inner.axis, len(order))]))


class BetweenReshapes(GraphPattern):
    """reshape(softmax(reshape(x))) → softmax(x)"""

    @rewrites
    def match_and_rewrite(self, op: top.Reshape, rewriter: PatternRewriter) -> None:
        """The second reshape undoes the first, and the elements along the axis lie along an axis of x."""
        inner = _sole_softmax(op.x)
        before = sole_producer(inner.x, top.Reshape) if inner is not None else None
        if inner is None or before is None or before.x.type != op.y.type:
            return
        folded, shape = shape_of(inner.x), shape_of(before.x)
        place = normal_axis(inner.axis, len(folded))
        for candidate in range(len(shape)):
            same_size = shape[candidate] == folded[place]
            if same_size and prod(shape[candidate + 1 :]) == prod(folded[place + 1 :]):
                replace(rewriter, op, type(inner).make(before.x, axis=candidate))
                return


@register_pass
@dataclass(frozen=True)
class RecognizeSoftmax(Pass):
    """Softmax and log-softmax, spelled out or on moved axes, become one op."""

    name: ClassVar[str] = "recognize-softmax"

    def run(self, graph: Graph) -> None:
        """The function first, then the movement around it."""
        apply_patterns(graph, [FormulaPattern(graph, RULES), BetweenPermutes(graph), BetweenReshapes(graph)])
