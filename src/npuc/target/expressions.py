"""The expressions of a target's limits, `kw*kh*ceil(ic/cp) <= bank_depth`: parsed by a whitelist, never run as code.

Numbers, names, `+ - * / // % **`, comparisons (also chained), `and or not`, and ceil, floor, min, max, abs, log2:
nothing else parses. Numbers and truths are told apart when the file is read, so `kw + (ic < 3)` is an error there and
not later. Arithmetic is exact: `/` gives a fraction, and `0.1` is one tenth. Size, depth and magnitude are bounded,
because a target file may come from anyone.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeVar

from npuc.errors import LimitExpressionError

Number = int | Fraction
Kind = Literal["number", "truth"]
_T = TypeVar("_T")

MAX_LENGTH = 500
MAX_DEPTH = 50
MAX_NODES = 200
_MAX_LITERAL_BITS = 64
_MAX_BITS = 4096
_MAX_EXPONENT = 64


def _ceil(value: Number) -> int:
    return math.ceil(value)


def _floor(value: Number) -> int:
    return math.floor(value)


def _log2(value: Number) -> Number:
    """The logarithm: exact for powers of two, else the nearest double."""
    exact = Fraction(value)
    if exact <= 0:
        raise ArithmeticError(f"log2 of {show_number(value)} does not exist")
    upper, lower = exact.numerator.bit_length() - 1, exact.denominator.bit_length() - 1
    if exact == Fraction(1 << upper, 1 << lower):
        return upper - lower
    return Fraction(math.log2(exact.numerator) - math.log2(exact.denominator))


def _power(base: Number, exponent: Number) -> Number:
    if exponent != int(exponent) or not -_MAX_EXPONENT <= exponent <= _MAX_EXPONENT:
        raise ArithmeticError(
            f"{show_number(exponent)} is no exponent: whole numbers up to {_MAX_EXPONENT} are"
        )
    if base == 0 and exponent < 0:
        raise ZeroDivisionError
    _bounded(base)
    return Fraction(base) ** int(exponent)


FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    "ceil": (_ceil, 1, 1),
    "floor": (_floor, 1, 1),
    "min": (min, 2, 16),
    "max": (max, 2, 16),
    "abs": (abs, 1, 1),
    "log2": (_log2, 1, 1),
}
"""Name to function, fewest and most arguments."""

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: Fraction(a) / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: _power,
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Number, Number], bool]]] = {
    ast.Lt: ("<", lambda a, b: a < b),
    ast.LtE: ("<=", lambda a, b: a <= b),
    ast.Gt: (">", lambda a, b: a > b),
    ast.GtE: (">=", lambda a, b: a >= b),
    ast.Eq: ("==", lambda a, b: a == b),
    ast.NotEq: ("!=", lambda a, b: a != b),
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression. Two that differ in spaces or brackets only are equal."""

    canonical: str
    """The text with the usual spaces and no needless brackets."""
    kind: Kind
    """What it evaluates to."""
    names: frozenset[str] = field(compare=False)
    """The names that it needs values for."""
    text: str = field(compare=False)
    """The text as it was written."""
    tree: ast.expr = field(compare=False, repr=False)

    def number(self, values: Mapping[str, Any]) -> Number:
        """The value of an expression of kind `number`; an int wherever it is whole.

        >>> parse_expression("ceil(ic / 16)").number({"ic": 17})
        2
        """
        if self.kind != "number":
            raise LimitExpressionError(f"'{self.text}' is true or false, and a number is asked for")
        return _guarded(self, lambda: _number(self.tree, values))

    def holds(self, values: Mapping[str, Any]) -> bool:
        """The value of an expression of kind `truth`.

        >>> parse_expression("1 <= kw <= 16").holds({"kw": 17})
        False
        """
        if self.kind != "truth":
            raise LimitExpressionError(f"'{self.text}' is a number, and a condition is asked for")
        return _guarded(self, lambda: _truth(self.tree, values))

    def explain(self, values: Mapping[str, Any]) -> str:
        """Why the condition fails, with the values of both sides; empty if it holds.

        >>> parse_expression("kw*ceil(ic/8) <= depth").explain({"kw": 5, "ic": 17, "depth": 12})
        'kw*ceil(ic/8) may be depth = 12 at most, and is 15'
        """
        if self.holds(values):
            return ""
        return _guarded(self, lambda: _explain(self.tree, self.text, values))

    def __str__(self) -> str:
        return self.text


