"""Attention in the spellings of exporters becomes one op; what is only near it does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc.ir import Graph, Value, top
from support.graphs import assert_same_function
from support.passes import Arithmetic, ops_of, recognize, spelled

B, H, L, S, E, V = 2, 3, 5, 6, 4, 7
Q, K, W = (B, H, L, E), (B, H, S, E), (B, H, S, V)
SCALE = 1 / math.sqrt(E)
PASSES = ("recognize-attention", "canonical-arithmetic,canonical-matmul,recognize-attention")

Spelling = Callable[[Arithmetic, Value, Value, Value], Any]


def swapped(m: Arithmetic, x: Value) -> Value:
    return m.permute(x, order=(0, 1, 3, 2))


def finish(m: Arithmetic, scores: Value, v: Value, axis: int = -1) -> Value:
    return m.matmul(m.softmax(scores, axis=axis), v)


def graph_of(
    spelling: Spelling, k: tuple[int, ...] = K, v: tuple[int, ...] = W, **more: tuple[int, ...]
) -> Graph:
    return spelled(spelling, Q, more={"k": k, "v": v, **more})


def attention_of(graph: Graph) -> top.Attention:
    return next(op for op in graph.ops if isinstance(op, top.Attention))


SPELLINGS: dict[str, Spelling] = {
    "scale after": lambda m, q, k, v: finish(m, m.mul(m.matmul(q, swapped(m, k)), SCALE), v),
    "division after": lambda m, q, k, v: finish(m, m.div(m.matmul(q, swapped(m, k)), 1 / SCALE), v),
    "scale on the query": lambda m, q, k, v: finish(m, m.matmul(m.mul(q, SCALE), swapped(m, k)), v),
    "scale on both": lambda m, q, k, v: finish(
        m, m.matmul(m.mul(q, math.sqrt(SCALE)), m.mul(swapped(m, k), math.sqrt(SCALE))), v
    ),
    "transposed operand": lambda m, q, k, v: finish(m, m.mul(m.matmul(q, k, transpose_b=True), SCALE), v, 3),
}


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_becomes_one_op(name: str, passes: str) -> None:
    before = graph_of(SPELLINGS[name])
    after = recognize(before, passes)
    assert [name for name in ops_of(after) if name != "permute"] == ["attention"]
    assert attention_of(after).scale == pytest.approx(SCALE)
    assert_same_function(before, after)


def test_the_transpose_goes() -> None:
    assert ops_of(recognize(graph_of(SPELLINGS["scale after"]), PASSES[0])) == ["attention"]


@pytest.mark.parametrize("mask", [(L, S), (B, 1, L, S), (B, 1, 1, S), (S,)])
def test_a_mask_is_added(mask: tuple[int, ...]) -> None:
    def spelling(m: Arithmetic, q: Value, k: Value, v: Value, mask: Value) -> Value:
        return finish(m, m.add(m.mul(m.matmul(q, swapped(m, k)), SCALE), mask), v)

    before = graph_of(spelling, mask=mask)  # type: ignore[arg-type]
    after = recognize(before, PASSES[0])
    assert ops_of(after) == ["attention"]
    assert_same_function(before, after)


def test_a_constant_mask_that_became_a_bias() -> None:
    mask = np.linspace(-1, 1, S, dtype=np.float32)
    before = graph_of(lambda m, q, k, v: finish(m, m.add(m.matmul(q, swapped(m, k)), mask), v))
    after = recognize(before, PASSES[1])
    assert ops_of(after) == ["attention"]
    assert_same_function(before, after)


def test_one_permute_that_splits_heads_and_transposes() -> None:
    def spelling(m: Arithmetic, q: Value, k: Value, v: Value) -> Value:
        keys = m.permute(m.reshape(k, shape=(B, S, H, E)), order=(0, 2, 3, 1))
        return finish(m, m.mul(m.matmul(q, keys), SCALE), v)

    before = graph_of(spelling, k=(B, S, H * E))
    after = recognize(before, PASSES[0])
    assert ops_of(after) == ["reshape", "permute", "attention"]
    assert next(op for op in after.ops if isinstance(op, top.Permute)).order == (0, 2, 1, 3)
    assert_same_function(before, after)


@pytest.mark.parametrize("mask", [None, (L, S), (H, L, S)])
def test_rank_three_gets_a_batch(mask: tuple[int, ...] | None) -> None:
    def spelling(m: Arithmetic, q: Value, k: Value, v: Value, *mask: Value) -> Value:
        scores = m.matmul(m.mul(q, SCALE), m.permute(k, order=(0, 2, 1)))
        return finish(m, m.add(scores, mask[0]) if mask else scores, v)

    more = {"k": K[1:], "v": W[1:], **({} if mask is None else {"mask": mask})}
    before = spelled(spelling, Q[1:], more=more)
    after = recognize(before, PASSES[0])
    assert ops_of(after) == ["reshape"] * 3 + ["attention", "reshape"]
    assert_same_function(before, after)


NEAR_MISSES: dict[str, Spelling] = {
    "softmax along queries": lambda m, q, k, v: finish(m, m.matmul(q, swapped(m, k)), v, axis=2),
    "mask before the scale": lambda m, q, k, v: finish(
        m, m.mul(m.add(m.matmul(q, swapped(m, k)), np.triu(np.ones((L, S)))), SCALE), v
    ),
    "a scale for each head": lambda m, q, k, v: finish(
        m, m.mul(m.matmul(q, swapped(m, k)), np.arange(1.0, H + 1).reshape(H, 1, 1)), v
    ),
    "no scores": lambda m, q, k, v: finish(m, m.tanh(m.matmul(q, swapped(m, k))), v),
    "a relu on the result": lambda m, q, k, v: m.matmul(
        m.softmax(m.matmul(q, swapped(m, k)), axis=-1), v, relu=True
    ),
    "the weights are an output": lambda m, q, k, v: [
        m.matmul(p := m.softmax(m.matmul(q, swapped(m, k)), axis=-1), v),
        p,
    ],
    "the scores are an output": lambda m, q, k, v: [finish(m, s := m.matmul(q, swapped(m, k)), v), s],
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_only_near_stays(name: str) -> None:
    before = graph_of(NEAR_MISSES[name])
    assert ops_of(recognize(before, PASSES[0])) == ops_of(before)


def test_heads_that_share_keys_stay() -> None:
    before = graph_of(SPELLINGS["scale after"], k=(B, 1, S, E), v=(B, 1, S, V))
    assert ops_of(recognize(before, PASSES[0])) == ops_of(before)
