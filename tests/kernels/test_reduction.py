"""Reductions against NumPy int64 and the slow output stage, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuc.arithmetic.requantization import mean_parameters
from npuc.kernels import reduction
from npuc.kernels.requant import Requant
from support.kernel_strategies import (
    EXACT,
    array,
    dtypes,
    kinds,
    output_stages,
    seeds,
    stage_arguments,
    zero_points,
)
from support.oracles import integers as oracle

AXES: list[Any] = [None, 0, -1, (1,), (0, 1), (1, 2), (0, 2), (2, 0), (0, 1, 2), ()]


@EXACT
@given(dtypes, dtypes, st.sampled_from(AXES), seeds, st.booleans(), st.data())
def test_sum_matches_the_model(
    source: Any, target: Any, axes: Any, seed: int, keepdims: bool, data: st.DataObject
) -> None:
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 5), st.sampled_from((1, 3, 40))))
    rq = data.draw(output_stages(target))
    zero = data.draw(zero_points(source))
    x = array(seed, shape, source)
    acc = (x.astype(np.int64) - zero).sum(axes, keepdims=keepdims)
    y = reduction.reduce_sum(x, rq, axes, zero_point=zero, keepdims=keepdims, dtype=target)
    assert y.shape == acc.shape
    expected = oracle.requantize_array(acc, rq.kind, *stage_arguments(rq), rq.zero_point, rq.lo, rq.hi, 0)
    np.testing.assert_array_equal(y, expected)


@EXACT
@given(dtypes, st.sampled_from(AXES), seeds, st.booleans())
def test_extremes_are_numpys(dtype: Any, axes: Any, seed: int, keepdims: bool) -> None:
    x = array(seed, (3, 4, 50), dtype)
    np.testing.assert_array_equal(
        reduction.reduce_max(x, axes, keepdims=keepdims), x.max(axes, keepdims=keepdims)
    )
    np.testing.assert_array_equal(
        reduction.reduce_min(x, axes, keepdims=keepdims), x.min(axes, keepdims=keepdims)
    )


@EXACT
@given(dtypes, st.sampled_from((0, 1, 2, -1)), seeds, st.booleans())
def test_places_are_numpys(dtype: Any, axis: int, seed: int, keepdims: bool) -> None:
    x = (array(seed, (3, 4, 50), dtype) // 32).astype(dtype)
    for ours, numpys in ((reduction.argmax, np.argmax), (reduction.argmin, np.argmin)):
        first = ours(x, axis, keepdims=keepdims)
        assert first.dtype == np.int64
        np.testing.assert_array_equal(first, numpys(x, axis, keepdims=keepdims))
        last = x.shape[axis] - 1 - numpys(np.flip(x, axis), axis, keepdims=keepdims)
        np.testing.assert_array_equal(ours(x, axis, keepdims=keepdims, last=True), last)


@EXACT
@given(kinds, dtypes, seeds, st.integers(1, 3000))
def test_a_mean_is_within_a_step_of_float(kind: str, dtype: Any, seed: int, count: int) -> None:
    x = array(seed, (3, count), dtype)
    p = mean_parameters(kind, 0.25, 0.25, count)
    limits = np.iinfo(dtype)
    rq = Requant(p.kind, p.multiplier, p.shift, p.scale, 0, lo=int(limits.min), hi=int(limits.max))
    mean = x.astype(np.float64).mean(1)
    allowed = 1 + (np.abs(mean) / 128 if kind == "pow2" else 0)
    assert (np.abs(reduction.reduce_sum(x, rq, 1) - mean) <= allowed).all()


def test_sums_beyond_32_bits_stay_exact() -> None:
    x = np.full((70000, 2), -32768, np.int16)
    rq = Requant("single_rounding", np.int32([1]), np.int32([17]), None, 0, lo=-32768, hi=32767)
    assert reduction.reduce_sum(x, rq, 0).tolist() == [-17500, -17500]


def test_threads_do_not_change_the_result() -> None:
    x = array(1, (3, 200, 700), np.int8)
    rq = Requant("single_rounding", np.int32([1 << 30]), np.int32([36]), None, 0, lo=-128, hi=127)
    for axis in (0, 1, 2):
        one, two = (reduction.reduce_sum(x, rq, axis, threads=threads) for threads in (1, 2))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(reduction.argmax(x, axis), reduction.argmax(x, axis, threads=2))


@pytest.mark.parametrize(
    ("x", "axes", "words"),
    [
        (np.zeros((2, 2), np.int8), 2, "no axis 2"),
        (np.zeros((2, 2), np.int8), (0, -2), "named twice"),
        (np.zeros((2, 0), np.int8), 1, "nothing to reduce"),
        (np.zeros((2, 2), np.int32), 1, "x must be"),
    ],
)
def test_what_cannot_be_reduced_is_refused_in_words(x: Any, axes: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        reduction.reduce_max(x, axes)