def parse_expression(text: str) -> Expression:
    """Parse an expression, or say in a LimitExpressionError what is not allowed in it.

    >>> parse_expression("kw*kh <= 64").names == {"kw", "kh"}
    True
    """
    if not isinstance(text, str):
        raise LimitExpressionError(
            f"{text!r} is not an expression", fix="Write it as text, like 'kw*kh <= 64'"
        )
    source = text.strip()
    if len(source) > MAX_LENGTH:
        raise LimitExpressionError(
            f"'{source[:40]}...' has {len(source)} characters, and {MAX_LENGTH} are allowed"
        )
    if not source.isascii() or not source.isprintable():
        raise LimitExpressionError(f"'{ascii(source)[1:-1]}' has characters that are not plain ASCII")
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
        raise LimitExpressionError(f"'{source}' is not an expression: {reason}") from error
    checker = _Checker(source)
    kind = checker.check(tree, 1)
    return Expression(ast.unparse(tree), kind, frozenset(checker.names), source, tree)


def show_number(value: Number) -> str:
    """A number as a user reads it.

    >>> show_number(Fraction(1, 3)), show_number(Fraction(4))
    ('0.333333', '4')
    """
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator) if exact.numerator.bit_length() < 200 else "a very large number"
    return f"{float(exact):.6g}"


