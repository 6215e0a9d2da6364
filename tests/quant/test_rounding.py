"""Learned rounding and GPTQ: where rounding each weight to its nearest integer is far from the best for their sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import open_data
from npuc.codegen.compile_model import compile_program
from npuc.engine import IntegerEngine
from npuc.flow import quantize_on_data
from npuc.ir import Graph
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder import Candidate, QuantizationContext
from npuc.quant.layers import integer_layers, replace_integers
from npuc.quant.scheme import SCHEMES
from npuc.sim import Simulator
from npuc.target import load_target

RNG = np.random.default_rng(2)


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def correlated(count: int) -> list[dict[str, Array]]:
    """Inputs whose channels say nearly the same: the errors of their weights add up, unless they are chosen together."""
    rng = np.random.default_rng(4)
    common = rng.standard_normal((count, 1, 6, 6))
    own = rng.standard_normal((count, 16, 6, 6))
    data = (common + 0.1 * own).astype(np.float32)
    return [{"x": sample[None]} for sample in data]


def network() -> Graph:
    x = lang.input("x", (1, 16, 6, 6))
    y = lang.leaky_relu(lang.conv(x, weights(16, 16, 1, 1), weights(16), name="a"), alpha=0.5)
    z = lang.conv(y, weights(16, 16, 3, 3), weights(16), pads=1, name="b") + y
    return lang.build({"y": lang.conv(z, weights(6, 16, 3, 3), weights(6), name="head")})


@pytest.fixture(scope="module")
def context() -> QuantizationContext:
    return QuantizationContext(network(), correlated(48), lambda op: SCHEMES["int4-weights"])


@pytest.fixture(scope="module")
def start(context: QuantizationContext) -> Candidate:
    return context.start()


def both_modes(made: Graph) -> None:
    inputs = random_inputs(made, 1)
    wanted = IntegerEngine(made, raw=True).run(inputs)
    got = Simulator(compile_program(made, load_target("edge-4t")).model).run(inputs)
    for name, array in wanted.items():
        assert np.array_equal(got[name], array)


def test_learned_rounding_repairs_four_bits(context: QuantizationContext, start: Candidate) -> None:
    pytest.importorskip("torch", reason="needs the extra npuc[torch]")
    from npuc.quant.rounding.step import LearnRounding

    found = LearnRounding(iterations=200).propose(start, context)
    assert found is not None
    assert found.sqnr > start.sqnr + 2.5, (start.sqnr, found.sqnr)
    assert found.sqnr == context.validated_sqnr(found.quantized)
    both_modes(found.quantized)
    again = LearnRounding(iterations=200).propose(start, context)
    assert again is not None and again.sqnr == found.sqnr


def test_gptq_repairs_four_bits(context: QuantizationContext, start: Candidate) -> None:
    from npuc.quant.gptq.step import Gptq

    found = Gptq().propose(start, context)
    assert found is not None
    assert found.sqnr > start.sqnr + 2, (start.sqnr, found.sqnr)
    both_modes(found.quantized)


def smooth_images(count: int, channels: int) -> list[dict[str, Array]]:
    """Images whose neighbouring pixels are nearly equal, in channels of their own."""
    rng = np.random.default_rng(7)
    coarse = rng.standard_normal((count, channels, 3, 3)).repeat(4, axis=2).repeat(4, axis=3)
    images = (coarse + 0.05 * rng.standard_normal(coarse.shape)).astype(np.float32)
    return [{"x": image[None]} for image in images]


@pytest.mark.parametrize(("channels", "group"), [(3, 1), (8, 8)])
def test_gptq_rounds_sums_of_few_inputs_together(channels: int, group: int) -> None:
    """A first layer and a depthwise one, whose inputs are few, but neighbours in an image."""
    from npuc.quant.gptq.step import Gptq

    x = lang.input("x", (1, channels, 12, 12))
    y = lang.conv(x, weights(8, channels // group, 3, 3), weights(8), group=group, name="few")
    images = smooth_images(48, channels)
    context = QuantizationContext(lang.build({"y": y}), images, lambda op: SCHEMES["int4-weights"])
    start = context.start()
    found = Gptq().propose(start, context)
    assert found is not None and "1 layer" in found.notes[-1]
    assert found.sqnr > start.sqnr + 2, (start.sqnr, found.sqnr)
    both_modes(found.quantized)


def test_columns_that_matter_most_are_rounded_first() -> None:
    """The last column is a hundred times larger than the others: rounded last, nothing would be left to compensate its error."""
    from npuc.quant.gptq import solve

    rng = np.random.default_rng(3)
    x = (rng.standard_normal((4000, 1)) + 0.3 * rng.standard_normal((4000, 24))) * np.where(
        np.arange(24) == 23, 30.0, 1.0
    )
    weight = rng.standard_normal((40, 24))
    hessian, scale = x.T @ x, np.abs(weight).max(axis=1, keepdims=True) / 7

    def error(integers: Array) -> float:
        return float(np.square(x @ (weight - integers * scale).T).sum())

    ordered = error(solve.rounded_together(weight, scale, hessian, -7, 7))
    plain = error(solve._in_order(weight, scale, hessian, -7, 7))
    assert ordered < plain / 2, (ordered, plain)


def test_weights_of_few_bits_are_rounded_together_by_default() -> None:
    """The default goes beyond rounding to the nearest where few bits leave the outputs far from float, and says so."""
    graph, samples = network(), correlated(32)
    config = QuantizationConfig(scheme="int4-weights")
    done, _ = quantize_on_data(graph, open_data(graph, [s["x"] for s in samples]), config, threads=1)
    plain, _ = quantize_on_data(
        graph, open_data(graph, [s["x"] for s in samples]), config, threads=1, correct=False
    )
    others = QuantizationContext(graph, correlated(80)[32:], lambda op: SCHEMES["int4-weights"])
    assert others.validated_sqnr(done.graph) > others.validated_sqnr(plain.graph) + 3
    said = [note for note in done.graph.notes if "weights of few bits left" in note]
    assert said and any("rounded the weights of" in note for note in done.graph.notes), done.graph.notes


@pytest.mark.parametrize("stated", [False, True])
def test_weights_learn_slower_where_they_learned_nothing_that_holds(
    monkeypatch: pytest.MonkeyPatch, context: QuantizationContext, start: Candidate, stated: bool
) -> None:
    """The first rate gains nothing on the validation samples; a fifth of it, with twice the iterations, does."""
    pytest.importorskip("torch", reason="needs the extra npuc[torch]")
    from npuc.quant.adaquant.options import AdaQuantOptions
    from npuc.quant.adaquant.step import AdaQuant
    from npuc.quant.gptq.step import Gptq

    better = Gptq().propose(start, context)
    assert better is not None
    poor = replace(start, sqnr=15.0)
    tried: list[tuple[float, int]] = []

    def learned(
        self: AdaQuant, best: Candidate, context: object, layers: object, options: AdaQuantOptions
    ) -> Candidate:
        tried.append((options.weight_rate, options.iterations))
        return best if options.weight_rate > 0.005 else better

    monkeypatch.setattr(AdaQuant, "_learned", learned)
    options = AdaQuantOptions(weight_rate=0.01) if stated else AdaQuantOptions()
    found = AdaQuant(options).propose(poor, context)
    assert found is (poor if stated else better)
    assert tried == ([(0.01, 200)] if stated else [(0.01, 200), (pytest.approx(0.002), 400)])
    tried.clear()
    assert AdaQuant().propose(replace(start, sqnr=25.0), context) is not None and len(tried) == 1


def test_integers_stay_inside_their_type_and_their_sums(start: Candidate) -> None:
    made = start.quantized.copy()
    layers = integer_layers(start.source, made, start.scheme_of)
    assert [layer.name for layer in layers] == ["a", "b", "head"]
    assert replace_integers(made, layers[0], np.full(layers[0].integers.shape, 99.0))
    made.verify()
    now = integer_layers(start.source, made, start.scheme_of)[0]
    assert now.integers.astype(int).max() == 7
    assert not replace_integers(made, layers[2], layers[2].integers, np.full(6, 2.0**40))
