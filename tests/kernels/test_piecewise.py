"""Functions of f32 by piecewise polynomials: the core has the bits of the definition, and results are near to the function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.functions import RealFunction
from npuc.arithmetic.piecewise import (
    DIRECTORY,
    SIGN_WORDS,
    NotSmooth,
    errors,
    evaluate,
    pieces_of,
    piecewise_table,
)
from npuc.arrays import Array
from npuc.errors import NpucError
from npuc.ir import Value, top
from npuc.ir.top.functions import FUNCTIONS
from npuc.kernels.floats import lookup
from support.graphs import build

BOUND = 0.54
"""Steps of f32: half a step of rounding, 1/32 of the polynomial, and what lies between the points it was compared at."""
SMOOTH: dict[str, Any] = {
    "exp": top.Exp, "log": top.Log, "sqrt": top.Sqrt, "rsqrt": top.Rsqrt, "erf": top.Erf, "sigmoid": top.Sigmoid,
    "tanh": top.Tanh, "silu": top.SiLU, "gelu": top.Gelu, "mish": top.Mish, "softplus": top.Softplus, "elu": top.Elu,
    "atan": top.Atan, "softsign": top.Softsign,
}  # fmt: skip


def op_of(kind: Any, **properties: Any) -> tuple[Any, RealFunction]:
    """An op of a function, and its record."""
    made: list[Any] = []

    def layers(b: Any, x: Value) -> Value:
        y: Value = b(kind, x, name="y", **properties)
        made.append(y.owner)
        return y

    build({"x": ((1,), "f32")}, layers)
    return made[0], FUNCTIONS[kind]


def table_of(name: str, **properties: Any) -> tuple[Array, Any]:
    """A table, and the function in f64."""
    op, record = op_of(SMOOTH[name], **properties)
    return piecewise_table(lambda x: record.in_f64(op, x)), lambda x: record.in_f64(op, x)


def arguments(count: int = 40) -> Array:
    """Numbers of every binade of both signs with both of its ends, zeros, infinities and NaNs."""
    rng = np.random.default_rng(0)
    magnitudes = [rng.integers(low, 2 * low, min(count, low)) for low in (1 << np.arange(23)).tolist()]
    for exponent in range(1, 255):
        magnitudes.append((exponent << 23) + np.append(rng.integers(0, 1 << 23, count), [0, (1 << 23) - 1]))
    magnitudes.append(np.array([0, 255 << 23, (255 << 23) + 1, (255 << 23) + (1 << 22)]))
    magnitude = np.concatenate(magnitudes).astype(np.uint32)
    return np.concatenate([magnitude, magnitude | np.uint32(1 << 31)]).view(np.float32)


@pytest.mark.parametrize("name", SMOOTH)
def test_results_are_near_to_the_function_in_every_binade(name: str) -> None:
    table, function = table_of(name)
    x = arguments()
    y = lookup(x, table)
    np.testing.assert_array_equal(y.view(np.uint32), evaluate(table, x).view(np.uint32))
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
    off = errors(y.astype(np.float64), exact)
    assert off.max() <= BOUND, (x[off.argmax()], y[off.argmax()], exact[off.argmax()])
    assert table.nbytes < 80 << 10
    nan = y[np.isnan(y)].view(np.uint32)
    assert (nan == 0x7FC00000).all() and np.isnan(y[np.isnan(x)]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_results_are_near_to_the_function_at_many_more_numbers(name: str) -> None:
    table, function = table_of(name)
    x = arguments(20_000)
    with np.errstate(all="ignore"):
        assert errors(lookup(x, table).astype(np.float64), function(x.astype(np.float64))).max() <= BOUND


def test_a_function_keeps_its_parameters_and_its_zeros() -> None:
    table, _ = table_of("elu", alpha=0.25)
    x = np.float32([-2.0, -0.0, 0.0, 3.5])
    y = lookup(x, table)
    np.testing.assert_allclose(y, [0.25 * np.expm1(-2.0), 0, 0, 3.5], rtol=1e-6)
    assert np.signbit(lookup(np.float32([-0.0, 0.0]), table_of("tanh")[0])).tolist() == [True, False]
    assert lookup(np.float32([1.0]), table_of("log")[0])[0] == 0


def test_small_values_keep_their_digits() -> None:
    """x times erfc: the formula of a table of bf16 gives 0 below -8.3."""
    x = np.float32([-12.0])
    assert lookup(x, table_of("gelu")[0])[0] == pytest.approx(-12 * 1.776482112e-33, rel=1e-6)
    assert lookup(x, table_of("gelu", tanh=True)[0])[0] == pytest.approx(-12 * 4.7e-54, abs=1e-44)


@pytest.mark.parametrize("jump", [np.floor, np.sin, lambda x: np.where(x > 0.3, x, 0.0)])
def test_a_function_that_jumps_or_swings_has_no_table(jump: Any) -> None:
    with pytest.raises(NotSmooth):
        piecewise_table(jump)


def test_a_damaged_directory_is_refused() -> None:
    table, _ = table_of("tanh")
    for place in (0, 24, SIGN_WORDS - 1, 2 * SIGN_WORDS - 1):
        for word in (pieces_of(table) << 4, 15, 0xFFFFFFFF):
            damaged = table.copy()
            damaged[:DIRECTORY].view("<u4")[place] = word
            with pytest.raises((NpucError, ValueError)):
                lookup(np.float32([0.5]), damaged)


def test_threads_and_places_change_nothing() -> None:
    table, _ = table_of("silu")
    x = np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    np.testing.assert_array_equal(lookup(x, table, threads=3), evaluate(table, x))