class _Checker:
    """Walks a tree once: allows only what the whitelist has, and tells numbers from truths."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.names: set[str] = set()
        self.nodes = 0

    def check(self, node: ast.expr, depth: int) -> Kind:
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise self.refuse(node, f"is nested more than {MAX_DEPTH} deep")
        if self.nodes > MAX_NODES:
            raise self.refuse(node, f"makes the expression longer than {MAX_NODES} terms")
        match node:
            case ast.Constant():
                _literal(node, self)
                return "number"
            case ast.Name():
                if node.id in FUNCTIONS:
                    raise self.refuse(node, "is a function and needs arguments")
                self.names.add(node.id)
                return "number"
            case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                self.want("number", node.operand, depth)
                return "number"
            case ast.UnaryOp(op=ast.Not()):
                self.want("truth", node.operand, depth)
                return "truth"
            case ast.BinOp() if type(node.op) in _BINARY:
                self.want("number", node.left, depth)
                self.want("number", node.right, depth)
                return "number"
            case ast.BoolOp():
                for operand in node.values:
                    self.want("truth", operand, depth)
                return "truth"
            case ast.Compare() if all(type(operator) in _COMPARE for operator in node.ops):
                for operand in (node.left, *node.comparators):
                    self.want("number", operand, depth)
                return "truth"
            case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
                return self.call(node, name, depth)
            case ast.Call():
                raise self.refuse(node, f"calls something that is none of {', '.join(FUNCTIONS)}")
        raise self.refuse(
            node, "is not allowed: only numbers, names, arithmetic, comparisons, and, or, not are"
        )

    def call(self, node: ast.Call, name: str, depth: int) -> Kind:
        _, fewest, most = FUNCTIONS[name]
        if node.keywords or not fewest <= len(node.args) <= most:
            count = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise self.refuse(node, f"is not right: {name} takes {count} argument{'s' * (most > 1)}")
        for argument in node.args:
            self.want("number", argument, depth)
        return "number"

    def want(self, kind: Kind, node: ast.expr, depth: int) -> None:
        if self.check(node, depth + 1) != kind:
            other = "true or false where a number" if kind == "number" else "a number where a condition"
            raise self.refuse(node, f"is {other} is needed")

    def refuse(self, node: ast.expr, why: str) -> LimitExpressionError:
        part = ast.get_source_segment(self.source, node) or self.source
        shown = part if len(part) <= 60 else f"{part[:57]}..."
        where = "" if part == self.source else f" in '{self.source}'"
        return LimitExpressionError(f"'{shown}'{where} {why}")


def _literal(node: ast.Constant, checker: _Checker | None = None) -> Number:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        assert checker is not None
        raise checker.refuse(node, "is not a number")
    if isinstance(value, float) and not math.isfinite(value):
        assert checker is not None
        raise checker.refuse(node, "is too large")
    exact = value if isinstance(value, int) else Fraction(repr(value))
    if checker is not None and _bits(exact) > _MAX_LITERAL_BITS:
        raise checker.refuse(node, "is too large or too precise a number")
    return exact


def _bits(value: Number) -> int:
    exact = Fraction(value)
    return max(exact.numerator.bit_length(), exact.denominator.bit_length())


def _bounded(value: Number) -> Number:
    if _bits(value) > _MAX_BITS:
        raise ArithmeticError("the numbers become too large")
    # Whole fractions become ints, so that the fast path is the usual one.
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def _guarded(expression: Expression, evaluate: Callable[[], _T]) -> _T:
    try:
        return evaluate()
    except ZeroDivisionError as error:
        raise LimitExpressionError(f"'{expression.text}' divides by zero") from error
    except ArithmeticError as error:
        raise LimitExpressionError(f"'{expression.text}' cannot be evaluated: {error}") from error


def _value(name: str, values: Mapping[str, Any]) -> Number:
    try:
        value = values[name]
    except KeyError:
        raise LimitExpressionError(f"the limit needs a value for '{name}', and none is given") from None
    if isinstance(value, int | Fraction):
        return _bounded(int(value) if isinstance(value, bool) else value)
    if isinstance(value, float) and math.isfinite(value):
        return _bounded(Fraction(value))
    # NumPy's integers are no ints, but convert without loss.
    if hasattr(value, "__index__"):
        return _bounded(value.__index__())
    raise LimitExpressionError(f"the value of '{name}' is {value!r}, which is not a finite number")


def _number(node: ast.expr, values: Mapping[str, Any]) -> Number:
    match node:
        case ast.Constant():
            return _bounded(_literal(node))
        case ast.Name():
            return _value(node.id, values)
        case ast.UnaryOp(op=operator, operand=operand):
            value = _number(operand, values)
            return -value if isinstance(operator, ast.USub) else value
        case ast.BinOp(left=left, op=operator, right=right):
            return _bounded(_BINARY[type(operator)](_number(left, values), _number(right, values)))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _bounded(FUNCTIONS[name][0](*(_number(argument, values) for argument in arguments)))
    raise AssertionError(ast.dump(node))


def _truth(node: ast.expr, values: Mapping[str, Any]) -> bool:
    match node:
        case ast.UnaryOp(operand=operand):
            return not _truth(operand, values)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_truth(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_truth(part, values) for part in parts)
        case ast.Compare():
            return _first_failing_pair(node, values) is None
    raise AssertionError(ast.dump(node))


def _first_failing_pair(
    node: ast.Compare, values: Mapping[str, Any]
) -> tuple[ast.expr, ast.cmpop, ast.expr] | None:
    left = node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        if not _COMPARE[type(operator)][1](_number(left, values), _number(right, values)):
            return left, operator, right
        left = right
    return None


def _explain(node: ast.expr, source: str, values: Mapping[str, Any]) -> str:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return _explain(next(part for part in parts if not _truth(part, values)), source, values)
        case ast.BoolOp(values=parts):
            return "either " + ", or ".join(_explain(part, source, values) for part in parts)
        case ast.Compare():
            pair = _first_failing_pair(node, values)
            assert pair is not None
            return _explain_pair(*pair, source, values)
    return f"{_segment(node, source)} is not true"


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_WANTED = {
    "<": "has to be less than {}",
    "<=": "may be {} at most",
    ">": "has to be more than {}",
    ">=": "has to be {} at least",
    "==": "has to be {}",
    "!=": "may not be {}",
}


def _explain_pair(
    left: ast.expr, operator: ast.cmpop, right: ast.expr, source: str, values: Mapping[str, Any]
) -> str:
    """What the left side has to be, and what it is; a number on the left is what the right side is compared with."""
    sign = _COMPARE[type(operator)][0]
    if isinstance(left, ast.Constant):
        left, sign, right = right, _MIRRORED[sign], left
    a, b = _number(left, values), _number(right, values)
    condition = f"{_segment(left, source)} {_WANTED[sign].format(_side(right, source, b))}"
    return condition if sign == "!=" else f"{condition}, and is {show_number(a)}"


def _side(node: ast.expr, source: str, value: Number) -> str:
    text = _segment(node, source)
    shown = show_number(value)
    return shown if text == shown else f"{text} = {shown}"


def _segment(node: ast.expr, source: str) -> str:
    return ast.get_source_segment(source, node) or ast.unparse(node)
