"""Ranges by the outputs: large values that nothing later cares about do not cost the others their steps."""

from __future__ import annotations

import numpy as np

from npuc import lang
from npuc.ir import Graph
from npuc.quant.ladder import QuantizationContext
from npuc.quant.output_ranges.step import OutputRanges
from npuc.quant.scheme import SCHEMES


def network(idle: bool) -> Graph:
    """Channel 0 of the hidden tensor is 60 times as large as the others; what reads it ignores it, or does not."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((8, 4, 1, 1)).astype(np.float32)
    first[0] *= 60
    second = rng.standard_normal((4, 8, 3, 3)).astype(np.float32)
    second[:, 0] *= 1e-5 if idle else 1.0
    x = lang.input("x", (1, 4, 8, 8))
    hidden = lang.conv(x, first, np.zeros(8, np.float32), name="hidden")
    return lang.build({"y": lang.conv(hidden, second, np.zeros(4, np.float32), name="y")})


def context(idle: bool) -> QuantizationContext:
    rng = np.random.default_rng(1)
    samples = [{"x": rng.standard_normal((1, 4, 8, 8)).astype(np.float32)} for _ in range(16)]
    return QuantizationContext(network(idle), samples, lambda op: SCHEMES["pow2"], methods=["mse"])


def test_what_nobody_reads_does_not_set_the_range() -> None:
    make_context = context(idle=True)
    start = make_context.start()
    found = OutputRanges().propose(start, make_context)
    assert found is not None and found.sqnr > start.sqnr + 4, (start.sqnr, found and found.sqnr)
    assert found.table["hidden"].threshold < 0.4 * start.table["hidden"].threshold
    assert found.table["hidden"].method == "output"


def test_what_matters_keeps_its_range() -> None:
    make_context = context(idle=False)
    start = make_context.start()
    found = OutputRanges().propose(start, make_context)
    assert found is None or found.table["hidden"].threshold >= 0.5 * start.table["hidden"].threshold
