"""Matching: does a value of the graph compute a formula?

The arithmetic that leads to the value is multiplied out, up to values that others use too or that no arithmetic made,
and the result is compared with the formula, atom by atom, from the last op backwards. It is a match only if
nothing outside uses what is inside, so that one op can take its place. A root costs a bounded amount of work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from xdsl.ir import Operation, OpResult, SSAValue

from npuc.ir import top
from npuc.ir.definition import TOP_OPS, TopOp
from npuc.ir.dtypes import dtype_of, shape_of
from npuc.ir.graph import Graph
from npuc.ir.passes import PatternRewriter
from npuc.transform.formula import ONE, FormulaGroup, FunctionCall, Number, Parameter, Sum, Variable, is_close
from npuc.transform.patterns import GraphPattern, has_relu, insert, is_float, producer, uniform
from npuc.transform.patterns import replace as replace_op

Subject = SSAValue | TopOp
"""A value, or an op as it would be without its fused relu."""

_MOST_OPS = 24
_MOST_TERMS = 8
_PRECISION = {"f16": 2e-3, "bf16": 1e-2}


@dataclass(frozen=True)
class OpReading:
    """An op read as a function of its operands."""

    function: str
    arguments: tuple[Subject, ...]
    options: Mapping[str, Any]
    ops: tuple[Operation, ...]


@dataclass(frozen=True)
class Match:
    """What the variables and parameters of a formula stand for."""

    graph: Graph
    root: TopOp
    atoms: Mapping[Any, SSAValue]
    numbers: Mapping[Parameter, Any]
    inside: frozenset[Operation]

    @overload
    def __getitem__(self, key: Variable | FunctionCall | FormulaGroup) -> SSAValue: ...

    @overload
    def __getitem__(self, key: Parameter) -> Any: ...

    def __getitem__(self, key: Any) -> Any:
        return self.numbers[key] if isinstance(key, Parameter) else self.atoms[key]

    def is_closed(self) -> bool:
        """True if nothing outside uses a value inside, except the root's."""
        return all(
            use.operation in self.inside
            for op in self.inside
            if op is not self.root
            for result in op.results
            for use in result.uses
        )


