"""Normalizations against the slow model, bit for bit, and against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuc.kernels import normalization as norms
from support.kernel_strategies import EXACT, array, dtypes, ranges, seeds, zero_points
from support.oracles import norm as oracle_norm


def span(dtype: Any, width: int, zero: int, center: bool) -> int:
    """The largest magnitude of N * q - sum."""
    limits = np.iinfo(dtype)
    if center:
        return width * (int(limits.max) - int(limits.min))
    return width * max(int(limits.max) - zero, zero - int(limits.min))


@EXACT
@given(
    dtypes,
    dtypes,
    st.sampled_from((1, 2, 7, 64, 600)),
    seeds,
    st.booleans(),
    st.booleans(),
    st.sampled_from(("single_rounding", "single_even")),
    st.floats(1e-4, 1.0),
    st.floats(1e-4, 1.0),
    st.sampled_from((0.0, 1e-5, 1.0)),
    st.data(),
)
def test_rows_match_the_model(
    source: Any,
    target: Any,
    width: int,
    seed: int,
    center: bool,
    affine: bool,
    kind: str,
    scale_x: float,
    scale_y: float,
    epsilon: float,
    data: Any,
) -> None:
    random = np.random.default_rng(seed)
    gamma, beta = (random.normal(size=width), random.normal(size=width)) if affine else (1.5, -0.25)
    p = norms.norm_parameters(kind, scale_x, scale_y, gamma, beta, width, epsilon)
    zero_x, zero, (lo, hi) = (
        data.draw(zero_points(source)),
        data.draw(zero_points(target)),
        data.draw(ranges(target)),
    )
    x = array(seed, (3, width), source)
    x[0] = x[0, 0]
    norm = norms.layer_norm if center else norms.rms_norm
    y = norm(x, p, zero_x=zero_x, zero_point=zero, lo=lo, hi=hi, dtype=target)
    entries = list(range(width)) if affine else [0] * width
    for given_row, result in zip(x.tolist(), y.tolist(), strict=True):
        row = [q - zero_x for q in given_row]
        expected = oracle_norm.row(row, entries, p, center, span(source, width, zero_x, center))
        assert result == [min(max(v + zero, lo), hi) for v in expected]


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_every_bit_of_a_normalized_element_is_right(dtype: Any, center: bool) -> None:
    width = 48
    x = array(11, (100, width), dtype)
    plain = norms.NormParameters(np.full(width, 4096, np.int32), np.zeros(width, np.int64), 12, 77, width)
    norm = norms.layer_norm if center else norms.rms_norm
    for row in x:
        units = oracle_norm.row(
            row.tolist(), list(range(width)), plain, center, span(dtype, width, 0, center)
        )
        # A bias that brings all 30 bits of the element into the output's window.
        p = norms.NormParameters(plain.gain, np.array(units, np.int64) * -4096, 12, 77, width)
        assert not norm(row[None], p, zero_point=0).any()


def real_norm(x: Any, axes: Any, epsilon: float, center: bool = True) -> Any:
    mean = x.mean(axes, keepdims=True) if center else 0.0
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("source", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("target", [np.int8, np.int16])
def test_all_norms_are_within_a_step_of_float(source: Any, target: Any) -> None:
    random = np.random.default_rng(0)
    x = array(1, (2, 6, 7, 8), source)
    zero_x = 3 if source is np.uint8 else -2
    scale_x, scale_y = 0.02, 8 / np.iinfo(target).max
    real = (x.astype(np.float64) - zero_x) * scale_x
    gamma, beta = random.normal(size=8), random.normal(size=8)
    options = {"zero_x": zero_x, "zero_point": 1, "dtype": target}

    def steps(wanted: Any, got: Any) -> float:
        limits = np.iinfo(target)
        return float(np.abs(got - np.clip(wanted / scale_y + 1, limits.min, limits.max)).max())

    p = norms.norm_parameters("single_rounding", scale_x, scale_y, gamma, beta, 8)
    assert steps(real_norm(real, -1, 1e-5) * gamma + beta, norms.layer_norm(x, p, **options)) < 0.51
    rms = real_norm(real, -1, 1e-5, center=False) * gamma + beta
    assert steps(rms, norms.rms_norm(x, p, **options)) < 0.51
    p = norms.norm_parameters("single_rounding", scale_x, scale_y, gamma, beta, 42)
    assert (
        steps(
            real_norm(real, (1, 2), 1e-5) * gamma + beta, norms.group_norm(x, p, groups=x.shape[3], **options)
        )
        < 0.51
    )
    p = norms.norm_parameters("single_rounding", scale_x, scale_y, gamma, beta, 42 * 4)
    grouped = real_norm(real.reshape(2, 6, 7, 2, 4), (1, 2, 4), 1e-5).reshape(x.shape) * gamma + beta
    assert steps(grouped, norms.group_norm(x, p, groups=2, **options)) < 0.51
    p = norms.norm_parameters("single_rounding", scale_x, scale_y, 8**-0.5, 0.0, 8, 0.0)
    length = np.sqrt((real**2).sum(-1, keepdims=True))
    assert steps(real / np.where(length == 0, 1, length), norms.l2_norm(x, p, **options)) < 0.51
    p = norms.norm_parameters("single_rounding", scale_x, scale_y, 6**-0.5, 0.0, 6, 0.0)
    length = np.sqrt((real**2).sum(1, keepdims=True))
    assert steps(real / np.where(length == 0, 1, length), norms.l2_norm(x, p, axis=1, **options)) < 0.51


def test_long_rows_of_16_bits_stay_exact() -> None:
    x = array(2, (1, 260, 400, 1), np.int16)
    p = norms.norm_parameters("single_rounding", 1e-3, 1e-3, 1.0, 0.0, 104000)
    y = norms.group_norm(x, p, groups=x.shape[3])
    wanted = real_norm(x * 1e-3, (1, 2), 1e-5) / 1e-3
    assert np.abs(y - wanted).max() < 0.51
    expected = oracle_norm.row(x.ravel().tolist(), [0] * x.size, p, True, 104000 * 65535)
    np.testing.assert_array_equal(y.ravel(), expected)


@EXACT
@given(st.sampled_from((np.int8, np.uint8)), seeds, st.integers(1, 60), st.integers(1, 60), st.data())
def test_tflites_l2_norm_matches_the_model(dtype: Any, seed: int, width: int, shrink: int, data: Any) -> None:
    x = (array(seed, (3, width), dtype) // shrink).astype(dtype)
    zero = data.draw(st.one_of(zero_points(dtype), st.just(int(x[0, 0]))))
    y = norms.l2_norm_tflite(x, zero_x=zero)
    for given_row, result in zip(x.tolist(), y.tolist(), strict=True):
        assert result == oracle_norm.l2_tflite([q - zero for q in given_row], dtype is np.int8)


def test_threads_do_not_change_the_result() -> None:
    x = array(1, (300, 100), np.int8)
    p = norms.norm_parameters("single_rounding", 0.1, 0.02, 1.0, 0.0, 100)
    np.testing.assert_array_equal(norms.layer_norm(x, p), norms.layer_norm(x, p, threads=2))


def test_what_cannot_be_normalized_is_refused_in_words() -> None:
    p = norms.norm_parameters("single_rounding", 0.1, 0.02, np.ones(4), 0.0, 8)
    with pytest.raises(ValueError, match="rows of 8 elements, not 6"):
        norms.layer_norm(
            np.zeros((2, 6), np.int8), norms.norm_parameters("single_rounding", 0.1, 0.02, 1.0, 0.0, 8)
        )
    with pytest.raises(ValueError, match="4 entries for rows of 8"):
        norms.layer_norm(np.zeros((2, 8), np.int8), p)
    with pytest.raises(ValueError, match="epsilon is -1"):
        norms.norm_parameters("single_rounding", 0.1, 0.02, 1.0, 0.0, 8, -1)
    with pytest.raises(ValueError, match="too large for the output's scale"):
        norms.norm_parameters("single_rounding", 0.1, 1e-30, 1.0, 1.0, 8)
    with pytest.raises(ValueError, match="too long"):
        many = 200_000
        one = norms.norm_parameters("single_rounding", 0.1, 0.02, 1.0, 0.0, many)
        norms.layer_norm(np.zeros((1, many), np.int16), one)
    with pytest.raises(ValueError, match="3 groups"):
        norms.group_norm(np.zeros((1, 2, 2, 4), np.int8), p, groups=3)
