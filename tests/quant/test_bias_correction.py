"""Bias correction of layers of every shape: what each output channel lost to rounded weights is given back to it."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import quantize_network, quantize_on_data
from npuc.ir import Graph, shape_of
from npuc.quant.bias_correction import correct_biases
from npuc.quant.config import QuantizationConfig


def _product(height: int, transpose: bool) -> Graph:
    """A fully connected layer over the last axis of a tensor of rank 4, as the blocks of ConvNeXt and EdgeNeXt have it."""
    weight = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    bias = np.linspace(-1, 1, 12).astype(np.float32)
    x = lang.input("x", (1, height, 5, 8))
    stored = np.ascontiguousarray(weight.T) if transpose else weight
    return lang.build({"y": lang.matmul(x, stored, bias, transpose_b=transpose, name="fc")})


def _samples(graph: Graph) -> list[dict[str, Array]]:
    random = np.random.default_rng(1)
    return [{"x": random.uniform(0, 2, shape_of(graph.inputs[0].value)).astype(np.float32)} for _ in range(8)]


def _shift(graph: Graph, made: Graph, samples: list[dict[str, Array]]) -> Array:
    """How far the mean of each channel is from float, in absolute terms."""
    exact, ours = FloatEngine(graph, threads=1), IntegerEngine(made, threads=1)
    errors = [ours.run(sample)["y"] - exact.run(sample)["y"] for sample in samples]
    return np.asarray(np.abs(np.mean(errors, axis=(0, 1, 2, 3))))


@pytest.mark.parametrize("height", [3, 12], ids=["other sizes", "as high as there are channels"])
@pytest.mark.parametrize("transpose", [False, True])
def test_channels_of_a_product_of_rank_4_are_its_last_axis(height: int, transpose: bool) -> None:
    graph = _product(height, transpose)
    samples = _samples(graph)
    # Weights of 4 bits and outputs of 16: the shift of each channel's mean is all that there is to see.
    ranges = {"x": (0.0, 2.0), "fc": (-25.0, 25.0)}
    config = QuantizationConfig(scheme="int16", layers={"fc": {"weight": "i4"}})
    done = quantize_network(graph, ranges, config)
    before = _shift(graph, done.graph, samples)
    assert correct_biases(graph, done.graph, samples, 1, done.scheme_of) == ["fc"]
    after = _shift(graph, done.graph, samples)
    assert after.max() < 0.05 * before.max(), (before, after)


def test_such_a_network_is_quantized_on_data() -> None:
    x = lang.input("x", (1, 6, 5, 8))
    weights = [
        np.random.default_rng(i).normal(size=s).astype(np.float32) for i, s in enumerate([(8, 24), (24, 8)])
    ]
    hidden = lang.gelu(lang.matmul(x, weights[0], np.ones(24, np.float32), name="fc1"), name="act")
    graph = lang.build({"y": lang.matmul(hidden, weights[1], np.ones(8, np.float32), name="fc2")})
    samples = _samples(graph)
    made, _ = quantize_on_data(graph, open_data(graph, samples), threads=1)
    assert made.outcome.integer == 3
