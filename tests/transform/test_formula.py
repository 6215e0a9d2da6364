"""Formulas are compared multiplied out; a match needs its inside to itself."""

from __future__ import annotations

import pytest

from npuc.ir import Value
from npuc.ir.definition import TopOp
from npuc.transform.formula import FunctionSymbol, Parameter, Sum, Variable, as_sum, sqrt
from npuc.transform.matching import Match, Matcher
from support.passes import Arithmetic, spelled

x, y = Variable("x"), Variable("y")
a, b = Parameter("a"), Parameter("b")
tanh = FunctionSymbol("tanh")


def match(formula: Sum, spelling: object) -> Match | None:
    graph = spelled(spelling, more={"y": (2, 3, 4)})  # type: ignore[arg-type]
    root = graph.outputs[0].value.owner
    assert isinstance(root, TopOp)
    return Matcher(graph, root).match(formula)


def test_products_and_sums_are_multiplied_out() -> None:
    assert ((x + y) * 2 - y * 2).terms.keys() == as_sum(x).terms.keys() | as_sum(y).terms.keys()
    assert (2 * x * y / x).terms == (y * 2).terms
    assert (x * x).terms == (x**2).terms
    assert (1 / sqrt(x)).terms == (x**-0.5).terms


def test_the_root_of_a_square_is_not_its_base() -> None:
    assert (x**2).power(0.5) is None
    assert sqrt(x**2).terms != as_sum(x).terms


def test_a_parameter_stands_for_a_whole_coefficient() -> None:
    with pytest.raises(TypeError):
        (2 * x) * a


def test_parameters_are_found() -> None:
    def spelling(m: Arithmetic, x: Value, y: Value) -> Value:
        return m.add(m.mul(m.tanh(x), 3.0), 0.5)

    found = match(as_sum(a * tanh(x) + b), spelling)
    assert found is not None
    assert (found[a], found[b]) == (3.0, 0.5)


def test_a_variable_is_the_same_value_everywhere() -> None:
    same = match(as_sum(x * tanh(x)), lambda m, x, y: m.mul(m.tanh(x), x))
    other = match(as_sum(x * tanh(x)), lambda m, x, y: m.mul(m.tanh(x), y))
    assert same is not None
    assert other is None


def test_what_is_inside_has_no_user_outside() -> None:
    assert match(as_sum(x * tanh(x)), lambda m, x, y: [m.mul(t := m.tanh(x), x), m.neg(t)]) is None


def test_a_long_chain_is_not_followed_to_its_end() -> None:
    def spelling(m: Arithmetic, x: Value, y: Value) -> Value:
        for _ in range(200):
            x = m.add(x, y)
        return x

    graph = spelled(spelling, more={"y": (2, 3, 4)})
    root = graph.outputs[0].value.owner
    assert isinstance(root, TopOp)
    _, opened = Matcher(graph, root).expand(root.results[0])
    assert len(opened) < 50
