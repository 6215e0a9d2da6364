"""Figures of difference, against their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from npuc.compare.tensors import Tolerance, compare_sets, difference, summarize, worst_first, worst_part
from npuc.errors import CompareError, UsageError

finite = arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(-100, 100, width=32))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.data())
def test_the_figures_are_those_of_their_definitions(data: Any) -> None:
    b = data.draw(finite)
    a = data.draw(arrays.arrays(np.float32, b.shape, elements=st.floats(-100, 100, width=32)))
    found = difference("x", a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    error, length = np.linalg.norm(x - y), np.linalg.norm(y)
    if error == 0:
        assert (found.cosine, found.euclid, found.sqnr) == (1, 1, math.inf)
        return
    assert found.max_error == pytest.approx(np.abs(x - y).max())
    if length == 0 or np.linalg.norm(x) == 0:
        assert found.cosine == 0
        return
    assert found.cosine == pytest.approx(x @ y / np.linalg.norm(x) / length, abs=1e-9)
    assert found.euclid == pytest.approx(max(0, 1 - error / length), abs=1e-9)
    assert found.sqnr == pytest.approx(20 * math.log10(length / error), abs=1e-6)


def test_large_tensors_are_compared_in_pieces() -> None:
    rng = np.random.default_rng(0)
    b = rng.standard_normal(3_000_000).astype(np.float32)
    a = b + np.float32(0.1) * rng.standard_normal(b.size).astype(np.float32)
    assert difference("x", a, b).sqnr == pytest.approx(20, abs=0.05)


def test_nan_equals_nan_and_nothing_else() -> None:
    odd = np.array([1, np.nan, np.inf, -np.inf])
    assert difference("x", odd, odd).passes(Tolerance(1, 1))
    for other in (0.0, np.inf):
        changed = odd.copy()
        changed[1] = other
        assert not difference("x", changed, odd).passes(Tolerance())
        assert not difference("x", odd, changed).passes(Tolerance())
    assert not difference("x", -odd, odd).passes(Tolerance())


def test_a_part_that_is_lost_is_seen_among_larger_ones() -> None:
    b = np.full((1, 4, 3, 3), 100.0)
    b[0, 2] = np.eye(3)
    a = b.copy()
    a[0, 2] = 1 - np.eye(3)
    a[0, 3] *= 1.0005  # close
    assert difference("x", a, b).cosine > 0.999
    found = worst_part("x", a, b, 1)
    assert (found.part, found.shape, found.cosine, found.close) == ((0, 2), (1, 4, 3, 3), 0, False)
    (other,) = compare_sets({"x": a}, {"x": b}, axis=0)
    assert other.part == (0,) and other.cosine == difference("x", a, b).cosine
    assert worst_part("x", a, b, 7) == difference("x", a, b), "there is no such axis"
    assert worst_part("x", np.zeros((2, 3)), np.full((2, 3), 1e-9), 0).close, "nothing beside nothing"
    assert not worst_part("x", a[:, :2], b, 1).passes(Tolerance())
    assert worst_part("x", np.array(["a", "b"]), np.array(["a", "c"]), 0).part == (1,)


def test_other_kinds_of_tensors() -> None:
    assert difference("x", np.array(["a"]), np.array(["a"])).passes(Tolerance())
    assert not difference("x", np.array(["a"]), np.array(["b"])).passes(Tolerance())
    assert difference("x", np.array([True]), np.array([True])).passes(Tolerance())
    assert difference("x", np.array([1 + 1j]), np.array([1 + 1j])).passes(Tolerance())
    assert difference("x", np.zeros((0, 3)), np.zeros((0, 3))).passes(Tolerance())
    assert difference("x", np.array([2**62]), np.array([2**62])).passes(Tolerance())
    assert "shape" in difference("x", np.zeros(2), np.zeros(3)).note
    assert difference("x", np.array([1 + 1j]), np.array([1 - 1j])).cosine == pytest.approx(0)


def test_the_worst_come_first() -> None:
    b = {"same": np.ones(4), "flipped": np.ones(4), "scaled": np.ones(4)}
    a = {"same": np.ones(4), "flipped": -np.ones(4), "scaled": 5 * np.ones(4)}
    found = compare_sets(a, b)
    assert [entry.name for entry in worst_first(found)] == ["flipped", "scaled", "same"]
    assert worst_first(found, "max_error")[0].name == "scaled"
    assert [entry.name for entry in worst_first(found, "order")] == ["same", "flipped", "scaled"]
    with pytest.raises(CompareError):
        compare_sets(a, b, leave_out=list(a))


@pytest.mark.parametrize("text", ["", "a", "1.5", "0.9,nan", "1,1,1"])
def test_a_bad_tolerance(text: str) -> None:
    with pytest.raises(UsageError):
        Tolerance.parse(text)


def test_statistics() -> None:
    found = summarize("x", np.array([0, 1, 2, 5], np.int8))
    assert (found.minimum, found.maximum, found.mean, found.zeros) == (0, 5, 2, 0.25)
    assert found.deviation == pytest.approx(np.std([0, 1, 2, 5]))
    assert math.isnan(summarize("x", np.zeros(0)).mean)
    assert summarize("x", np.full(3, np.nan)).not_finite == 3
