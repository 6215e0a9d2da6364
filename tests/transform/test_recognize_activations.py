"""Activations in the spellings of exporters become one op; what is only near one does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.ir import Value, top
from npuc.ir.names import value_name
from support.graphs import assert_same_function, build
from support.passes import SHAPE, Arithmetic, ops_of, recognize, spelled

PASSES = (
    "recognize-activations",
    "canonical-arithmetic,recognize-activations",
    "canonical-arithmetic,fuse-relu,recognize-activations",
)

ROOT_2 = math.sqrt(2)
K = math.sqrt(2 / math.pi)


def cdf(m: Arithmetic, x: Value) -> Value:
    return m.add(m.erf(m.div(x, ROOT_2)), 1.0)


def slopes(sign: float = 1.0) -> Array:
    return sign * np.linspace(0.1, 0.5, 3, dtype=np.float32).reshape(3, 1)


def greater(m: Arithmetic, x: Value, mode: str = "greater") -> Value:
    return m.compare(x, 0.0, mode=mode)


SPELLINGS: dict[str, tuple[str, Callable[[Arithmetic, Value], Value], dict[str, Any]]] = {
    "silu": ("silu", lambda m, x: m.mul(x, m.sigmoid(x)), {}),
    "silu, sigmoid first": ("silu", lambda m, x: m.mul(m.sigmoid(x), x), {}),
    "silu, by division": ("silu", lambda m, x: m.div(x, m.add(m.exp(m.neg(x)), 1.0)), {}),
    "sigmoid": ("sigmoid", lambda m, x: m.div(1.0, m.add(1.0, m.exp(m.neg(x)))), {}),
    "sigmoid, reciprocal": ("sigmoid", lambda m, x: m.reciprocal(m.add(m.exp(m.mul(x, -1.0)), 1.0)), {}),
    "softplus": ("softplus", lambda m, x: m.log(m.add(m.exp(x), 1.0)), {}),
    "mish": ("mish", lambda m, x: m.mul(x, m.tanh(m.softplus(x))), {}),
    "mish, in primitives": ("mish", lambda m, x: m.mul(m.tanh(m.log(m.add(1.0, m.exp(x)))), x), {}),
    "softsign": ("softsign", lambda m, x: m.div(x, m.add(m.abs(x), 1.0)), {}),
    "hard sigmoid, relu6": (
        "hard_sigmoid",
        lambda m, x: m.div(m.relu(m.add(x, 3.0), limit=6.0), 6.0),
        {"alpha": 1 / 6, "beta": 0.5},
    ),
    "hard sigmoid, of a sum": (
        "add hard_sigmoid",
        lambda m, x: m.div(m.clip(m.add(m.add(x, x), 3.0), min=0.0, max=6.0), 6.0),
        {"alpha": 1 / 6, "beta": 0.5},
    ),
    "hard sigmoid, affine": (
        "hard_sigmoid",
        lambda m, x: m.clip(m.add(m.mul(x, 0.2), 0.5), min=0.0, max=1.0),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "hard sigmoid, min and max": (
        "hard_sigmoid",
        lambda m, x: m.max(m.min(m.add(m.mul(x, 0.2), 0.5), 1.0), 0.0),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "hard swish, hard sigmoid": ("hard_swish", lambda m, x: m.mul(x, m.hard_sigmoid(x, alpha=1 / 6)), {}),
    "hard swish, (x * relu6) / 6": (
        "hard_swish",
        lambda m, x: m.div(m.mul(x, m.clip(m.add(x, 3.0), min=0.0, max=6.0)), 6.0),
        {},
    ),
    "hard swish, x * (relu6 / 6)": (
        "hard_swish",
        lambda m, x: m.mul(m.div(m.relu(m.add(3.0, x), limit=6.0), 6.0), x),
        {},
    ),
    "hard swish, (x / 6) * relu6": (
        "hard_swish",
        lambda m, x: m.mul(m.mul(x, 0.16666667), m.relu(m.add(x, 3.0), limit=6.0)),
        {},
    ),
    "hard swish, * 0.1666666": (
        "hard_swish",
        lambda m, x: m.mul(m.mul(x, m.relu(m.add(x, 3.0), limit=6.0)), 0.1666666),
        {},
    ),
    "hard swish, min and max": (
        "hard_swish",
        lambda m, x: m.mul(x, m.div(m.min(m.max(m.add(x, 3.0), 0.0), 6.0), 6.0)),
        {},
    ),
    "gelu, torch": ("gelu", lambda m, x: m.mul(m.mul(x, cdf(m, x)), 0.5), {"tanh": False}),
    "gelu, (0.5 x) * cdf": ("gelu", lambda m, x: m.mul(m.mul(x, 0.5), cdf(m, x)), {"tanh": False}),
    "gelu, x * (0.5 cdf)": ("gelu", lambda m, x: m.mul(x, m.mul(0.5, cdf(m, x))), {"tanh": False}),
    "gelu, 0.5 + 0.5 erf": (
        "gelu",
        lambda m, x: m.mul(x, m.add(m.mul(m.erf(m.mul(x, 0.70710677)), 0.5), 0.5)),
        {"tanh": False},
    ),
    "gelu, cdf / 2": ("gelu", lambda m, x: m.mul(m.div(cdf(m, x), 2.0), x), {"tanh": False}),
    "gelu tanh, pow": (
        "gelu",
        lambda m, x: m.mul(
            m.mul(x, 0.5), m.add(m.tanh(m.mul(m.add(x, m.mul(m.pow(x, 3.0), 0.044715)), 0.7978846)), 1.0)
        ),
        {"tanh": True},
    ),
    "gelu tanh, products": (
        "gelu",
        lambda m, x: m.mul(
            x, m.mul(0.5, m.add(1.0, m.tanh(m.mul(K, m.add(x, m.mul(0.044715, m.mul(x, m.mul(x, x))))))))
        ),
        {"tanh": True},
    ),
    "gelu tanh, factored": (
        "gelu",
        lambda m, x: m.mul(
            m.mul(0.5, x),
            m.add(1.0, m.tanh(m.mul(m.mul(x, 0.79788456), m.add(1.0, m.mul(m.mul(x, 0.044715), x))))),
        ),
        {"tanh": True},
    ),
    "relu, where": ("relu", lambda m, x: m.where(greater(m, x), x, 0.0), {}),
    "relu, where less": ("relu", lambda m, x: m.where(greater(m, x, "less_equal"), 0.0, x), {}),
    "relu, comparison": ("relu", lambda m, x: m.mul(x, m.cast(greater(m, x), to="f32")), {}),
    "leaky relu, max": ("leaky_relu", lambda m, x: m.max(m.mul(x, 0.1), x), {"alpha": 0.1}),
    "leaky relu, where": (
        "leaky_relu",
        lambda m, x: m.where(greater(m, x, "less"), m.mul(0.1, x), x),
        {"alpha": 0.1},
    ),
    "leaky relu, two relus": (
        "leaky_relu",
        lambda m, x: m.sub(m.relu(x), m.mul(m.relu(m.neg(x)), 0.1)),
        {"alpha": 0.1},
    ),
    "prelu, two relus": ("prelu", lambda m, x: m.sub(m.relu(x), m.mul(slopes(), m.relu(m.neg(x)))), {}),
    "prelu, keras": ("prelu", lambda m, x: m.add(m.relu(x), m.mul(slopes(-1), m.relu(m.neg(x)))), {}),
    "prelu, tensorflow": (
        "prelu",
        lambda m, x: m.add(m.relu(x), m.mul(m.mul(slopes(), m.sub(x, m.abs(x))), 0.5)),
        {},
    ),
    "prelu, min": ("prelu", lambda m, x: m.add(m.mul(m.min(x, 0.0), slopes()), m.max(x, 0.0)), {}),
    "prelu, where": ("prelu", lambda m, x: m.where(greater(m, x, "less"), m.mul(slopes(), x), x), {}),
    "elu": (
        "elu",
        lambda m, x: m.where(greater(m, x), x, m.mul(m.sub(m.exp(x), 1.0), 0.7)),
        {"alpha": 0.7},
    ),
    "selu": (
        "selu",
        lambda m, x: m.where(
            greater(m, x, "less"), m.mul(1.05, m.sub(m.mul(1.67, m.exp(x)), 1.67)), m.mul(1.05, x)
        ),
        {"alpha": 1.67, "gamma": 1.05},
    ),
    "celu": ("celu", lambda m, x: m.mul(2.0, m.elu(m.div(x, 2.0))), {"alpha": 2.0}),
    "rsqrt": ("exp rsqrt", lambda m, x: m.div(1.0, m.sqrt(m.exp(x))), {}),
    "rsqrt, pow": ("exp rsqrt", lambda m, x: m.pow(m.exp(x), -0.5), {}),
}


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_spelling_becomes_one_op(spelling: str, passes: str) -> None:
    names, function, properties = SPELLINGS[spelling]
    before = spelled(lambda m, x: m.neg(function(m, x)))
    after = recognize(before, passes)
    assert ops_of(after) == [*names.split(), "neg"]
    found = list(after.ops)[-2]
    for key, value in properties.items():
        assert getattr(found, key) == pytest.approx(value, rel=1e-5)
    assert_same_function(before, after)


def test_the_op_takes_the_name_of_the_last_tensor() -> None:
    before = spelled(lambda m, x: m.mul(x, m.sigmoid(x, name="s"), name="product", layer="act"))
    assert value_name(recognize(before, PASSES[0]).outputs[0].value) == "product"


def test_constants_rounded_to_half_precision_are_known() -> None:
    before = spelled(lambda m, x: m.mul(m.mul(x, m.relu(m.add(x, 3.0), limit=6.0)), 1 / 6), dtype="f16")
    assert ops_of(recognize(before, PASSES[0])) == ["hard_swish"]


def test_a_constant_of_the_full_shape_counts_as_its_one_number() -> None:
    before = spelled(lambda m, x: m.mul(m.mul(x, cdf(m, x)), np.full(SHAPE, 0.5)))
    assert ops_of(recognize(before, PASSES[0])) == ["gelu"]


NEAR_MISSES: dict[str, Callable[[Arithmetic, Value], Any]] = {
    "quick gelu": lambda m, x: m.mul(x, m.sigmoid(m.mul(x, 1.702))),
    "sigmoid of another value": lambda m, x: m.mul(x, m.sigmoid(m.tanh(x))),
    "wrong factor in gelu": lambda m, x: m.mul(m.mul(x, cdf(m, x)), 0.51),
    "wrong argument in gelu": lambda m, x: m.mul(m.mul(x, m.add(m.erf(m.div(x, 1.5)), 1.0)), 0.5),
    "wrong cubic in gelu": lambda m, x: m.mul(
        m.mul(x, 0.5), m.add(m.tanh(m.mul(m.add(x, m.mul(m.pow(x, 3.0), 0.05)), K)), 1.0)
    ),
    "wrong shift in hard swish": lambda m, x: m.mul(m.mul(x, m.relu(m.add(x, 3.01), limit=6.0)), 1 / 6),
    "wrong limit in hard swish": lambda m, x: m.mul(m.mul(x, m.relu(m.add(x, 3.0), limit=5.0)), 1 / 6),
    "wrong slope of hard sigmoid": lambda m, x: m.mul(x, m.hard_sigmoid(x, alpha=0.2)),
    "wrong scale of hard sigmoid": lambda m, x: m.div(m.relu(m.add(x, 3.0), limit=6.0), 5.0),
    "softplus with two": lambda m, x: m.log(m.add(m.exp(x), 2.0)),
    "max with a steep slope": lambda m, x: m.max(x, m.mul(x, 1.5)),
    "where at one": lambda m, x: m.where(m.compare(x, 1.0, mode="greater"), x, 0.0),
    "where of another": lambda m, x: m.where(greater(m, m.tanh(x)), x, 0.0),
    "elu that does not meet at zero": lambda m, x: m.where(greater(m, x), x, m.sub(m.exp(x), 0.5)),
    "a broadcast that grows": lambda m, x: m.mul(m.mul(x, cdf(m, x)), np.full((2, *SHAPE), 0.5)),
    "a slope for each channel": lambda m, x: m.mul(m.mul(x, cdf(m, x)), np.linspace(0.5, 0.6, 4)),
    "a relu is fused into the product": lambda m, x: m.mul(x, m.sigmoid(x), relu=True),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_only_near_stays(name: str) -> None:
    before = spelled(NEAR_MISSES[name])
    assert ops_of(recognize(before, PASSES[0])) == ops_of(before)


OTHER_USERS: dict[str, Callable[[Arithmetic, Value], list[Value]]] = {
    "the sigmoid is used elsewhere": lambda m, x: [m.mul(x, s := m.sigmoid(x)), m.neg(s)],
    "the sigmoid is an output": lambda m, x: [m.mul(x, s := m.sigmoid(x)), s],
    "the erf is used elsewhere": lambda m, x: [
        m.mul(m.mul(x, m.add(e := m.erf(m.div(x, ROOT_2)), 1.0)), 0.5),
        m.neg(e),
    ],
    "the clip is an output": lambda m, x: [m.div(m.mul(x, r := m.relu(m.add(x, 3.0), limit=6.0)), 6.0), r],
}


@pytest.mark.parametrize("name", OTHER_USERS)
def test_values_that_are_used_elsewhere_stay(name: str) -> None:
    before = spelled(OTHER_USERS[name])  # type: ignore[arg-type]
    assert ops_of(recognize(before, PASSES[0])) == ops_of(before)


def test_integers_stay() -> None:
    before = build(
        {"x": (SHAPE, "i32")},
        lambda b, x: b(
            top.Where, b(top.Compare, x, zero := b.weight(np.int32([0])), mode="greater"), x, zero
        ),
    )
    assert ops_of(recognize(before, PASSES[0])) == ops_of(before)
