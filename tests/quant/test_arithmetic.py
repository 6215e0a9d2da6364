"""Scales to integers: every multiplier is the nearest one, and what cannot be represented is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arithmetic import requantization as arithmetic
from npuc.arithmetic.requantization import add_parameters, quantize_multiplier, scaling

EXACT = settings(deadline=None, derandomize=True, max_examples=200)
widths = st.sampled_from((31, 15, 7))


@EXACT
@given(st.floats(2.0**-30, 2.0**6), widths)
def test_a_multiplier_has_all_its_bits_and_is_the_nearest(real: float, bits: int) -> None:
    multiplier, shift = quantize_multiplier(real, bits)
    assert 2 ** (bits - 1) <= multiplier < 2**bits
    assert (
        abs(Fraction(multiplier, 1) / Fraction(2) ** shift - Fraction(real))
        <= Fraction(1, 2) / Fraction(2) ** shift
    )


def test_a_multiplier_that_rounds_up_to_a_power_of_two() -> None:
    assert quantize_multiplier(1 - 2.0**-40) == (2**30, 30)
    assert quantize_multiplier(0.998, bits=7) == (64, 6)


def test_a_tie_goes_away_from_zero() -> None:
    assert quantize_multiplier((2 * 64 + 1) / 256, bits=7) == (65, 7)


def test_a_multiplier_too_small_for_the_largest_shift_is_zero() -> None:
    assert quantize_multiplier(2.0**-40)[0] == 0
    assert quantize_multiplier(2.0**-31)[0] == 2**30
    assert quantize_multiplier(2.0**-20, bits=15, max_shift=31)[0] == 0


@pytest.mark.parametrize("real", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_multiplier_is_refused(real: float) -> None:
    with pytest.raises(ValueError, match="must be a positive number"):
        quantize_multiplier(real)


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="2\\^7 or more"):
        quantize_multiplier(300.0, bits=7, min_shift=0)
    with pytest.raises(ValueError, match="32 bits does not exist"):
        quantize_multiplier(1.0, bits=32)
    with pytest.raises(ValueError, match="outside the normal range of float32"):
        scaling("float_scale", 1e-44)


def test_pow2_takes_powers_of_two_only() -> None:
    assert scaling("pow2", [0.25, 4.0]).shift.tolist() == [2, -2]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="not a power of two"):
        scaling("pow2", 0.3)
    with pytest.raises(ValueError, match=r"outside -31\.\.62"):
        scaling("pow2", 2.0**40)


def test_double_always_has_31_bits() -> None:
    assert scaling("double_rounding", 0.3, bits=7).multiplier.tolist() == [quantize_multiplier(0.3)[0]]  # type: ignore[union-attr]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no requantization kind 'triple'"):
        scaling("triple", 0.3)
    with pytest.raises(ValueError, match="no requantization kind 'triple'"):
        add_parameters("triple", 1.0, 1.0, 1.0)


@EXACT
@given(st.floats(1e-4, 10), st.floats(1e-4, 10), st.floats(1e-3, 10), widths)
def test_a_sum_of_single_kind_has_one_shift_and_the_nearest_multipliers(
    a: float, b: float, y: float, bits: int
) -> None:
    try:
        p = add_parameters("single_rounding", a, b, y, bits=bits)
    except ValueError:
        assert max(a, b) / y >= 2 ** (bits - 1)
        return
    up = 2.0**p.shift
    assert 2 ** (bits - 1) <= max(p.multiplier_a, p.multiplier_b) <= 2**bits
    assert abs(p.multiplier_a - a / y * up) <= 0.5 and abs(p.multiplier_b - b / y * up) <= 0.5


def test_a_sum_of_double_kind_is_tflites() -> None:
    p = add_parameters("double_rounding", 0.3, 0.1, 0.5)
    assert (p.left, p.multiplier_a, p.shift_a) == (20, 2**30, 31)
    assert (p.multiplier_b, p.shift_b) == quantize_multiplier(0.1 / 0.6)
    assert (p.multiplier, p.shift) == quantize_multiplier(0.6 / (2**20 * 0.5))
    assert add_parameters("double_rounding", 0.3, 0.1, 0.5, width=16).left == 15


def test_a_sum_of_pow2_kind_aligns_to_the_smaller_scale() -> None:
    p = add_parameters("pow2", 2.0**-3, 2.0**-7, 2.0**-4)
    assert (p.shift_a, p.shift_b, p.shift) == (4, 0, 3)
    with pytest.raises(ValueError, match="too far apart"):
        add_parameters("pow2", 1.0, 2.0**-40, 1.0)
    with pytest.raises(ValueError, match="not a power of two"):
        add_parameters("pow2", 1.0, 0.3, 1.0)


def test_a_product_of_double_kind_multiplies_scales_in_float32() -> None:
    a, b, y = (float(np.float32(v)) for v in (0.0123, 0.0456, 0.0007))
    single = float(np.float32(a) * np.float32(b) / np.float32(y))
    assert single != a * b / y
    p = arithmetic.mul_parameters("double_rounding", a, b, y)
    assert (p.multiplier[0], p.shift[0]) == quantize_multiplier(single)  # type: ignore[index]


def test_conv_has_a_multiplier_a_channel() -> None:
    p = arithmetic.conv_parameters("single_rounding", 0.5, [0.1, 0.2, 0.3], 0.25, bits=15)
    pairs = list(zip(p.multiplier.tolist(), p.shift.tolist(), strict=True))  # type: ignore[union-attr]
    assert pairs == [quantize_multiplier(0.5 * w / 0.25, 15) for w in (0.1, 0.2, 0.3)]


def test_averages() -> None:
    with pytest.raises(ValueError, match="needs equal scales"):
        arithmetic.pool_parameters("double_rounding", 0.5, 0.25, 4)
    with pytest.raises(ValueError, match="one element or more"):
        arithmetic.pool_parameters("single_rounding", 0.5, 0.25, [0])
    p = arithmetic.pool_parameters("pow2", 0.5, 0.25, [1, 2, 3])
    assert p.kind == "single_rounding"
    values = p.multiplier / 2.0**p.shift  # type: ignore[operator]
    np.testing.assert_allclose(values, [2, 1, 2 / 3], rtol=2.0**-7)
    for kind in ("double_rounding", "single_rounding", "float_scale"):
        m = arithmetic.mean_parameters(kind, 0.5, 0.25, 7)
        real = m.scale[0] if kind == "float_scale" else m.multiplier[0] / 2.0 ** m.shift[0]  # type: ignore[index]
        assert abs(float(real) - 2 / 7) < 1e-7


def test_rounding_away_does_not_round_twice() -> None:
    values = [0.49999999999999994, -0.49999999999999994, 0.5, -0.5, 2.5, -2.5, 4503599627370497.0]
    assert arithmetic.round_away(values).tolist() == [0.0, 0.0, 1.0, -1.0, 3.0, -3.0, 4503599627370497.0]
