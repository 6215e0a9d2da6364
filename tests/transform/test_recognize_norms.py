"""Normalizations in the spellings of exporters become one op; what is only near one does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.ir import Value
from support.graphs import assert_same_function
from support.passes import Arithmetic, ops_of, recognize, spelled

PASSES = ("recognize-norms", "eliminate-common-subexpressions,canonical-arithmetic,recognize-norms")
EPS = 1e-3

Spelling = Callable[[Arithmetic, Value], Value]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)


def torch_norm(m: Arithmetic, x: Value, *axes: int) -> Value:
    """(x - mean) / sqrt(mean((x - mean)^2) + eps), as torch wrote it before opset 17."""
    d = m.sub(x, m.mean(x, *axes))
    return m.div(d, m.sqrt(m.add(m.mean(m.pow(d, 2.0), *axes), EPS)))


def rsqrt_norm(m: Arithmetic, x: Value, *axes: int) -> Value:
    d = m.sub(x, m.mean(x, *axes))
    return m.mul(m.rsqrt(m.add(EPS, m.mean(m.mul(d, d), *axes))), d)


def two_differences(m: Arithmetic, x: Value, *axes: int) -> Value:
    mean = m.mean(x, *axes)
    square = m.pow(m.sub(x, mean), 2.0)
    return m.div(m.sub(x, mean), m.sqrt(m.add(m.mean(square, *axes), EPS)))


def mean_of_squares(m: Arithmetic, x: Value, *axes: int) -> Value:
    """The function body of ONNX's LayerNormalization."""
    mean = m.mean(x, *axes)
    variance = m.sub(m.mean(m.mul(x, x), *axes), m.mul(mean, mean))
    return m.div(m.sub(x, mean), m.sqrt(m.add(variance, EPS)))


def moments(m: Arithmetic, x: Value, *axes: int, scale: Any = None, bias: Any = None) -> Value:
    """TensorFlow: x * inverse + (bias - mean * inverse), with inverse = rsqrt(variance + eps) * scale."""
    mean = m.mean(x, *axes)
    d = m.sub(x, mean)
    inverse = m.rsqrt(m.add(m.mean(m.mul(d, d), *axes), EPS))
    if scale is not None:
        inverse = m.mul(inverse, scale)
    shift = m.mul(mean, inverse)
    return m.sub(m.mul(x, inverse), shift) if bias is None else m.add(m.mul(x, inverse), m.sub(bias, shift))


CORES = {
    "torch": torch_norm,
    "rsqrt": rsqrt_norm,
    "two differences": two_differences,
    "mean of squares": mean_of_squares,
    "moments": moments,
}
LAST = numbers(8)
PLANE = numbers(6, 8)
CHANNELS = numbers(4, 1, 1)


def check(before: Any, passes: str, *names: str, **properties: Any) -> None:
    after = recognize(before, passes)
    assert ops_of(after) == [*names]
    found = next(op for op in after.ops if op.name == f"top.{names[0]}")
    for key, value in properties.items():
        if key in ("scale", "bias"):
            parameter = after.constant(getattr(found, key))
            assert parameter is not None
            np.testing.assert_array_equal(parameter, value)
        else:
            assert getattr(found, key) == pytest.approx(value)
    assert_same_function(before, after)


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("core", CORES)
def test_layer_norm_over_the_last_axis(core: str, passes: str) -> None:
    check(spelled(lambda m, x: CORES[core](m, x, -1), (2, 6, 8)), passes, "layer_norm", axis=-1, epsilon=EPS)


@pytest.mark.parametrize("core", CORES)
def test_layer_norm_over_two_axes_with_scale_and_bias(core: str) -> None:
    def spelling(m: Arithmetic, x: Value) -> Value:
        return m.add(m.mul(CORES[core](m, x, -2, -1), PLANE), numbers(6, 8, seed=1))

    check(
        spelled(spelling, (2, 6, 8)),
        PASSES[0],
        "layer_norm",
        axis=-2,
        scale=PLANE,
        bias=numbers(6, 8, seed=1),
    )


@pytest.mark.parametrize("core", CORES)
def test_instance_norm_with_scale_and_bias(core: str) -> None:
    def spelling(m: Arithmetic, x: Value) -> Value:
        return m.add(m.mul(CHANNELS, CORES[core](m, x, 2, 3)), CHANNELS[None])

    check(
        spelled(spelling, (2, 4, 6, 8)),
        PASSES[0],
        "instance_norm",
        scale=CHANNELS.ravel(),
        bias=CHANNELS.ravel(),
    )


