"""Sums that round each operand by itself, and multipliers that are shorter than usual, beside plain loops that search them."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import lang
from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import operand_sum_parameters, quantize_multiplier
from npuc.codegen.compile_model import CompileOptions
from npuc.engine import IntegerEngine
from npuc.errors import QuantizationError
from npuc.flow import compile_network, quantize_network
from npuc.ir import npu
from npuc.quant.config import QuantizationConfig
from npuc.runtime.engine import CompiledEngine
from npuc.target import load_target


def nearest(ratio: float, most: int, shifts: range) -> tuple[int, int]:
    """The multiplier and the shift that come nearest to a ratio, by trying all; of equals the smaller shift."""
    exact = float(np.float32(ratio))
    found = [
        (abs(np.floor(exact * 2.0**n + 0.5) / 2.0**n - exact), n)
        for n in shifts
        if np.floor(exact * 2.0**n + 0.5) <= most
    ]
    _, shift = min(found)
    return int(np.floor(exact * 2.0**shift + 0.5)), shift


def half_up(values: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
    return (values * multiplier + ((1 << shift) >> 1)) >> shift


@pytest.mark.parametrize("seed", range(200))
def test_each_operand_is_rounded_once(seed: int) -> None:
    a, b, y = np.exp(np.random.default_rng(seed).uniform(-3, 1.5, 3))
    p = operand_sum_parameters(a, b, y)
    d = np.arange(-255, 256)
    for ratio, multiplier, shift in ((a / y, p.multiplier_a, p.shift_a), (b / y, p.multiplier_b, p.shift_b)):
        expected = half_up(d, *nearest(ratio, 126, range(31)))
        np.testing.assert_array_equal(Kind.DOUBLE_ROUNDING.rescaled(d, multiplier, shift), expected)
    np.testing.assert_array_equal(Kind.DOUBLE_ROUNDING.rescaled(d, p.multiplier, p.shift), d)


def test_an_operand_that_is_too_coarse_is_refused() -> None:
    with pytest.raises(ValueError, match=r"142.*the most is 126"):
        operand_sum_parameters(1.42, 0.01, 0.01)


@pytest.mark.parametrize("seed", range(200))
def test_a_short_multiplier_is_the_nearest_below_the_greatest_shift(seed: int) -> None:
    ratio = float(np.exp(np.random.default_rng(seed).uniform(-12, 2)))
    multiplier, shift = quantize_multiplier(ratio, bits=24, max_shift=30, short=True)
    best, at = nearest(ratio, (1 << 31) - 2, range(31))
    assert multiplier * 2.0**-shift == best * 2.0**-at


def test_a_compiled_sum_has_the_bits_of_both_roundings() -> None:
    x, z = lang.input("x", [1, 4, 8, 8]), lang.input("z", [1, 4, 8, 8])
    graph = lang.build({"y": lang.add(x, z, name="y")})
    target = load_target("bm1684x-like")
    options = {"requant": "single_rounding", "rounded_operands": True}
    config = QuantizationConfig(scheme="int8-symmetric", options=options)
    integers = quantize_network(
        graph, {"x": (-3.0, 3.0), "z": (-0.7, 0.7), "y": (-3.3, 3.3)}, config, target
    ).graph
    assert [op.kind for op in integers.ops if isinstance(op, npu.Add)] == [Kind.DOUBLE_ROUNDING]
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.uniform(-3, 3, (1, 4, 8, 8)).astype(np.float32),
        "z": rng.uniform(-1, 1, (1, 4, 8, 8)).astype(np.float32),
    }
    result = IntegerEngine(integers).run(inputs)["y"]
    total = np.zeros((1, 4, 8, 8), np.int64)
    for value, scale in ((inputs["x"], 3 / 127), (inputs["z"], 0.7 / 127)):
        steps = np.trunc(value / np.float32(scale) + np.copysign(np.float32(0.5), value))
        total += half_up(
            np.clip(steps, -128, 127).astype(np.int64), *nearest(scale * 127 / 3.3, 126, range(31))
        )
    np.testing.assert_array_equal(np.rint(result / np.float32(3.3 / 127)), np.clip(total, -128, 127))
    model = compile_network(integers, target, CompileOptions(), "sum").model
    np.testing.assert_array_equal(CompiledEngine(model).run(inputs)["y"], result)


def test_other_roundings_have_no_such_sums() -> None:
    x = lang.input("x", [1, 4])
    graph = lang.build({"y": lang.add(x, x, name="y")})
    config = QuantizationConfig(options={"requant": "float_scale", "rounded_operands": True})
    with pytest.raises(QuantizationError, match="under single_rounding only"):
        quantize_network(graph, {"x": (-1.0, 1.0), "y": (-2.0, 2.0)}, config)


def test_exact_scales_are_not_rounded() -> None:
    x = lang.input("x", [1, 4])
    graph = lang.build({"y": lang.relu(x, name="y")})
    for exact in (True, False):
        config = QuantizationConfig(scheme="int8-symmetric", options={"exact_scales": exact})
        integers = quantize_network(graph, {"x": (-0.1, 0.1), "y": (0.0, 0.1)}, config).graph
        scale = next(
            op.results[0].type.element_type.scale for op in integers.ops if isinstance(op, npu.Quantize)
        )
        assert (scale == 0.1 / 127) is exact
