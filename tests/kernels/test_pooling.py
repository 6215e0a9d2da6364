"""Pools against the slow model, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from npuc.arithmetic.requantization import pool_parameters
from npuc.arrays import Array
from npuc.kernels import pooling
from npuc.kernels.requant import Requant
from support.kernel_strategies import EXACT, array, dtypes, kinds, output_stages, seeds, zero_points
from support.oracles import pooling as oracle_pooling

small = st.integers(1, 3)


@st.composite
def geometries(draw: Any) -> dict[str, Any]:
    """A pool: its size, its window, and an output size of either rounding."""
    shape, kernel, stride, dilation, pads, out = [draw(st.integers(1, 2))], [], [], [], [], []
    for _ in range(2):
        size, k, s, d = draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(small), draw(st.integers(1, 2))
        begin, end = draw(st.integers(0, k)), draw(st.integers(0, k))
        span = size + begin + end - d * (k - 1) - 1
        assume(span >= 0)
        count = span // s + 1 if draw(st.booleans()) else -(-span // s) + 1
        taps = [[i * s - begin + t * d for t in range(k)] for i in range(count)]
        assume(all(any(0 <= t < size for t in row) for row in taps))
        shape.append(size), kernel.append(k), stride.append(s)
        dilation.append(d), pads.append(begin), out.append(count)
    shape.append(draw(st.sampled_from((1, 3, 16, 33))))
    names = ("shape", "kernel", "stride", "dilation", "pads", "out")
    return dict(zip(names, map(tuple, (shape, kernel, stride, dilation, pads, out)), strict=True))


def unscaled(zero_point: int, lo: int, hi: int) -> Requant:
    """The output stage of a `double_rounding` average: only its range matters."""
    p = pool_parameters("double_rounding", 1.0, 1.0, 1)
    return Requant("double_rounding", p.multiplier, p.shift, None, zero_point, lo=lo, hi=hi)


@EXACT
@given(geometries(), dtypes, seeds)
def test_max_pool_matches_the_model(g: dict[str, Any], dtype: Any, seed: int) -> None:
    x = array(seed, g.pop("shape"), dtype)
    np.testing.assert_array_equal(pooling.max_pool(x, **g), oracle_pooling.max_pool(x, **g))


@EXACT
@given(geometries(), kinds, dtypes, seeds, st.booleans(), st.booleans(), st.data())
def test_average_pool_matches_the_model(
    g: dict[str, Any],
    kind: str,
    dtype: Any,
    seed: int,
    include_pad: bool,
    by_count: bool,
    data: st.DataObject,
) -> None:
    x = array(seed, g.pop("shape"), dtype)
    zero = data.draw(zero_points(dtype))
    entries = g["kernel"][0] * g["kernel"][1] if by_count else 1
    rq = data.draw(output_stages(dtype, kind, entries))
    if kind == "double_rounding":
        rq = unscaled(zero, rq.lo, rq.hi)
    y = pooling.average_pool(x, rq=rq, zero_point=zero, include_pad=include_pad, **g)
    expected = oracle_pooling.average_pool(x, rq=rq, zero_point=zero, include_pad=include_pad, **g)
    np.testing.assert_array_equal(y, expected)


def whole(x: Array) -> tuple[tuple[int, int], ...]:
    """The window of a global pool: size, stride, padding, and the size of the result."""
    return (x.shape[1], x.shape[2]), (1, 1), (0, 0), (1, 1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("kind", ["double_rounding", "single_rounding", "single_even", "pow2", "float_scale"])
def test_a_global_average_is_the_mean_within_half_a_step(kind: str, dtype: Any) -> None:
    x = array(5, (2, 40, 50, 700), dtype)
    p = pool_parameters(kind, 0.5, 0.5, 2000)
    limits = np.iinfo(dtype)
    rq = Requant(p.kind, p.multiplier, p.shift, p.scale, 3, lo=int(limits.min), hi=int(limits.max))
    y = pooling.average_pool(x, *whole(x), rq, zero_point=3)
    mean = x.astype(np.float64).mean((1, 2), keepdims=True)
    # The reciprocal of `pow2` has 7 bits: an error of up to 2^-7 of the mean.
    allowed = 0.501 + (np.abs(mean - 3) / 128 if kind == "pow2" else 0)
    assert (np.abs(y - mean) <= allowed).all()
    np.testing.assert_array_equal(pooling.max_pool(x, *whole(x)), x.max((1, 2), keepdims=True))


def test_sums_beyond_32_bits_stay_exact() -> None:
    x = np.full((1, 300, 300, 2), -32768, np.int16)
    x[..., 1] = 32767
    rq = unscaled(0, -32768, 32767)
    assert pooling.average_pool(x, *whole(x), rq).ravel().tolist() == [-32768, 32767]
    p = pool_parameters("single_rounding", 1.0, 1.0, 90000, bits=15)
    rq = Requant(p.kind, p.multiplier, p.shift, p.scale, 0, lo=-32768, hi=32767)
    assert np.abs(pooling.average_pool(x, *whole(x), rq).ravel() - [-32768, 32767]).max() <= 1


def test_threads_do_not_change_the_result() -> None:
    x = array(1, (2, 57, 31, 40), np.int8)
    rq = unscaled(0, -128, 127)
    arguments = (x, (3, 3), (2, 2), (1, 1), (29, 16))
    np.testing.assert_array_equal(pooling.max_pool(*arguments), pooling.max_pool(*arguments, threads=2))
    one, two = (pooling.average_pool(*arguments, rq, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros((1, 4, 4), np.int8), (2, 2), (1, 1), (0, 0), (3, 3)), "four dimensions"),
        ((np.zeros((1, 4, 4, 1), np.int32), (2, 2), (1, 1), (0, 0), (3, 3)), "x must be int8"),
        ((np.zeros((1, 4, 4, 1), np.int8), (2, 2), (1, 0), (0, 0), (3, 3)), "stride must be two numbers"),
        ((np.zeros((1, 4, 4, 1), np.int8), (2, 2), (2, 2), (0, 0), (3, 3)), "row 2 .* padding only"),
        ((np.zeros((1, 4, 4, 1), np.int8), (2, 2), (1, 1), (0, 2), (3, 3)), "column 0 .* padding only"),
    ],
)
def test_what_is_no_pool_is_refused_in_words(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pooling.max_pool(*arguments)


def test_too_few_entries_for_the_windows_are_refused_in_words() -> None:
    rq = Requant("pow2", None, np.zeros(3, np.int32), None, 0, lo=-128, hi=127)
    with pytest.raises(ValueError, match="3 entries for windows of up to 4"):
        pooling.average_pool(np.zeros((1, 4, 4, 1), np.int8), (2, 2), (1, 1), (0, 0), (3, 3), rq)