def test_instance_norm_of_sequences_is_known_by_its_scale() -> None:
    before = spelled(lambda m, x: m.mul(torch_norm(m, x, 2), CHANNELS[:, :, 0]), (2, 4, 8))
    check(before, PASSES[0], "instance_norm", scale=CHANNELS.ravel())


def test_instance_norm_after_means_became_pools() -> None:
    before = spelled(lambda m, x: torch_norm(m, x, 2, 3), (2, 4, 6, 8))
    check(before, "canonical-pool,recognize-norms", "instance_norm")


@pytest.mark.parametrize("scale, bias", [(None, LAST), (LAST, None), (LAST, 2 * LAST)])
def test_moments_with_parameters_inside(scale: Any, bias: Any) -> None:
    found = {key: value for key, value in (("scale", scale), ("bias", bias)) if value is not None}
    before = spelled(lambda m, x: moments(m, x, -1, scale=scale, bias=bias), (2, 6, 8))
    check(before, PASSES[0], "layer_norm", **found)


def test_a_scale_of_leading_ones_is_reshaped() -> None:
    before = spelled(lambda m, x: m.mul(torch_norm(m, x, -1), LAST.reshape(1, 1, 8)), (2, 6, 8))
    check(before, PASSES[0], "layer_norm", scale=LAST)


def test_a_bias_without_a_scale() -> None:
    check(
        spelled(lambda m, x: m.add(torch_norm(m, x, -1), LAST), (2, 6, 8)), PASSES[0], "layer_norm", bias=LAST
    )


def test_parameters_that_do_not_fit_stay_outside() -> None:
    before = spelled(lambda m, x: m.mul(torch_norm(m, x, -1), PLANE), (2, 6, 8))
    check(before, PASSES[0], "layer_norm", "mul")


@pytest.mark.parametrize("passes", PASSES)
def test_rms_norm(passes: str) -> None:
    def spelling(m: Arithmetic, x: Value) -> Value:
        return m.mul(LAST, m.mul(x, m.rsqrt(m.add(m.mean(m.pow(x, 2.0), -1), EPS))))

    check(spelled(spelling, (2, 6, 8)), passes, "rms_norm", axis=-1, epsilon=EPS, scale=LAST)


def test_rms_norm_by_division() -> None:
    before = spelled(lambda m, x: m.div(x, m.sqrt(m.add(m.mean(m.mul(x, x), -1), EPS))), (2, 6, 8))
    check(before, PASSES[0], "rms_norm")


def test_layer_norm_of_rows_folded_by_reshapes() -> None:
    def spelling(m: Arithmetic, x: Value) -> Value:
        rows = m.mul(torch_norm(m, m.reshape(x, shape=(2, 48)), -1), PLANE.ravel())
        return m.reshape(rows, shape=(2, 6, 8))

    check(spelled(spelling, (2, 6, 8)), PASSES[0], "layer_norm", axis=-2, scale=PLANE)


def group_norm(m: Arithmetic, x: Value) -> Value:
    """What torch exports: an instance norm of the groups, then scale and bias a channel."""
    folded = m.reshape(x, shape=(2, 2, 96))
    normal = m.instance_norm(folded, np.ones(2, "f"), np.zeros(2, "f"), epsilon=EPS)
    return m.add(m.mul(m.reshape(normal, shape=(2, 4, 6, 8)), CHANNELS), CHANNELS)


def group_norm_in_primitives(m: Arithmetic, x: Value) -> Value:
    folded = m.reshape(x, shape=(2, 2, 2, 6, 8))
    return m.mul(m.reshape(torch_norm(m, folded, 2, 3, 4), shape=(2, 4, 6, 8)), CHANNELS)


@pytest.mark.parametrize("spelling", [group_norm, group_norm_in_primitives])
def test_group_norm(spelling: Spelling) -> None:
    before = spelled(spelling, (2, 4, 6, 8))
    check(before, PASSES[0], "group_norm", groups=2, epsilon=EPS, scale=CHANNELS.ravel())


def test_group_norm_with_one_scale_a_group() -> None:
    def spelling(m: Arithmetic, x: Value) -> Value:
        folded = m.instance_norm(m.reshape(x, shape=(2, 2, 96)), np.array([2.0, 3.0]), np.array([4.0, 5.0]))
        return m.reshape(folded, shape=(2, 4, 6, 8))

    check(spelled(spelling, (2, 4, 6, 8)), PASSES[0], "group_norm", scale=[2, 2, 3, 3], bias=[4, 4, 5, 5])


