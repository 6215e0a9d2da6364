"""Softmax, norms, reductions and comparisons of bf16, f16 and f32: bits against loops, values against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.kernels import float_rows, isa, select_isa
from npuc.kernels.floats import BF16, F16, F32
from support.oracles import floats as oracle

DTYPES = (BF16, F16, F32)
SETTINGS = settings(deadline=None, derandomize=True, max_examples=40)
SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 600))


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, style: str) -> Array:
    """Reals of a usual size, of very different sizes, or any bits but those of NaN."""
    if style == "usual":
        return rng.normal(size=shape).astype(np.float32).astype(dtype)
    if style == "spread":
        return (rng.normal(size=shape) * np.exp(rng.uniform(-12, 6, shape))).astype(np.float32).astype(dtype)
    size = np.dtype(dtype).itemsize
    bits = rng.integers(0, 1 << (8 * size), shape, dtype=f"u{size}").view(dtype)
    return np.where(np.isnan(bits.astype(np.float32)), np.zeros((), dtype), bits).astype(dtype)


def same_bits(got: Array, expected: Array) -> None:
    nan = np.isnan(expected.astype(np.float32))
    assert got.dtype == expected.dtype
    assert np.array_equal(np.isnan(got.astype(np.float32)), nan)
    bits = f"u{expected.itemsize}"
    assert np.array_equal(got.view(bits)[~nan], expected.view(bits)[~nan])


CASES = given(
    st.integers(0, 2**32 - 1), st.sampled_from(DTYPES), st.sampled_from(("usual", "spread", "bits")), SHAPES
)


@SETTINGS
@CASES
def test_softmax(seed: int, dtype: Any, style: str, shape: tuple[int, int]) -> None:
    x = values(np.random.default_rng(seed), shape, dtype, style)
    same_bits(float_rows.softmax(x, threads=1 + seed % 2), oracle.softmax(x))


def test_every_exponential_is_that_of_float64_to_a_unit_in_the_last_place() -> None:
    """e^x by the series against the C library, over all differences that a softmax can see."""
    x = -np.arange(0, 1 << 16, dtype=np.uint32).astype(np.uint16).view(F16).astype(np.float32)
    x = x[(x <= 0) & (x > -100)]
    exact = np.exp(x.astype(np.float64))
    normal = exact > 2.0**-126
    error = np.abs(oracle.exponential(x).astype(np.float64) - exact) / exact
    assert error[normal].max() < 2.0**-24 * 1.001
    same = float_rows.softmax(np.zeros((1, 4), F16))
    assert same.tolist() == [[0.25] * 4]


@SETTINGS
@CASES
def test_norms(seed: int, dtype: Any, style: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    x = values(rng, shape, dtype, style)
    gain, bias = (rng.normal(size=shape[1]).astype(np.float32) for _ in range(2))
    options: dict[str, Any] = {"epsilon": 1e-5, "threads": 1 + seed % 2}
    for center in (True, False):
        got = float_rows.layer_norm(x, gain, bias, center=center, **options)
        same_bits(got, oracle.norm(x, gain, bias, center=center, epsilon=1e-5))
    unit, zero = np.ones(1), np.zeros(1)
    got = float_rows.l2_norm(x, **options)
    same_bits(got, oracle.norm(x, unit, zero, center=False, mean=False, epsilon=1e-5))
    x[0] = 0
    got = float_rows.l2_norm(x)
    same_bits(got, oracle.norm(x, unit, zero, center=False, mean=False))
    assert not got[0].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_takes_channel_by_channel(dtype: Any, groups: int) -> None:
    rng = np.random.default_rng(groups)
    x = values(rng, (2, 6, 5, 7), dtype, "usual")
    gain, bias = (rng.normal(size=6).astype(np.float32) for _ in range(2))
    rows = x.reshape(2, groups, -1)
    by_element = [np.repeat(array, 35).reshape(groups, -1) for array in (gain, bias)]
    expected = oracle.norm(rows, *by_element, epsilon=1e-3).reshape(x.shape)
    same_bits(float_rows.group_norm(x, gain, bias, groups=groups, epsilon=1e-3), expected)


@SETTINGS
@CASES
def test_sums_and_means(seed: int, dtype: Any, style: str, shape: tuple[int, int]) -> None:
    x = values(np.random.default_rng(seed), shape, dtype, style)
    for mean in (False, True):
        same_bits(float_rows.reduce_sum(x, 1, mean=mean), oracle.reduce_sum(x, mean))
        inner = np.ascontiguousarray(x.T)
        same_bits(float_rows.reduce_sum(inner, 0, mean=mean), oracle.reduce_sum(x, mean))


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_are_those_of_numpy_on_numbers(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    a, b = values(rng, (6, 40), dtype, "bits"), values(rng, (6, 1), dtype, "bits")
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    for larger in (True, False):
        choose = np.maximum if larger else np.minimum
        got = float_rows.choose(a, b, larger=larger)
        assert np.array_equal(got.astype(np.float32), choose(wide_a, wide_b))
        most = wide_a.max(1) if larger else wide_a.min(1)
        assert np.array_equal(float_rows.extreme(a, 1, larger=larger).astype(np.float32), most)
        if dtype == F32:
            continue
        place = wide_a.argmax(1) if larger else wide_a.argmin(1)
        assert np.array_equal(float_rows.place_of_extreme(a, 1, larger=larger), place)


@pytest.mark.parametrize("dtype", DTYPES)
def test_instruction_sets_agree(dtype: Any) -> None:
    x = values(np.random.default_rng(9), (5, 700), dtype, "spread")
    before, results = isa(), []
    try:
        for name in filter(select_isa, ("portable", "avx2")):
            assert isa() == name
            results.append(
                [float_rows.softmax(x), float_rows.reduce_sum(x, 1), float_rows.reduce_sum(x, 0, mean=True)]
            )
    finally:
        select_isa(before)
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            same_bits(first, second)