class Matcher:
    """Compares formulas with the value of one op."""

    def __init__(self, graph: Graph, root: TopOp) -> None:
        self.graph = graph
        self.root = root
        self.precision = _PRECISION.get(dtype_of(root.results[0].type).name, 0.0)
        self.tolerance = self.precision
        self._expanded: dict[tuple[Any, bool], tuple[Sum, frozenset[Operation]]] = {}

    def match(self, formula: Sum, tolerance: float = 1e-5) -> Match | None:
        """The first way to read the root as the formula, with constants that are right within the tolerance."""
        if (
            formula.bare is None
            and self.expand(self.root.results[0], formula.is_affine)[0].profile != formula.profile
        ):
            return None
        self.tolerance = max(tolerance, self.precision)
        start = Match(self.graph, self.root, {}, {}, frozenset({self.root}))
        for match in self._formula(formula, self.root.results[0], start):
            if match.is_closed():
                return match
        return None

    # The formula against the graph: generators, because there may be several ways to assign atoms.

    def _formula(self, formula: Sum, subject: Subject, state: Match) -> Iterator[Match]:
        if formula.bare is not None:
            if isinstance(subject, SSAValue):
                yield from self._atom(formula.bare, subject, state)
            return
        actual, opened = self.expand(subject, formula.is_affine)
        if actual.profile == formula.profile:
            yield from self._assign(formula, actual, 0, {}, replace(state, inside=state.inside | opened))

    def _assign(
        self, formula: Sum, actual: Sum, index: int, chosen: dict[Any, Any], state: Match
    ) -> Iterator[Match]:
        if index == len(formula.atoms):
            yield from self._coefficients(formula, actual, chosen, state)
            return
        atom = formula.atoms[index]
        use = formula.use_of(atom)
        for value in actual.atoms:
            if value not in chosen.values() and actual.use_of(value) == use:
                assert isinstance(value, SSAValue)
                for match in self._atom(atom, value, state):
                    yield from self._assign(formula, actual, index + 1, {**chosen, atom: value}, match)

    def _coefficients(
        self, formula: Sum, actual: Sum, chosen: dict[Any, Any], state: Match
    ) -> Iterator[Match]:
        for monomial, expected in formula.terms.items():
            number = actual.terms.get(frozenset((chosen[atom], power) for atom, power in monomial))
            match = None if number is None else self._number(expected, number, state)
            if match is None:
                return
            state = match
        yield state

    def _number(self, expected: Any, number: Any, state: Match) -> Match | None:
        if isinstance(expected, Parameter):
            if expected not in state.numbers:
                return replace(state, numbers={**state.numbers, expected: number})
            expected = state.numbers[expected]
        if isinstance(expected, float | int) and isinstance(number, float | int):
            return state if is_close(float(number), float(expected), self.tolerance) else None
        return state if expected == number else None

    def _atom(self, atom: Any, value: SSAValue, state: Match) -> Iterator[Match]:
        if atom in state.atoms:
            if state.atoms[atom] is value:
                yield state
            return
        bound = replace(state, atoms={**state.atoms, atom: value})
        if isinstance(atom, Variable):
            yield bound
        elif isinstance(atom, FormulaGroup):
            yield from self._formula(atom.formula, value, bound)
        elif isinstance(atom, FunctionCall):
            yield from self._call(atom, value, bound)

    def _call(self, call: FunctionCall, value: SSAValue, state: Match) -> Iterator[Match]:
        view = view_of(self.graph, value)
        if view is None or view.function != call.function or len(view.arguments) != len(call.arguments):
            return
        for name, expected in call.options.items():
            checked = self._number(expected, view.options.get(name), state)
            if checked is None:
                return
            state = checked
        state = replace(state, inside=state.inside | frozenset(view.ops))
        orders = [view.arguments]
        if view.function in _COMMUTATIVE:
            orders.append(tuple(reversed(view.arguments)))
        for arguments in orders:
            yield from self._arguments(call.arguments, arguments, state)

    def _arguments(
        self, formulas: Sequence[Sum], subjects: Sequence[Subject], state: Match
    ) -> Iterator[Match]:
        if not formulas:
            yield state
            return
        for match in self._formula(formulas[0], subjects[0], state):
            yield from self._arguments(formulas[1:], subjects[1:], match)

    # The graph as a formula.

    def expand(self, subject: Subject, affine: bool = False) -> tuple[Sum, frozenset[Operation]]:
        """The arithmetic that leads to a value, multiplied out, and the ops it consists of."""
        key = (subject, affine)
        if key not in self._expanded:
            opened: list[Operation] = []
            total = self._expand(subject, affine, True, opened)
            self._expanded[key] = total, frozenset(opened)
        return self._expanded[key]

    def _expand(self, subject: Subject, affine: bool, first: bool, opened: list[Operation]) -> Sum:
        if isinstance(subject, SSAValue):
            number = uniform(self.graph, subject)
            if number is not None:
                return Sum({ONE: number})
        op = subject.op if isinstance(subject, OpResult) else subject
        mark = len(opened)
        total = None
        # A value with several users is a variable of its own: so the x of `x * sigmoid(x)` is met as one.
        alone = isinstance(op, TopOp) and (first or op.results[0].has_one_use())
        fused = isinstance(op, TopOp) and has_relu(op) and isinstance(subject, SSAValue)
        if isinstance(op, TopOp) and alone and not fused and len(opened) < _MOST_OPS:
            opened.append(op)
            total = self._arithmetic(op, affine, opened)
        if total is None or len(total.terms) > _MOST_TERMS:
            del opened[mark:]
            assert isinstance(subject, SSAValue) or first
            return Sum({frozenset({(subject, 1.0)}): 1.0})
        return total

    def _arithmetic(self, op: TopOp, affine: bool, opened: list[Operation]) -> Sum | None:
        """The formula of an op; None if it is not arithmetic, or joins two unknown values where one is wanted."""

        def operand(value: SSAValue) -> Sum:
            return self._expand(value, affine, False, opened)

        def power(value: SSAValue, exponent: float) -> Sum:
            mark = len(opened)
            raised = operand(value).power(exponent)
            if raised is None:
                del opened[mark:]
                raised = Sum({frozenset({(value, float(exponent))}): 1.0})
            return raised

        match op:
            case top.Add() | top.Sub() | top.Mul() | top.Div():
                if affine and not any(uniform(self.graph, value) is not None for value in op.operands):
                    return None
                if isinstance(op, top.Div):
                    return operand(op.a) * power(op.b, -1.0)
                a, b = operand(op.a), operand(op.b)
                if isinstance(op, top.Mul):
                    return a * b
                return a + b if isinstance(op, top.Add) else a - b
            case top.Scale():
                scale, bias = uniform(self.graph, op.scale), uniform(self.graph, op.bias)
                return None if scale is None or bias is None else operand(op.x) * scale + bias
            case top.Neg():
                return -operand(op.x)
            case top.Expand():
                return operand(op.x)  # arithmetic broadcasts by itself; the shape of the root is compared
            case top.Pow():
                exponent = uniform(self.graph, op.b)
                fits = exponent is not None and shape_of(op.a) == shape_of(op.y)
                return power(op.a, exponent) if exponent is not None and fits else None
            case top.Sqrt():
                return power(op.x, 0.5)
            case top.Rsqrt():
                return power(op.x, -0.5)
            case top.Reciprocal():
                return power(op.x, -1.0)
        return None