L2: dict[str, tuple[float, Spelling]] = {
    "torch": (
        1e-2,
        lambda m, x: m.div(
            x, m.expand(m.clip(m.mean(x, 1, kind="l2"), min=1e-2, max=np.inf), shape=(2, 6, 8))
        ),
    ),
    "max": (1e-2, lambda m, x: m.div(x, m.max(m.sqrt(m.mean(m.mul(x, x), 1, kind="sum")), 1e-2))),
    "tensorflow": (1e-2, lambda m, x: m.mul(x, m.rsqrt(m.max(m.mean(m.mul(x, x), 1, kind="sum"), 1e-4)))),
    "sum_square": (1e-2, lambda m, x: m.mul(x, m.rsqrt(m.max(m.mean(x, 1, kind="sum_square"), 1e-4)))),
    "no bound": (0.0, lambda m, x: m.div(x, m.mean(x, 1, kind="l2"))),
    "no bound, in primitives": (0.0, lambda m, x: m.div(x, m.sqrt(m.mean(m.pow(x, 2.0), 1, kind="sum")))),
}


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("name", L2)
def test_l2_norm(name: str, passes: str) -> None:
    epsilon, spelling = L2[name]
    check(spelled(spelling, (2, 6, 8)), passes, "l2_norm", axis=1, epsilon=epsilon)


def squares(m: Arithmetic, x: Value, *axes: int, kind: str = "mean") -> Value:
    return m.mean(m.mul(x, x), *axes, kind=kind)


NEAR_MISSES: dict[str, Spelling] = {
    "not the last axes": lambda m, x: torch_norm(m, x, 1),
    "different axes": lambda m, x: m.div(
        d := m.sub(x, m.mean(x, 2)), m.sqrt(m.add(m.mean(m.mul(d, d), 1), EPS))
    ),
    "sum for mean": lambda m, x: m.div(x, m.sqrt(m.add(squares(m, x, -1, kind="sum"), EPS))),
    "deviation of another": lambda m, x: m.div(m.tanh(x), m.sqrt(m.add(squares(m, x, -1), EPS))),
    "cube": lambda m, x: m.div(x, m.sqrt(m.add(m.mean(m.pow(x, 3.0), -1), EPS))),
    "no root": lambda m, x: m.div(x, m.add(squares(m, x, -1), EPS)),
    "l2 plus epsilon": lambda m, x: m.div(x, m.add(m.mean(x, 1, kind="l2"), EPS)),
    "l2 of two axes": lambda m, x: m.div(x, m.max(m.mean(x, 1, 2, kind="l2"), EPS)),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_only_near_stays(name: str) -> None:
    before = spelled(NEAR_MISSES[name], (2, 8, 8))
    assert ops_of(recognize(before, PASSES[0])) == ops_of(before)


def test_statistics_that_are_used_elsewhere_stay() -> None:
    def spelling(m: Arithmetic, x: Value) -> list[Value]:
        mean = m.mean(x, -1)
        d = m.sub(x, mean)
        return [m.div(d, m.sqrt(m.add(m.mean(m.mul(d, d), -1), EPS))), mean]

    before = spelled(spelling, (2, 6, 8))
    assert "layer_norm" not in ops_of(recognize(before, PASSES[0]))


def test_a_norm_that_is_an_output_absorbs_nothing() -> None:
    before = spelled(lambda m, x: [n := torch_norm(m, x, -1), m.mul(n, LAST)], (2, 6, 8))
    assert ops_of(recognize(before, PASSES[0])) == ["layer_norm", "mul"]


def test_group_norm_whose_parameters_stand_before_the_last_reshape() -> None:
    """The function body of ONNX's GroupNormalization."""

    def spelling(m: Arithmetic, x: Value) -> Value:
        normal = m.reshape(torch_norm(m, m.reshape(x, shape=(2, 2, 96)), 2), shape=(2, 4, 48))
        scaled = m.add(m.mul(normal, CHANNELS.reshape(1, 4, 1)), CHANNELS.reshape(1, 4, 1))
        return m.reshape(scaled, shape=(2, 4, 6, 8))

    before = spelled(spelling, (2, 4, 6, 8))
    check(before, PASSES[0], "group_norm", groups=2, scale=CHANNELS.ravel(), bias=CHANNELS.ravel())
