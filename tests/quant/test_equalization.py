"""Equalization: the network computes the same, and what was planted to need it is repaired."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.collection import collect
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine
from npuc.flow import quantize_on_data
from npuc.ir import Graph, result_names
from npuc.ir.top.functions import FUNCTIONS
from npuc.quant import tuning
from npuc.quant.config import QuantizationConfig
from npuc.quant.equalization import apply_factors, find_groups, weight_factors
from npuc.quant.equalization.absorption import absorb_biases
from npuc.quant.equalization.groups import EqualizationGroup
from npuc.quant.equalization.step import Equalize, Smooth, equalized
from npuc.quant.equalization.through_functions import OperandValues, with_corrected_means
from npuc.quant.ladder import QuantizationContext, fallback, run_steps
from npuc.quant.scheme import SCHEMES


def weights(seed: int, *shape: int) -> Array:
    fan = int(np.prod(shape[1:])) or 1
    return (np.random.default_rng(seed).standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32)


def uneven(count: int, seed: int = 9) -> Array:
    return np.exp(np.random.default_rng(seed).uniform(-3, 3, count)).astype(np.float32)


def chain(limit: float = 0.0) -> Graph:
    """Stem, depthwise, pointwise with a skip, and a head; the channels of the hidden tensors differ a lot in size."""
    a, b = uneven(8), uneven(8, 10)
    x = lang.input("x", (1, 3, 12, 12))
    w1, b1 = weights(1, 8, 3, 3, 3), np.abs(weights(2, 8)) + 0.3
    stem = lang.conv(x, w1 * a[:, None, None, None], b1 * a, pads=1, relu=True, relu_limit=limit, name="stem")
    w2 = weights(3, 8, 1, 3, 3) * (b / a)[:, None, None, None]
    depth = lang.conv(stem, w2, weights(4, 8) * b, pads=1, group=8, relu=True, relu_limit=limit, name="depth")
    point = lang.conv(depth, weights(5, 8, 8, 1, 1) / b[None, :, None, None], weights(6, 8), name="point")
    skip = lang.conv(point, weights(7, 8, 8, 3, 3), weights(8, 8), pads=1, name="body") + point
    pooled = lang.reduce(lang.relu(skip), kind="mean", axes=(2, 3), keepdims=False)
    return lang.build({"y": lang.matmul(pooled, weights(11, 8, 5), name="head")})


def samples(count: int = 24, shape: tuple[int, ...] = (1, 3, 12, 12)) -> list[dict[str, Array]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def same(a: Graph, b: Graph, data: list[dict[str, Array]]) -> None:
    one, two = FloatEngine(a), FloatEngine(b)
    for sample in data[:4]:
        for name, array in one.run(sample).items():
            np.testing.assert_allclose(two.run(sample)[name], array, rtol=1e-3, atol=1e-4)


def test_groups_hold_chains_and_sums_and_stop_at_the_ends() -> None:
    graph = chain()
    names = sorted(sorted(result_names(op)[0] for op in group.makers) for group in find_groups(graph))
    assert names == [["body", "point"], ["depth"], ["stem"]]


def test_any_factors_leave_the_network_as_it_was() -> None:
    graph = chain()
    factors: dict[EqualizationGroup, Array] = {
        group: np.exp(np.random.default_rng(i).uniform(-2, 2, group.channels))
        for i, group in enumerate(find_groups(graph))
    }
    assert len(factors) >= 2
    same(graph, apply_factors(graph, factors), samples())


def test_equalized_ranges_are_equal() -> None:
    graph = chain()
    done, _ = equalized(graph, [np.ones(group.channels) for group in find_groups(graph)])
    same(graph, done, samples())
    for group in find_groups(done):
        assert np.abs(np.log(weight_factors(group, done))).max() < 0.05


def test_planted_imbalance_is_repaired() -> None:
    context = QuantizationContext(chain(), samples(), lambda op: SCHEMES["uint8"])
    start = context.start()
    found = run_steps(context, ["equalize"], start=start)
    assert found.sqnr > start.sqnr + 6, (start.sqnr, found.sqnr)
    assert "equalized" in found.notes[0]


def test_the_default_helps_itself_where_one_scale_a_tensor_ruins_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def quantized(scheme: str, count: int = 24) -> tuple[float, list[str]]:
        graph, data = chain(), samples(count)
        source = open_data(graph, [sample["x"] for sample in data])
        done, _ = quantize_on_data(graph, source, QuantizationConfig(scheme=scheme), threads=1)
        context = QuantizationContext(graph, samples(96)[48:], lambda op: SCHEMES[scheme])
        return context.validated_sqnr(done.graph), done.graph.notes

    helped, words = quantized("pow2")
    assert any("quick steps" in word for word in words) and any("equalized" in word for word in words)
    few, silent = quantized("pow2", 6)
    assert few < fallback.GOOD and not any("quick steps" in word for word in silent)
    assert not any("quick steps" in word for word in quantized("int8")[1])
    monkeypatch.setattr(fallback, "GOOD", -100.0)
    alone, silent = quantized("pow2")
    assert not any("quick steps" in word for word in silent)
    assert helped > alone + 6, (alone, helped)


def test_the_default_leaves_alone_what_the_quick_steps_are_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "GOOD", 200.0)
    rng = np.random.default_rng(3)
    x = lang.input("x", (1, 6))
    classes = lang.matmul(x, (weights(1, 6, 4) * uneven(4)).astype(np.float32), name="scores")
    # Classes say nothing of decibels, and without weights no scale of theirs is to blame.
    networks = [lang.build({"y": lang.arg(classes, axis=1)}), lang.build({"y": lang.softmax(x * x, axis=1)})]
    for graph in networks:
        words: list[str] = []
        data = [{"x": 30 * rng.standard_normal((1, 6)).astype(np.float32)} for _ in range(12)]
        quantize_on_data(
            graph, open_data(graph, data), QuantizationConfig(scheme="pow2"), threads=1, warn=words.append
        )
        assert not any("quick steps" in word for word in words), words
    scheme = SCHEMES["pow2"]
    tuned = tuning.tune(networks[0], collect(networks[0], data, threads=1), [], lambda op: scheme)
    assert tuned.sqnr is None


@pytest.mark.parametrize("step", [Equalize, Smooth])
def test_limits_stay_where_they_are(step: Any) -> None:
    graph, data = chain(limit=6.0), samples()
    context = QuantizationContext(graph, data, lambda op: SCHEMES["uint8"])
    start = context.start()
    found = step().propose(start, context)
    assert found is not None
    same(graph, found.source, data)


def test_large_biases_are_absorbed() -> None:
    x = lang.input("x", (1, 3, 10, 10))
    y = lang.conv(x, weights(1, 6, 3, 1, 1) * 0.1, np.full(6, 20.0, np.float32), relu=True, name="high")
    graph = lang.build({"y": lang.conv(y, weights(2, 4, 6, 3, 3), np.zeros(4, np.float32), name="next")})
    data = samples(shape=(1, 3, 10, 10))
    done, count = absorb_biases(graph, data)
    assert count == 1
    same(graph, done, data)
    context = QuantizationContext(graph, data, lambda op: SCHEMES["int8"])
    start = context.start()
    assert context.requantized(done, lambda op: SCHEMES["int8"], ()).sqnr > start.sqnr + 5.5


def test_planted_outlier_channels_are_migrated() -> None:
    """A norm whose gain makes three channels huge, as in transformers: 8 bits for all others are lost without it."""
    gain = np.ones(16, np.float32)
    gain[[1, 7, 11]] = 60.0
    x = lang.input("x", (4, 16))
    y = lang.layer_norm(x, gain, np.zeros(16, np.float32), name="norm")
    w = weights(3, 16, 12)
    w[[1, 7, 11]] /= 60.0
    graph = lang.build({"y": lang.matmul(y, w, np.zeros(12, np.float32), name="product")})
    data = samples(shape=(4, 16))
    context = QuantizationContext(graph, data, lambda op: SCHEMES["int8"])
    start = context.start()
    found = Smooth().propose(start, context)
    assert found is not None and found.sqnr > start.sqnr + 6, (start.sqnr, found and found.sqnr)
    same(graph, found.source, data)


@pytest.mark.parametrize("step", [Equalize, Smooth])
def test_there_may_be_nothing_to_do(step: Any) -> None:
    x = lang.input("x", (1, 3, 8, 8))
    graph = lang.build({"y": lang.conv(x, weights(1, 4, 3, 3, 3))})
    context = QuantizationContext(graph, samples(shape=(1, 3, 8, 8)), lambda op: SCHEMES["int8"])
    assert step().propose(context.start(), context) is None


# Through functions that nearly commute with a factor.


def with_function(reach: float, kind: str = "silu") -> Graph:
    """Channels that differ up to 180 times behind a silu or hard-swish, all of which matter; values are of the size `reach`."""
    sizes = 2.0 ** -(np.arange(16) / 2).astype(np.float32)
    x = lang.input("x", (1, 3, 12, 12))
    first = reach * weights(1, 16, 3, 3, 3) * sizes[:, None, None, None]
    bias = 0.1 * reach * weights(2, 16) * sizes
    function = lang.silu if kind == "silu" else lang.hard_swish
    hidden = function(lang.conv(x, first, bias, pads=1, name="first"), name="function")
    second = weights(3, 8, 16, 3, 3) / sizes[None, :, None, None] / reach
    return lang.build({"y": lang.conv(hidden, second, weights(4, 8), name="second")})


@pytest.mark.parametrize("kind", ["silu", "hard_swish"])
def test_channels_near_zero_are_equalized_through_a_function(kind: str) -> None:
    graph = with_function(0.05, kind)
    assert not find_groups(graph) and len(find_groups(graph, nearly=True)) == 1
    context = QuantizationContext(graph, samples(), lambda op: SCHEMES["pow2"])
    start = context.start()
    found = Equalize().propose(start, context)
    assert found is not None and found.sqnr > start.sqnr + 8, (start.sqnr, found.sqnr)
    assert "1 of them through silu or hard-swish" in found.notes[-1]


def test_a_function_lets_no_channel_further_than_the_error_that_is_allowed() -> None:
    graph = with_function(6.0)
    groups = find_groups(graph, nearly=True)
    values = OperandValues(graph, groups, samples()[:4], 1)
    (op,) = groups[0].functions
    for tolerance in (0.0, 2.0, 32.0):
        low, high = values.bounds(groups[0], tolerance)
        assert np.all(low <= 1) and np.all(high >= 1) and bool((low < high).any()) == (tolerance > 0)
        exact = FloatEngine(graph, fetch=["first", "function"]).run(samples()[0])
        rounding = (exact["function"].max() / 128) ** 2 / 12
        for factor in (low, high):
            s = factor[None, :, None, None]
            scaled = s * FUNCTIONS[type(op)].formula(op, exact["first"] / s, np)
            # Twice the bound, because other values than these were looked at.
            change = np.square(scaled - exact["function"]).mean(axis=(0, 2, 3))
            assert change.max() <= 2 * tolerance * rounding + 1e-12
    assert values.bounds(groups[0], 2.0)[1][0] < values.bounds(groups[0], 2.0)[1][-1]


def test_means_that_a_scaled_function_shifts_come_back_in_the_next_bias() -> None:
    graph = with_function(1.0)
    groups = find_groups(graph, nearly=True)
    values = OperandValues(graph, groups, samples(), 1)
    factor = np.full(16, 4.0)
    scaled = apply_factors(graph, dict(zip(groups, [factor], strict=True)))
    done = with_corrected_means(scaled, graph, groups, [factor], values)

    def shift(network: Graph) -> float:
        exact, got = FloatEngine(graph), FloatEngine(network)
        return float(
            np.abs(np.mean([got.run(s)["y"] - exact.run(s)["y"] for s in samples()], axis=(0, 1, 3, 4))).max()
        )

    assert shift(scaled) > 0.1 and shift(done) < 0.2 * shift(scaled)


def test_per_channel_weights_are_not_equalized_through_functions() -> None:
    graph = with_function(0.05)
    context = QuantizationContext(graph, samples(), lambda op: SCHEMES["int8"])
    assert Equalize().propose(context.start(), context) is None
