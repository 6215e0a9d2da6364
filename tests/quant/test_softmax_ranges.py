"""Masked attention in 8 bits: what hides a score must not take the steps of those that show."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import quantize_on_data
from npuc.ir import Graph, tensor_type, top
from npuc.quant import table_ranges
from npuc.target import load_target


def _masked() -> Graph:
    graph = Graph.empty([("scores", tensor_type((1, 2, 8, 8), "f32"))])
    mask = graph.add_weight("mask", np.where(np.tril(np.ones((8, 8))), 0.0, -1e4).astype(np.float32))
    graph.block.add_op(mask)
    total = top.Add.make(graph.block.args[0], mask.output, name="masked")
    weights = top.Softmax.make(total.y, axis=-1, name="weights")
    graph.block.add_ops([total, weights])
    graph.set_outputs([("weights", weights.y)])
    return graph


def _error(graph: Graph) -> float:
    random = np.random.default_rng(0)
    samples = [{"scores": 3 * random.normal(size=(1, 2, 8, 8)).astype(np.float32)} for _ in range(6)]
    made, _ = quantize_on_data(
        graph, open_data(graph, samples), target=load_target("edge-4t"), widen=False, threads=1
    )
    wanted = FloatEngine(graph).run(samples[0])["weights"]
    return float(np.abs(IntegerEngine(made.graph, threads=1).run(samples[0])["weights"] - wanted).max())


def test_scores_keep_their_steps_beside_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _error(_masked()) < 0.04
    monkeypatch.setattr(table_ranges, "SOFTMAX_REACH", 1e9)
    assert _error(_masked()) > 0.2


def test_rows_far_below_the_others_keep_their_scores() -> None:
    # A text recognizer: 84 scores at each of 20 places, and those of one place as large as they please.
    graph = Graph.empty([("scores", tensor_type((1, 4, 8), "f32"))])
    shifted = top.Relu.make(graph.block.args[0], name="kept")
    offsets = graph.add_weight("offsets", np.float32([[0.0], [-15.0], [-40.0], [-80.0]]))
    total = top.Add.make(shifted.y, offsets.output, name="moved")
    weights = top.Softmax.make(total.y, axis=-1, name="weights")
    graph.block.add_ops([shifted, offsets, total, weights])
    graph.set_outputs([("weights", weights.y)])
    random = np.random.default_rng(0)
    samples = [{"scores": 6 * random.random((1, 4, 8)).astype(np.float32)} for _ in range(6)]
    made, _ = quantize_on_data(graph, open_data(graph, samples), target=load_target("edge-4t"), threads=1)
    wanted = FloatEngine(graph).run(samples[0])["weights"]
    found = IntegerEngine(made.graph, threads=1).run(samples[0])["weights"]
    assert np.abs(found - wanted).max() < 0.15
    assert (found.argmax(-1) == wanted.argmax(-1)).all()
