"""Softmax against the slow model, bit for bit, and against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuc.kernels.softmax import softmax, softmax_parameters
from support.kernel_strategies import EXACT, array, dtypes, ranges, seeds, zero_points
from support.oracles import softmax as oracle_softmax

PAIRS = [
    (np.int8, np.int8, 1 / 256, -128),
    (np.uint8, np.uint8, 1 / 256, 0),
    (np.int8, np.int16, 1 / 65536, -32768),
    (np.int16, np.int16, 1 / 32768, 0),
]


def exact(x: Any, scale: float, beta: float = 1.0) -> Any:
    real = np.exp(beta * scale * (x.astype(np.float64) - x.max(-1, keepdims=True)))
    return real / real.sum(-1, keepdims=True)


@EXACT
@given(
    st.sampled_from(PAIRS), seeds, st.floats(1e-4, 1.0), st.sampled_from((1.0, 0.5, 3.0)), st.integers(1, 40)
)
def test_tflites_algorithms_match_the_model(
    pair: Any, seed: int, scale: float, beta: float, width: int
) -> None:
    source, target, out_scale, zero = pair
    p = softmax_parameters("double_rounding", scale, out_scale, zero, source, target, beta)
    x = array(seed, (3, width), source)
    y = softmax(x, p)
    assert y.dtype == target
    limits = np.iinfo(target)
    for row, result in zip(x.tolist(), y.tolist(), strict=True):
        if source is np.int16:
            tables = [list(table) for table in p.tables]
            assert result == oracle_softmax.tflite16(row, p.multiplier, p.shift, *tables)
        else:
            numbers = p.multiplier, p.left, p.diff_min, int(limits.min), int(limits.max)
            assert result == oracle_softmax.tflite8(row, *numbers)


@EXACT
@given(
    st.sampled_from(("single_rounding", "single_even", "pow2", "float_scale")),
    dtypes,
    dtypes,
    seeds,
    st.floats(1e-5, 2.0),
    st.floats(1e-5, 1.0),
    st.integers(1, 40),
    st.data(),
)
def test_the_clean_algorithm_matches_the_model(
    kind: str, source: Any, target: Any, seed: int, scale: float, out_scale: float, width: int, data: Any
) -> None:
    zero, (lo, hi) = data.draw(zero_points(target)), data.draw(ranges(target))
    p = softmax_parameters(kind, scale, out_scale, zero, source, target)
    x = array(seed, (2, width), source)
    y = softmax(x, p, lo=lo, hi=hi)
    tables = [list(table) for table in p.tables]
    for row, result in zip(x.tolist(), y.tolist(), strict=True):
        even = kind == "single_even"
        assert result == oracle_softmax.clean(row, *tables, p.multiplier, p.shift, even, (zero, lo, hi))


@pytest.mark.parametrize(
    ("distance", "multiplier", "expected"),
    [(20, 1139504417, 25423), (12, 1403506242, 27655), (38, 1163088870, 30877)],
)
def test_the_reciprocal_is_rounded(distance: int, multiplier: int, expected: int) -> None:
    """Rows, found by search, where a reciprocal rounded down would show."""
    p = softmax_parameters("single_rounding", 0.05, 1 / 32768, 0, np.int8, np.int16)
    p = replace(p, multiplier=multiplier)
    assert softmax(np.int8([[0, -distance]]), p)[0, 0] == expected


@pytest.mark.parametrize("kind", ["double_rounding", "single_rounding", "single_even"])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("width", [2, 10, 1000])
def test_softmax_is_within_a_step_of_float(kind: str, pair: Any, width: int) -> None:
    source, target, out_scale, zero = pair
    random = np.random.default_rng(3)
    scale = 1e-3 if source is np.int16 else 0.08
    limits = np.iinfo(target)
    real = random.normal(size=(20, width)) * 2 / scale
    x = np.clip(real + (128 if source is np.uint8 else 0), np.iinfo(source).min, np.iinfo(source).max).astype(
        source
    )
    y = softmax(x, softmax_parameters(kind, scale, out_scale, zero, source, target))
    wanted = np.clip(exact(x, scale) / out_scale + zero, limits.min, limits.max)
    # TFLite's fixed point is coarser than its 16-bit outputs: 15-bit tables, a sum of rounded exponentials.
    tflite = {np.int8: 8.0 if target is np.int16 else 1.0, np.uint8: 1.0, np.int16: 64.0}[source]
    allowed = tflite if kind == "double_rounding" else 0.51
    assert np.abs(y - wanted).max() <= allowed


def test_any_axis_and_any_threads() -> None:
    p = softmax_parameters("single_rounding", 0.05, 1 / 256, -128, np.int8, np.int8)
    x = array(0, (3, 40, 50, 6), np.int8)
    y = softmax(x, p, axis=1)
    np.testing.assert_array_equal(y, np.moveaxis(softmax(np.moveaxis(x, 1, -1), p, threads=2), -1, 1))
    assert y.shape == x.shape


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("double_rounding", 0.1, 1 / 255, -128, np.int8, np.int8),
            "has scale 0.00390625 and zero point -128",
        ),
        (("double_rounding", 0.1, 1 / 256, 0, np.uint8, np.int8), "no softmax from uint8 to int8"),
        (("single_rounding", -1.0, 1 / 256, 0, np.int8, np.int8), "scale of x is -1.0"),
        (("triple", 1.0, 1 / 256, 0, np.int8, np.int8), "no requantization kind 'triple'"),
        (("single_rounding", 1.0, 1 / 256, 200, np.int8, np.int8), "zero point of the output, 200"),
        (("double_rounding", 1e-9, 1 / 256, -128, np.int8, np.int8), "too small"),
    ],
)
def test_what_is_not_defined_is_refused_in_words(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        softmax_parameters(*arguments)


def test_a_wrong_input_is_refused_in_words() -> None:
    p = softmax_parameters("double_rounding", 0.1, 1 / 256, -128, np.int8, np.int8)
    with pytest.raises(ValueError, match="x must be int8, not uint8"):
        softmax(np.zeros((2, 3), np.uint8), p)
    with pytest.raises(ValueError, match="no axis 2"):
        softmax(np.zeros((2, 3), np.int8), p, axis=2)
    with pytest.raises(ValueError, match="at most 4,095"):
        softmax(np.zeros((1, 5000), np.int8), p)
