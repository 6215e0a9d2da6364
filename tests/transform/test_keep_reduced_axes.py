"""Reductions keep the axes that are put back later, and only those."""

from __future__ import annotations

import numpy as np

from npuc.ir import Graph, Value, top
from support.graphs import assert_same_function
from support.passes import Arithmetic, ops_of, recognize, spelled

PASS = "keep-reduced-axes"


def dropped(m: Arithmetic, x: Value, kind: str, axis: int = 1) -> Value:
    return m.reduce(x, kind=kind, axes=(axis,), keepdims=False)


def kept(graph: Graph) -> list[bool]:
    return [op.keepdims for op in graph.ops if isinstance(op, top.Reduce)]


def test_axes_that_are_put_back_are_kept() -> None:
    before = spelled(lambda m, x: m.sub(x, m.reshape(m.tanh(dropped(m, x, "max")), shape=(2, 1, 4))))
    after = recognize(before, PASS)
    assert ops_of(after) == ["reduce", "tanh", "sub"]
    assert kept(after) == [True]
    assert_same_function(before, after)


def test_other_axes_stay_dropped() -> None:
    before = spelled(lambda m, x: m.tanh(dropped(m, x, "max")))
    after = recognize(before, PASS)
    assert ops_of(after) == ["reduce", "tanh"]
    assert kept(after) == [False]
    assert_same_function(before, after)


def test_softmax_as_jax_writes_it() -> None:
    def spelling(m: Arithmetic, x: Value) -> Value:
        e = m.exp(m.sub(x, m.reshape(dropped(m, x, "max"), shape=(2, 1, 4))))
        return m.div(e, m.reshape(dropped(m, e, "sum"), shape=(2, 1, 4)))

    before = spelled(spelling)
    after = recognize(before, f"{PASS},recognize-softmax")
    assert ops_of(after) == ["softmax"]
    assert_same_function(before, after)


def test_layer_norm_as_jax_writes_it() -> None:
    def spelling(m: Arithmetic, x: Value) -> Value:
        mean = m.mul(dropped(m, x, "sum", 2), 0.25)
        variance = m.relu(m.sub(m.mul(dropped(m, m.mul(x, x), "sum", 2), 0.25), m.mul(mean, mean)))
        inverse = m.rsqrt(m.add(m.reshape(variance, shape=(2, 3, 1)), 1e-3))
        scaled = m.mul(inverse, m.b.weight(np.linspace(0.5, 1, 4, dtype="f")))
        return m.mul(m.sub(x, m.reshape(mean, shape=(2, 3, 1))), scaled)

    before = spelled(spelling)
    after = recognize(before, f"{PASS},recognize-norms")
    assert ops_of(after) == ["layer_norm"]
    assert_same_function(before, after)
