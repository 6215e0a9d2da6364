"""Softmax in its variants becomes one op; what is only near it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from npuc.ir import Value
from support.graphs import assert_same_function
from support.passes import Arithmetic, ops_of, recognize, spelled

Spelling = Callable[[Arithmetic, Value], Any]
PASSES = ("recognize-softmax", "canonical-arithmetic,recognize-softmax")


def shifted(m: Arithmetic, x: Value, axis: int = 1) -> Value:
    return m.sub(x, m.mean(x, axis, kind="max"))


def normalized(m: Arithmetic, e: Value, *axes: int) -> Value:
    return m.div(e, m.mean(e, *axes, kind="sum"))


def flat(
    m: Arithmetic, x: Value, shape: tuple[int, ...], axis: int = 1, back: tuple[int, ...] = (2, 3, 4)
) -> Value:
    return m.reshape(m.softmax(m.reshape(x, shape=shape), axis=axis), shape=back)


SPELLINGS: dict[str, tuple[str, int, Spelling]] = {
    "plain": ("softmax", 1, lambda m, x: normalized(m, m.exp(x), 1)),
    "stable": ("softmax", 1, lambda m, x: normalized(m, m.exp(shifted(m, x)), 1)),
    "reciprocal": (
        "softmax",
        2,
        lambda m, x: m.mul(m.reciprocal(m.mean(e := m.exp(x), -1, kind="sum")), e),
    ),
    "log of softmax": ("log_softmax", 1, lambda m, x: m.log(m.softmax(x, axis=1))),
    "log of softmax, in primitives": (
        "log_softmax",
        1,
        lambda m, x: m.log(normalized(m, m.exp(shifted(m, x)), 1)),
    ),
    "log sum exp": ("log_softmax", 1, lambda m, x: m.sub(x, m.mean(x, 1, kind="log_sum_exp"))),
    "log sum exp, plain": (
        "log_softmax",
        1,
        lambda m, x: m.sub(x, m.log(m.mean(m.exp(x), 1, kind="sum"))),
    ),
    "log sum exp, stable": (
        "log_softmax",
        1,
        lambda m, x: m.sub(d := shifted(m, x), m.log(m.mean(m.exp(d), 1, kind="sum"))),
    ),
    "between permutes": (
        "softmax",
        1,
        lambda m, x: m.permute(m.softmax(m.permute(x, order=(0, 2, 1)), axis=-1), order=(0, 2, 1)),
    ),
    "flattened": ("softmax", 2, lambda m, x: flat(m, x, (6, 4))),
    "between other reshapes": ("softmax", 1, lambda m, x: flat(m, x, (2, 3, 2, 2))),
}


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_becomes_one_op(name: str, passes: str) -> None:
    kind, axis, spelling = SPELLINGS[name]
    before = spelled(spelling, (2, 3, 4))
    after = recognize(before, passes)
    assert ops_of(after) == [kind]
    assert next(iter(after.ops)).axis % 3 == axis  # type: ignore[attr-defined]
    assert_same_function(before, after)


def test_opset_below_13_flattens_to_the_channels_of_a_classifier() -> None:
    before = spelled(lambda m, x: flat(m, x, (2, 5), back=(2, 5, 1, 1)), (2, 5, 1, 1))
    after = recognize(before, PASSES[0])
    assert ops_of(after) == ["softmax"]
    assert_same_function(before, after)


NEAR_MISSES: dict[str, Spelling] = {
    "two axes": lambda m, x: normalized(m, m.exp(x), 1, 2),
    "sum of another": lambda m, x: m.div(m.exp(x), m.mean(m.exp(m.tanh(x)), 1, kind="sum")),
    "mean for sum": lambda m, x: m.div(e := m.exp(x), m.mean(e, 1)),
    "flattened over two axes": lambda m, x: flat(m, x, (2, 12)),
    "permutes that do not cancel": lambda m, x: m.permute(
        m.softmax(m.permute(x, order=(0, 2, 1)), axis=-1), order=(1, 0, 2)
    ),
    "the exponential is an output": lambda m, x: [normalized(m, e := m.exp(x), 1), e],
    "the softmax is an output too": lambda m, x: [s := m.softmax(x, axis=1), m.log(s)],
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_only_near_stays(name: str) -> None:
    before = spelled(NEAR_MISSES[name], (2, 3, 4))
    assert ops_of(recognize(before, PASSES[0])) == ops_of(before)


def test_a_maximum_over_another_axis_is_not_part_of_the_softmax() -> None:
    before = spelled(lambda m, x: normalized(m, m.exp(shifted(m, x, 2)), 1), (2, 3, 4))
    after = recognize(before, PASSES[0])
    assert ops_of(after) == ["reduce", "sub", "softmax"]
    assert_same_function(before, after)
