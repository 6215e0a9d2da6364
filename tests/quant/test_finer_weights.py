"""8-bit weights for few small layers, where weights of fewer bits leave a network of little use."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.flow import quantize_on_data
from npuc.ir import Graph
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder import QuantizationContext
from npuc.quant.ladder.finer_weights import MOST_WEIGHTS
from npuc.quant.ladder.run import PipelineOptions
from npuc.quant.scheme import SCHEMES


def samples(count: int, seed: int) -> list[Array]:
    return list(np.random.default_rng(seed).standard_normal((count, 1, 2, 8, 8)).astype(np.float32))


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A first layer of two inputs whose weights lie halfway between integers of 4 bits, then a layer with nearly all weights.

    Its outputs are differences of channels that are nearly equal, so that errors of the first layer are all that is left.
    """
    rng = np.random.default_rng(1)
    first = np.repeat(np.array([[1.0, 0.0], [0.93, 0.0]]), 24, axis=0) + 0.02 * rng.standard_normal((48, 2))
    second = np.zeros((40, 48))
    second[np.arange(40), np.arange(40) % 24], second[np.arange(40), 24 + np.arange(40) % 24] = 1.0, -1.0
    x = lang.input("x", (1, 2, 8, 8))
    y = lang.conv(x, first[..., None, None].astype(np.float32), name="first")
    return lang.build({"y": lang.conv(y, second[..., None, None].astype(np.float32), name="second")})


def decibels(graph: Graph, quantized: Graph) -> float:
    others = [{"x": sample} for sample in samples(32, 2)]
    return QuantizationContext(graph, others, lambda op: SCHEMES["int8"]).validated_sqnr(quantized)


@pytest.mark.parametrize("ladder", [None, PipelineOptions(("gptq",))])
def test_a_small_layer_gets_8_bits_where_the_network_would_be_of_little_use(
    graph: Graph, ladder: PipelineOptions | None
) -> None:
    config = QuantizationConfig(scheme="int4-weights")
    done, fewer = (
        quantize_on_data(
            graph, open_data(graph, samples(32, 1)), config, threads=1, ladder=ladder, widen=widen
        )[0]
        for widen in (True, False)
    )
    alone, helped = decibels(graph, fewer.graph), decibels(graph, done.graph)
    assert alone < 10 and helped > alone + 6, (alone, helped)
    sizes = {"i4": 0, "i8": 0}
    for op in done.source.ops:
        scheme = done.scheme_of(op)
        if scheme is not None and len(op.operands) > 1:
            weight = done.source.constant(op.operands[1])
            assert weight is not None
            sizes[scheme.weight] += weight.size
    assert 0 < sizes["i8"] <= MOST_WEIGHTS * sum(sizes.values())
    (said,) = [note for note in done.graph.notes if "8-bit weights for 1 of 2 layers" in note]
    assert "(first)" in said and "cycles on edge-4t" in said and "--no-widen" in said
    assert not any("8-bit weights" in note for note in fewer.graph.notes)