_COMMUTATIVE = ("max", "min")


def view_of(graph: Graph, value: SSAValue) -> OpReading | None:
    """A value as a function: the name of its op and its properties, with these spellings made one.

    - `clip{min, max}`: relu (also fused into arithmetic), clip, max and min with a number
    - `mean{axes}`, `sum{axes}`, ...: a reduction that keeps its axes; a global average pool
    - `if_positive(x, a, b)`: where, with any comparison of x with zero; x = 0 may go either way
    - `positive(x)`: such a comparison cast to numbers
    """
    op = producer(value, TopOp)  # type: ignore[type-abstract]
    if op is None or isinstance(op, top.WeightOp):
        return None
    match op:
        case top.Relu():
            return OpReading(
                "clip", (op.x,), {"min": 0.0, "max": op.limit if op.limit > 0 else math.inf}, (op,)
            )
        case top.Add() | top.Sub() | top.Mul() if op.relu:
            return OpReading(
                "clip", (op,), {"min": 0.0, "max": op.relu_limit if op.relu_limit > 0 else math.inf}, (op,)
            )
        case top.Max() | top.Min() | top.Clip():
            return _bounds(graph, op)
        case top.Reduce():
            axes = tuple(sorted(axis % len(shape_of(op.x)) for axis in op.axes))
            return OpReading(op.kind, (op.x,), {"axes": axes}, (op,)) if op.keepdims else None
        case top.AvgPool():
            spatial = shape_of(op.x)[2:]
            if op.kernel != spatial or any(op.pads):
                return None
            return OpReading("mean", (op.x,), {"axes": tuple(range(2, 2 + len(spatial)))}, (op,))
        case top.Where():
            return _choice(graph, op)
        case top.Cast():
            sign = _sign(graph, op.x)
            if sign is None or not is_float(op.y) or not sign[1]:
                return OpReading("cast", (op.x,), {"to": op.to}, (op,))
            return OpReading("positive", (sign[0],), {}, (op, sign[2]))
    return OpReading(op.name.removeprefix("top."), tuple(op.operands), op.native_properties(), (op,))


def _bounds(graph: Graph, op: TopOp) -> OpReading:
    """Nested max, min and clip with numbers as one clip."""
    low, high, ops = -math.inf, math.inf, list[Operation]()
    value: SSAValue = op.results[0]
    while (inner := producer(value, TopOp)) is not None and (not ops or value.has_one_use()):  # type: ignore[type-abstract]
        if isinstance(inner, top.Clip):
            below, above, following = inner.min, inner.max, inner.x
        elif isinstance(inner, top.Max | top.Min):
            numbers = [uniform(graph, operand) for operand in inner.operands]
            known = [index for index, number in enumerate(numbers) if number is not None]
            if len(known) != 1 or shape_of(inner.operands[1 - known[0]]) != shape_of(inner.y):
                break
            bound = numbers[known[0]]
            assert bound is not None
            below, above = (bound, math.inf) if isinstance(inner, top.Max) else (-math.inf, bound)
            following = inner.operands[1 - known[0]]
        else:
            break
        # The outer bounds have the last word: clip to the inner ones, then to them.
        low, high = max(low, min(high, below)), min(high, max(low, above))
        ops.append(inner)
        value = following
    if not ops:
        return OpReading(op.name.removeprefix("top."), tuple(op.operands), {}, (op,))
    return OpReading("clip", (value,), {"min": low, "max": high}, tuple(ops))


