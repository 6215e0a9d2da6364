"""Outputs of which calibration saw few values: other data may go further, and must not saturate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import quantize_on_data
from npuc.ir import Graph, top
from npuc.quant.headroom import limits, reach
from support.graphs import build


def _scores(*last: Any) -> Graph:
    """Two scores of a sample, and what is made of them."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(64, 2)).astype(np.float32) / 8

    def network(b: Any, x: Any) -> Any:
        value = b(top.MatMul, x, weight, name="scores")
        for index, kind in enumerate(last):
            value = b(kind, value, name=f"last{index}", **({"axis": 1} if kind is top.Softmax else {}))
        return value

    return build({"x": [1, 64]}, network)


def _samples(seed: int, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(1, 64)).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_held_out_scores_do_not_saturate(seed: int) -> None:
    graph = _scores()
    done, table = quantize_on_data(graph, open_data(graph, _samples(seed, 8)), widen=False, threads=1)
    exact, integer = FloatEngine(graph, threads=1), IntegerEngine(done.graph)
    signal = noise = 0.0
    for sample in _samples(seed + 100, 64):
        (true,), (made,) = exact.run(sample).values(), integer.run(sample).values()
        signal, noise = signal + np.square(true).sum(), noise + np.square(made - true).sum()
    assert 10 * np.log10(signal / noise) >= 18
    seen = np.concatenate([next(iter(exact.run(sample).values())).ravel() for sample in _samples(seed, 8)])
    assert table["scores"].min < seen.min() and table["scores"].max > seen.max()


def test_what_was_seen_often_keeps_its_range() -> None:
    graph = _scores()
    samples = _samples(0, 256)
    _, table = quantize_on_data(graph, open_data(graph, samples), widen=False, threads=1)
    exact = FloatEngine(graph, threads=1)
    seen = np.concatenate([next(iter(exact.run(sample).values())).ravel() for sample in samples])
    assert reach(512) == 1.0
    assert table["scores"].max == pytest.approx(seen.max(), rel=1e-5)


@pytest.mark.parametrize(
    ("last", "ends"), [(top.Sigmoid, (0, 1)), (top.Softmax, (0, 1)), (top.Tanh, (-1, 1))]
)
def test_a_range_stays_within_what_an_op_can_give(last: Any, ends: tuple[float, float]) -> None:
    graph = _scores(last)
    assert limits(graph.outputs[0].value) == ends
    _, table = quantize_on_data(graph, open_data(graph, _samples(0, 8)), widen=False, threads=1)
    entry = table["last0"]
    assert ends[0] <= entry.min <= entry.max <= ends[1]
