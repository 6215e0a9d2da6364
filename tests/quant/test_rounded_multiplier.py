"""The multiplier of TFLite's fully connected layers: sums are rounded as float64 rounds them, ties away from zero."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npuc.arithmetic.tflite import rounded_multiplier


def _half_up(values: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
    return np.array([(int(v) * multiplier + (1 << (shift - 1))) >> shift for v in values])


def _expected(sums: np.ndarray, real: float) -> np.ndarray:
    product = sums.astype(np.float64) * real
    return (np.sign(product) * np.floor(np.abs(product) + 0.5)).astype(np.int64)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    real=st.one_of(
        st.floats(2.0**-13, 4.0),
        st.integers(-12, 1).map(lambda e: 2.0**e),
        st.integers(1, 127).map(lambda odd: (2 * odd + 1) / 4096),
    )
)
@example(0.7)
def test_every_sum_next_to_a_tie_is_rounded_alike(real: float) -> None:
    multiplier, shift = rounded_multiplier(real)
    ties = np.round((np.arange(-255, 256) + 0.5) / real)
    sums = np.unique(np.concatenate([ties - 1, ties, ties + 1])).astype(np.int64)
    expected = _expected(sums, real)
    differ = _half_up(sums, multiplier, shift) != expected
    if differ.any():
        # 5 * 0.7 is 3.5 in float64, 365 * 0.7 is 255.49999999999997: no multiplier rounds the one up and the other down.
        product = np.abs(sums[differ] * real)
        assert (np.abs(product % 1 - 0.5) <= product * 2.0**-31).all()
        for near in range(multiplier - 8, multiplier + 9):
            assert (_half_up(sums, near, shift) != expected).any()


def test_ties_of_sixteen_bits_go_away_from_zero() -> None:
    sums = np.array([-20, -12, -4, -3, 3, 4, 12, 262140, -262140])
    np.testing.assert_array_equal(_half_up(sums, *rounded_multiplier(0.125, 0)), _expected(sums, 0.125))


def test_small_factors_differ_next_to_ties_only() -> None:
    """Where 31 bits are too few for some sum, only that sum is rounded to the other side."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        real = float(2.0 ** rng.uniform(-26, -16))
        multiplier, shift = rounded_multiplier(real)
        sums = rng.integers(-int(255 / real), int(255 / real), 2000)
        np.testing.assert_array_equal(_half_up(sums, multiplier, shift), _expected(sums, real))
