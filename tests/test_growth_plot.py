"""The plot of compile time and memory is that of the results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def plot(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import growth_plot

    return growth_plot


def test_the_plot_is_made_of_the_results(plot: Any) -> None:
    results = json.loads(plot.RESULTS.read_text())
    assert {axis: tuple(map(int, points)) for axis, points in results.items()} == plot.POINTS
    assert plot.PLOT.read_text() == plot.drawing(results), "python benchmarks/growth_plot.py"


def test_time_grows_about_as_layers_do(plot: Any) -> None:
    layers = json.loads(plot.RESULTS.read_text())["layers"]
    first, last = (layers[str(plot.POINTS["layers"][at])] for at in (1, -1))
    assert last["seconds"] / first["seconds"] < 3 * plot.POINTS["layers"][-1] / plot.POINTS["layers"][1]