def _sign(graph: Graph, value: SSAValue) -> tuple[SSAValue, bool, Operation] | None:
    """(x, True, op) for x > 0 or x >= 0, (x, False, op) for x < 0 or x <= 0."""
    compare = producer(value, top.Compare)
    if compare is None or compare.mode == "equal" or not is_float(compare.a):
        return None
    if uniform(graph, compare.b) == 0 and shape_of(compare.a) == shape_of(compare.y):
        return compare.a, compare.mode.startswith("greater"), compare
    if uniform(graph, compare.a) == 0 and shape_of(compare.b) == shape_of(compare.y):
        return compare.b, compare.mode.startswith("less"), compare
    return None


def _choice(graph: Graph, op: top.Where) -> OpReading | None:
    sign = _sign(graph, op.condition)
    if sign is None:
        return None
    x, positive, compare = sign
    branches = (op.a, op.b) if positive else (op.b, op.a)
    return OpReading("if_positive", (x, *branches), {}, (op, compare))


# From a match to a rewrite.

Build = Callable[[Match], TopOp | Sequence[TopOp] | None]


@dataclass(frozen=True)
class FormulaRule:
    """A formula, and the op (or ops, the last of them) that computes it; None where the match turns out not to fit."""

    formula: Sum
    build: Build
    tolerance: float = 1e-5

    @property
    def roots(self) -> tuple[type[TopOp], ...]:
        """The kinds of op that the formula can end in."""
        kinds: tuple[type[TopOp], ...] = () if self.formula.bare is not None else _ARITHMETIC
        if self.formula.is_affine:
            for atom in self.formula.atoms:
                if isinstance(atom, FunctionCall):
                    kinds += _VIEWED.get(atom.function) or (TOP_OPS[f"top.{atom.function}"],)
        return kinds


_ARITHMETIC = (
    top.Add,
    top.Sub,
    top.Mul,
    top.Div,
    top.Scale,
    top.Neg,
    top.Pow,
    top.Sqrt,
    top.Rsqrt,
    top.Reciprocal,
)
_VIEWED: dict[str, tuple[type[TopOp], ...]] = {
    "clip": (top.Relu, top.Clip, top.Max, top.Min, top.Add, top.Sub, top.Mul),
    "if_positive": (top.Where,),
}


@dataclass(eq=False)
class FormulaPattern(GraphPattern):
    """Puts the op of the first rule whose formula an op computes in its place."""

    rules: Sequence[FormulaRule]

    def __post_init__(self) -> None:
        self._by_root: dict[type, list[FormulaRule]] = {}
        for rule in self.rules:
            for kind in dict.fromkeys(rule.roots):
                self._by_root.setdefault(kind, []).append(rule)

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        """Try each rule with the op as the last one of the formula."""
        rules = self._by_root.get(type(op))
        if rules is None or not isinstance(op, TopOp) or not is_float(op.results[0]):
            return
        matcher = Matcher(self.graph, op)
        for rule in rules:
            match = matcher.match(rule.formula, rule.tolerance)
            new = rule.build(match) if match is not None else None
            if new is None:
                continue
            ops = [new] if isinstance(new, TopOp) else list(new)
            if ops[-1].results[0].type == op.results[0].type:
                for before in ops[:-1]:
                    insert(rewriter, before)
                replace_op(rewriter, op, ops[-1])
                return
            for unused in reversed(ops):
                unused.erase()  # so that its operands do not count it among their users


__all__ = ["FormulaPattern", "FormulaRule", "Match", "Matcher", "Number", "OpReading", "view_of"]
