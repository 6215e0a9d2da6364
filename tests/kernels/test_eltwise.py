"""Elementwise kernels against the slow model, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuc.arithmetic.requantization import AddScaling, add_parameters
from npuc.kernels import eltwise
from npuc.kernels.requant import Requant
from npuc.kernels.tape import contiguous
from support.kernel_strategies import (
    EXACT,
    KINDS,
    array,
    dtypes,
    kinds,
    multipliers,
    output_stages,
    ranges,
    seeds,
    stage_arguments,
    zero_points,
)
from support.oracles import eltwise as oracle_eltwise
from support.oracles import integers as oracle

SHAPES = [
    ((3, 5), (3, 5)),
    ((2, 3, 4, 7), (7,)),
    ((2, 3, 4, 7), (2, 1, 1, 7)),
    ((2, 3, 4, 7), ()),
    ((), (2, 3)),
    ((4, 1, 3), (1, 5, 1)),
    ((1, 6, 6, 1), (1, 6, 6, 5)),
    ((2, 600), (2, 600)),
    ((3, 0, 2), (2,)),
    ((1,), (1,)),
]
shapes = st.sampled_from(SHAPES)


@st.composite
def additions(draw: Any) -> tuple[AddScaling, Any]:
    kind = draw(kinds)
    dtype = draw(dtypes)
    width = 16 if dtype is np.int16 else 8
    a, b, y = (draw(multipliers("pow2" if kind == "pow2" else "single_rounding")) for _ in range(3))
    bits = draw(st.sampled_from((31, 15, 7)))
    try:
        return add_parameters(kind, a, b, y, bits=bits, width=width), dtype
    except ValueError:
        return add_parameters(kind, a, b, max(a, b), bits=bits, width=width), dtype


@EXACT
@given(additions(), shapes, seeds, st.booleans(), st.data())
def test_add_and_sub_match_the_model(
    chosen: tuple[AddScaling, Any], pair: Any, seed: int, subtract: bool, data: st.DataObject
) -> None:
    parameters, dtype = chosen
    zero_a, zero_b = data.draw(zero_points(dtype)), data.draw(zero_points(dtype))
    zero, (lo, hi) = data.draw(zero_points(dtype)), data.draw(ranges(dtype))
    a, b = array(seed, pair[0], dtype), array(seed + 1, pair[1], dtype)
    y = eltwise.add(
        a, b, parameters, zero_a=zero_a, zero_b=zero_b, zero_point=zero, lo=lo, hi=hi, subtract=subtract
    )
    assert y.dtype == dtype
    expected = oracle_eltwise.add(parameters, a, b, zero_a, zero_b, zero, lo, hi, subtract)
    np.testing.assert_array_equal(y, expected)


PAIRS = np.meshgrid(np.arange(-128, 128, dtype=np.int8), np.arange(-128, 128, dtype=np.int8))


@pytest.mark.parametrize("subtract", [False, True])
@pytest.mark.parametrize("kind", ["single_rounding", "single_even"])
@pytest.mark.parametrize("shift", [1, 2, 8, 16, 17, 18, 25, 30, 31, 33, 38, 40])
def test_all_pairs_of_bytes_add_with_all_ties(kind: str, shift: int, subtract: bool) -> None:
    """Multipliers of few bits set make ties common, also in the low half of a sum that is computed in two."""
    half = 1 << (shift - 1)
    small = (half, 3 * half, 5 * half // 4 + 1, half - 1, max(half >> 4, 1), 1)
    for m_a in (m for m in small if 0 < m < 2**31):
        for m_b in (m for m in small if 0 < m < 2**31):
            p = AddScaling(kind, multiplier_a=m_a, multiplier_b=m_b, shift=shift)
            y = eltwise.add(*PAIRS, p, dtype=np.int16, subtract=subtract)
            a, b = (v.astype(np.int64) for v in PAIRS)
            total = a * m_a - b * m_b if subtract else a * m_a + b * m_b
            whole = (total + half) >> shift
            if kind == "single_even":
                whole -= ((total + half) % (2 * half) == 0) & (whole % 2 == 1)
            np.testing.assert_array_equal(y, np.clip(whole, -32768, 32767))


@pytest.mark.parametrize("kind", ["single_rounding", "single_even"])
def test_16_bit_sums_with_ties(kind: str) -> None:
    a, b = array(1, (2000,), np.int16), array(2, (2000,), np.int16)
    a[::2] //= 64  # and sums that do not saturate
    b[::2] //= 64
    for shift in (12, 16, 20, 31, 33, 40):
        half = 1 << (shift - 1)
        # Odd multiples of half a step make ties; 63 of them need 64 bits with a shift below 17.
        for m_a, m_b in ((half, half >> 1), (half >> 3, half >> 9), (half - 1, 1), (63 * half, half)):
            p = AddScaling(kind, multiplier_a=min(m_a, 2**30), multiplier_b=min(m_b, 2**30), shift=shift)
            expected = oracle_eltwise.add(p, a, b, 0, 0, 0, -32768, 32767, False)
            np.testing.assert_array_equal(eltwise.add(a, b, p), expected)


@pytest.mark.parametrize("subtract", [False, True])
def test_every_bit_of_a_double_sum_is_right(subtract: bool) -> None:
    """A last multiplier of one shows the low bits of the scaled inputs."""
    a, b = array(1, (400,), np.int8), array(2, (400,), np.int8)
    for left, m_a, m_b in ((5, 2**30, 1431655765), (7, 1717986918, 2**31 - 1), (6, 1, 1073741825)):
        p = AddScaling("double_rounding", left, m_a, 31, m_b, 32, 2**30, 30)
        y = eltwise.add(a, b, p, zero_a=3, zero_b=-4, dtype=np.int16, subtract=subtract)
        expected = oracle_eltwise.add(p, a, b, 3, -4, 0, -32768, 32767, subtract)
        np.testing.assert_array_equal(y, expected)


@EXACT
@given(dtypes, shapes, seeds, st.data())
def test_mul_matches_the_model(dtype: Any, pair: Any, seed: int, data: st.DataObject) -> None:
    rq = data.draw(output_stages(dtype))
    symmetric = dtype is np.int16
    zero_a, zero_b = data.draw(zero_points(dtype, symmetric)), data.draw(zero_points(dtype, symmetric))
    a, b = array(seed, pair[0], dtype), array(seed + 1, pair[1], dtype)
    y = eltwise.mul(a, b, rq, zero_a=zero_a, zero_b=zero_b)
    acc = (a.astype(np.int64) - zero_a) * (b.astype(np.int64) - zero_b)
    expected = oracle.requantize_array(acc, rq.kind, *stage_arguments(rq), rq.zero_point, rq.lo, rq.hi)
    np.testing.assert_array_equal(y, expected)


@EXACT
@given(st.sampled_from((np.int8, np.uint8, np.int16, np.int32)), dtypes, seeds, st.data())
def test_requant_matches_the_model(source: Any, dtype: Any, seed: int, data: st.DataObject) -> None:
    rq = data.draw(output_stages(dtype))
    zero = data.draw(zero_points(source, source is np.int32))
    x = array(seed, (700,), source)
    acc = x.astype(np.int64) - zero
    y = eltwise.requant(x, rq, zero_point=zero, dtype=dtype)
    expected = oracle.requantize_array(acc, rq.kind, *stage_arguments(rq), rq.zero_point, rq.lo, rq.hi, 0)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shift", [0, 1, 2, 16, 17, 30, 31, 32, 33, 46, 47, 62])
@pytest.mark.parametrize("multiplier", [0, 1, 3, 127, 2**15 - 1, 2**15, 2**30, 2**31 - 1])
def test_every_shift_and_width_of_a_multiplier(kind: str, shift: int, multiplier: int) -> None:
    x = np.concatenate([np.arange(-300, 300), np.arange(-32768, 32768, 77)]).astype(np.int16)
    scale = np.float32(max(multiplier, 1) * 2.0**-shift)
    rq = Requant(
        kind, np.int32([multiplier]), np.int32([shift]), np.float32([scale]), -5, lo=-32768, hi=32767
    )
    m = scale if kind == "float_scale" else multiplier
    expected = oracle.requantize_array(x.astype(np.int64), kind, m, shift, -5, -32768, 32767, 0)
    np.testing.assert_array_equal(eltwise.requant(x, rq), expected)


@EXACT
@given(dtypes, shapes, seeds, st.booleans(), st.data())
def test_min_and_max_are_numpys(dtype: Any, pair: Any, seed: int, larger: bool, data: st.DataObject) -> None:
    a, b = array(seed, pair[0], dtype), array(seed + 1, pair[1], dtype)
    lo, hi = data.draw(ranges(dtype))
    y = (eltwise.maximum if larger else eltwise.minimum)(a, b, lo=lo, hi=hi)
    np.testing.assert_array_equal(y, np.clip((np.maximum if larger else np.minimum)(a, b), lo, hi))


SPECIAL = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1e38,
    -1e38,
    1e-45,
    0.49999997,
    -0.49999997,
    0.5,
    1.5,
    2.5,
    -2.5,
]


@EXACT
@given(dtypes, seeds, st.floats(2.0**-20, 2.0**20, width=32), st.booleans(), st.data())
def test_quantize_matches_the_model(
    dtype: Any, seed: int, scale: float, even: bool, data: st.DataObject
) -> None:
    random = np.random.default_rng(seed)
    zero, (lo, hi) = data.draw(zero_points(dtype)), data.draw(ranges(dtype))
    wanted = random.integers(-600, 600, 500) / data.draw(st.sampled_from((1, 2, 7)))
    with np.errstate(over="ignore"):
        x = np.concatenate([wanted * scale, np.float32(SPECIAL) * np.float32(scale)]).astype(np.float32)
    rounding = "half_even" if even else "half_away"
    y = eltwise.quantize(x, scale, zero, dtype, rounding=rounding, lo=lo, hi=hi)
    np.testing.assert_array_equal(y, oracle_eltwise.quantize(x, scale, zero, lo, hi, even))


@EXACT
@given(
    st.sampled_from((np.int8, np.uint8, np.int16, np.int32)), seeds, st.floats(2.0**-20, 2.0**20, width=32)
)
def test_dequantize_is_one_float_product(dtype: Any, seed: int, scale: float) -> None:
    x = array(seed, (3, 300), dtype)
    zero = 0 if dtype is np.int32 else 7
    expected = np.float32(scale) * (x.astype(np.int64) - zero).astype(np.float32)
    np.testing.assert_array_equal(eltwise.dequantize(x, scale, zero), expected)


def test_strided_inputs_are_read_where_they_lie() -> None:
    base = array(1, (6, 8, 10), np.int8)
    a, b = base[::2, :, ::-3], base.transpose(2, 1, 0)[:1, :1, :1]
    np.testing.assert_array_equal(eltwise.maximum(a, b), np.maximum(a, b))


def test_all_16_bit_values_with_a_zero_point_multiply_exactly() -> None:
    rq = Requant("single_rounding", np.int32([2**30]), np.int32([46]), None, 0, lo=-32768, hi=32767)
    a = np.int16([-32768, -32768, 32767])
    y = eltwise.mul(a, a, rq, zero_a=32767, zero_b=32767)
    np.testing.assert_array_equal(y, np.clip(np.floor((a - 32767.0) ** 2 / 65536 + 0.5), -32768, 32767))


def test_threads_do_not_change_the_result() -> None:
    a, b = array(1, (300, 1000), np.int8), array(2, (1000,), np.int8)
    p = add_parameters("single_rounding", 0.3, 0.2, 0.4)
    np.testing.assert_array_equal(eltwise.add(a, b, p), eltwise.add(a, b, p, threads=2))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"b": np.zeros((3,), np.int8)}, "do not broadcast"),
        ({"b": np.zeros((2,), np.int32)}, "b must be int8 or uint8 or int16, not int32"),
        ({"zero_a": 200}, "zero point of a, 200, is no int8"),
        ({"lo": 5, "hi": 4}, "output range 5..4"),
        ({"dtype": np.int32}, "output must be"),
    ],
)
def test_what_cannot_be_added_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {
        "a": np.zeros((2, 2), np.int8),
        "b": np.zeros((2, 2), np.int8),
        "parameters": add_parameters("single_rounding", 1.0, 1.0, 1.0),
    }
    with pytest.raises(ValueError, match=words):
        eltwise.add(**arguments | change)


def test_an_array_that_begins_between_two_elements_is_copied() -> None:
    """The core is compiled for numbers at multiples of their size."""
    x = np.zeros(4 * 9 + 1, np.uint8)[1:].view(np.float32)
    x[:] = np.arange(9)
    assert not x.flags.aligned and contiguous(x).flags.aligned
    assert eltwise.quantize(x, 0.5, 0, np.int8).tolist() == [2 * i for i in range(9)]
