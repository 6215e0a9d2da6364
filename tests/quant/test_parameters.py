"""Scales, zero points and integers: the constants of a quantized network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.ir.dtypes import QuantType
from npuc.quant.parameters import (
    activation_type,
    output_limits,
    quantize_affine_weight,
    quantize_array,
    quantize_bias,
    quantize_weight,
)
from npuc.quant.scheme import SCHEMES, Scheme

INTEGER = sorted(name for name, scheme in SCHEMES.items() if scheme.needs_ranges)
SETTINGS = settings(deadline=None, derandomize=True, max_examples=200)
finite = st.floats(-1e6, 1e6, allow_nan=False)


@SETTINGS
@given(finite, finite, st.sampled_from(INTEGER))
def test_zero_is_exact_and_the_range_is_covered_to_one_step(a: float, b: float, name: str) -> None:
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    kind = activation_type(low, high, SCHEMES[name])
    least, most = kind.dtype.limits
    assert least <= kind.zero_point <= most
    for end in (low, high):
        q = np.clip(np.rint(end / kind.scale) + kind.zero_point, least, most)
        assert abs((q - kind.zero_point) * kind.scale - end) <= 1.001 * kind.scale


@SETTINGS
@given(st.floats(1e-6, 1e6))
def test_power_of_two_scales_are_powers_of_two(reach: float) -> None:
    kind = activation_type(-reach, reach, SCHEMES["pow2"])
    assert np.frexp(kind.scale)[0] == 0.5 and kind.zero_point == 0
    assert kind.scale * 128 >= reach * (1 - 1e-6) and kind.scale * 64 <= reach * (1 + 1e-6)


@pytest.mark.parametrize("name", INTEGER)
def test_weights_are_within_half_a_step(name: str) -> None:
    scheme = SCHEMES[name]
    weight = np.random.default_rng(0).normal(size=(6, 4, 3, 3)) * np.logspace(-3, 3, 6).reshape(6, 1, 1, 1)
    affine = scheme.weight_scales == "affine"
    integers, scales, zero = (
        quantize_affine_weight(weight, scheme) if affine else (*quantize_weight(weight, 0, scheme), 0)
    )
    assert scales.shape == ((6,) if scheme.per_channel else (1,))
    spread = scales.reshape(-1, 1, 1, 1)
    error = np.abs((integers.astype(np.float64) - zero) * spread - weight)
    # Without the narrow range the largest positive power-of-two weight saturates by up to a step.
    assert (error <= spread * (0.5001 if scheme.weight_scales != "power_of_two" else 1.0001)).all()
    if scheme.narrow_weights and not affine:
        assert integers.astype(np.int64).min() >= -(2 ** {"i4": 3, "i8": 7, "i16": 15}[scheme.weight] - 1)


def test_a_channel_of_zeros_with_a_bias_keeps_its_bias() -> None:
    weight = np.zeros((2, 3, 1, 1))
    weight[1] = 0.5
    bias = np.array([1000.0, 1.0])
    integers, scales = quantize_weight(weight, 0, Scheme(), bias, 0.01)
    quantized = quantize_bias(bias, 0.01, scales, Scheme())
    np.testing.assert_allclose(quantized * 0.01 * scales, bias, rtol=1e-6)
    assert np.abs(quantized.astype(np.int64)).max() < 2**30 + 2 and not integers[0].any()


def test_a_range_that_is_not_finite_is_refused() -> None:
    for low, high in ((float("nan"), 1.0), (0.0, float("inf"))):
        with pytest.raises(ValueError, match="not finite"):
            activation_type(low, high, Scheme())


def test_a_tensor_that_is_always_zero_has_a_scale() -> None:
    for scheme in (SCHEMES[name] for name in INTEGER):
        assert activation_type(0.0, 0.0, scheme).scale > 0


def test_relu_narrows_the_output_range() -> None:
    kind = QuantType.of("i8", 0.05, -10)
    assert output_limits(kind, False, 0.0) == (-128, 127)
    assert output_limits(kind, True, 0.0) == (-10, 127)
    assert output_limits(kind, True, 6.0) == (-10, 110)


def test_constants_round_away_from_zero_and_saturate() -> None:
    kind = QuantType.of("i8", 0.5, 1)
    assert quantize_array(np.array([0.25, -0.25, 1e9, -1e9]), kind).tolist() == [2, 0, 127, -128]


def test_a_power_of_two_is_finer_where_clipping_costs_less() -> None:
    weight = np.concatenate([np.random.default_rng(0).uniform(-0.5, 0.5, 4000), [1.01]]).reshape(1, -1, 1, 1)
    assert quantize_weight(weight, 0, SCHEMES["pow2"])[1].tolist() == [2.0**-7]  # 1.01 alone would want 2^-6
    assert quantize_weight(weight * 1.9, 0, SCHEMES["pow2"])[1].tolist() == [2.0**-6]


def test_the_full_range_has_one_step_more() -> None:
    full = Scheme(activation_scales="symmetric", full_range=True)
    assert activation_type(-2.0, 1.0, full) == QuantType.of("i8", 2.0 / 128)
    assert activation_type(
        -2.0, 1.0, Scheme(activation="i16", activation_scales="symmetric", full_range=True)
    ) == (QuantType.of("i16", 2.0 / 32768))
    integers, scale = quantize_weight(np.array([[-1.0, 1.0, 0.5]]), 0, full)
    assert scale.tolist() == [1 / 128] and integers.tolist() == [[-128, 127, 64]]
    # A type whose zero point is chosen by the range has all its integers anyway.
    assert activation_type(-2.0, 1.0, Scheme(full_range=True)) == activation_type(-2.0, 1.0, Scheme())


def test_unsigned_from_zero_is_for_tensors_that_are_never_negative() -> None:
    scheme = Scheme(activation="ui8", activation_scales="symmetric", unsigned_from_zero=True)
    assert activation_type(0.0, 2.55, scheme) == QuantType.of("ui8", float(np.float32(0.01)), 0)
    assert activation_type(-1.0, 1.27, scheme) == QuantType.of("i8", float(np.float32(0.01)), 0)
    powers = Scheme(activation="ui8", activation_scales="power_of_two", unsigned_from_zero=True)
    assert activation_type(0.0, 2.0, powers) == QuantType.of("ui8", 2.0**-7, 0)
    middle = Scheme(activation="ui8", activation_scales="symmetric")
    assert activation_type(0.0, 1.27, middle).zero_point == 128
