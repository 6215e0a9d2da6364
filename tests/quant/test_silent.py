"""A step that a mask hid in all of the calibration data works on data where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import quantize_on_data
from npuc.ir import Graph, top
from support.graphs import build


def _masked(turned: bool) -> Graph:
    rng = np.random.default_rng(0)
    first, second, third = (rng.normal(size=(16, 16)).astype(np.float32) / 4 for _ in range(3))

    def network(b: Any, x: Any, mask: Any) -> Any:
        """What a Where of two states becomes: state * mask + other * (not mask)."""
        state, other = (b(top.MatMul, x, w, name=n) for w, n in ((first, "state"), (second, "other")))
        real = b(top.Cast, mask, name="real", to="f32")
        rest = b(top.Cast, b(top.Not, mask, name="not"), name="rest", to="f32")
        kept = b(top.Mul, *((real, state) if turned else (state, real)), name="kept")
        moved = b(top.Reshape, kept, name="moved", shape=(1, 16))
        chosen = b(top.Add, moved, b(top.Mul, other, rest, name="left"), name="chosen")
        return b(top.MatMul, chosen, third, name="y")

    return build({"x": [1, 16], "mask": ([1, 1], "i1")}, network)


def _samples(seed: int, mask: bool, count: int = 40) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    full = np.full((1, 1), mask)
    return [{"x": rng.normal(size=(1, 16)).astype(np.float32), "mask": full} for _ in range(count)]


@pytest.mark.parametrize("turned", [False, True])
def test_a_hidden_product_has_the_range_of_what_is_hidden(turned: bool) -> None:
    graph = _masked(turned)
    done, table = quantize_on_data(graph, open_data(graph, _samples(0, False)), widen=False, threads=1)
    assert (table["real"].min, table["real"].max) == (0, 1)
    assert (table["kept"].min, table["kept"].max) == (table["state"].min, table["state"].max)
    exact, integer = FloatEngine(graph, threads=1), IntegerEngine(done.graph)
    for sample in (*_samples(1, False, 4), *_samples(2, True, 4)):
        (true,), (made,) = exact.run(sample).values(), integer.run(sample).values()
        assert np.square(made - true).sum() < 0.01 * np.square(true).sum()
