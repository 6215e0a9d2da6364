"""Candidates between a method's range and all values."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.calib.collection import collect
from npuc.calib.ranges import find_range
from npuc.calib.ranges.choice import steps_to_maximum
from npuc.engine import FloatEngine
from npuc.ir import Graph, tensor_type, top
from npuc.quant.config import QuantizationConfig
from npuc.quant.output_aware import output_aware_entries


def network() -> Graph:
    graph = Graph.empty([("x", tensor_type((1, 64), "f32"))])
    op = top.Relu.make(graph.inputs[0].value, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.results[0])])
    return graph


def test_equal_steps_from_the_narrowest_to_the_widest() -> None:
    graph = network()
    rng = np.random.default_rng(0)
    samples = [{"x": rng.standard_normal((1, 64)).astype(np.float32)} for _ in range(8)]
    assert FloatEngine(graph).run(samples[0])["y"].min() == 0
    statistics = collect(graph, samples)
    steps = steps_to_maximum(statistics["x"], "percentile:ratio=0.9", 5)
    narrow, wide = (find_range(statistics["x"], name) for name in ("percentile:ratio=0.9", "max"))
    assert (steps[0].max, steps[-1].max) == pytest.approx((wide.max, narrow.max))
    widths = np.diff([step.max for step in steps])
    assert np.allclose(widths, widths[0]) and widths[0] < 0
    schemes = QuantizationConfig(scheme="int8-symmetric").resolve(graph)
    entries = output_aware_entries(
        graph, statistics, samples, schemes, propose=lambda one: steps_to_maximum(one, "max", 1)
    )
    assert entries["y"].threshold == pytest.approx(statistics["y"].max)
