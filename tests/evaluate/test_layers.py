"""Layer by layer: figures, isolation, and the plot."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from npuc.calib.samples import Batch
from npuc.compare.layer_plot import plot
from npuc.compare.layers import LayerError, compare_layers, worst_first
from npuc.errors import CompareError
from npuc.ir import Graph, tensor_type, top
from npuc.quant import quantize

RANGES = {"x": (-1.0, 1.0), "a": (-1.0, 1.0), "b": (0.0, 1.0), "c": (0.0, 1.0)}


@pytest.fixture
def network() -> Graph:
    """x -> tanh a -> relu b -> tanh c"""
    graph = Graph.empty([("x", tensor_type((2, 8), "f32"))])
    value = graph.inputs[0].value
    for kind, name in ((top.Tanh, "a"), (top.Relu, "b"), (top.Tanh, "c")):
        op: Any = kind.make(value, name=name)
        graph.block.add_op(op)
        value = op.y
    graph.set_outputs([("c", value)])
    return graph


@pytest.fixture
def batches() -> list[Batch]:
    random = np.random.default_rng(0)
    return [Batch({"x": random.uniform(-1, 1, (2, 8)).astype(np.float32)}) for _ in range(3)]


def by_name(found: list[LayerError]) -> dict[str, LayerError]:
    return {entry.name: entry for entry in found}


def test_every_layer_has_figures_in_order(network: Graph, batches: list[Batch]) -> None:
    found = compare_layers(network, quantize(network, RANGES), batches)
    assert [entry.name for entry in found] == ["a", "b", "c"]
    for entry in found:
        assert entry.type == "i8" and 30 < entry.accumulated.sqnr < 70 and entry.accumulated.cosine > 0.999
        assert entry.accumulated.max_error < 0.02 and entry.isolated is None and entry.saturation < 0.05


def test_the_isolated_error_blames_the_layer_that_is_bad(network: Graph, batches: list[Batch]) -> None:
    # The range of b is far too narrow: b saturates, and c inherits the error without making one.
    found = by_name(
        compare_layers(network, quantize(network, {**RANGES, "b": (0.0, 0.3)}), batches, isolated=True)
    )
    isolated = {name: entry.isolated.sqnr for name, entry in found.items() if entry.isolated is not None}
    assert isolated["b"] < 15 < 30 < isolated["a"]
    assert found["c"].accumulated.sqnr < 15
    assert found["b"].saturation > 0.2 and found["b"].range_use == pytest.approx(1.0)
    assert worst_first(found.values(), "isolated")[0].name == "b"
    assert worst_first(found.values(), "saturation")[0].name == "b"


def test_a_range_that_is_too_wide_shows_as_little_use(network: Graph, batches: list[Batch]) -> None:
    found = by_name(compare_layers(network, quantize(network, {**RANGES, "a": (-100.0, 100.0)}), batches))
    assert found["a"].range_use < 0.02 and found["a"].saturation == 0


def test_the_padding_of_a_batch_does_not_count(network: Graph) -> None:
    # The second row is padding, far outside every range.
    x = np.stack([np.linspace(-1, 1, 8), np.full(8, 1e6)]).astype(np.float32)
    made = quantize(network, {**RANGES, "x": (-1.0, 1.0)})
    kept = by_name(compare_layers(network, made, [Batch({"x": x}, keep=1)], isolated=True))
    assert kept["a"].accumulated.sqnr > 30
    assert kept["a"].isolated is not None and kept["a"].isolated.sqnr > 30


def test_a_float_layer_has_no_integers(network: Graph, batches: list[Batch]) -> None:
    made = quantize(network, RANGES, lambda op: None if op.location == _loc(network, "b") else _int8())
    found = by_name(compare_layers(network, made, batches, isolated=True))
    assert found["b"].type == "f32" and found["b"].isolated is None


def _loc(graph: Graph, name: str) -> Any:
    value: Any = graph.find(name)
    return value.owner.location


def _int8() -> Any:
    from npuc.quant import SCHEMES

    return SCHEMES["int8"]


def test_networks_without_a_common_name_are_refused(network: Graph) -> None:
    other = Graph.empty([("x", tensor_type((2, 8), "f32"))])
    op = top.Tanh.make(other.inputs[0].value, name="other")
    other.block.add_op(op)
    other.set_outputs([("other", op.y)])
    with pytest.raises(CompareError, match="no tensor name in common"):
        compare_layers(network, quantize(other, {"x": (-1, 1), "other": (-1, 1)}), [])


def test_the_plot_is_an_svg_with_a_point_for_each_figure(network: Graph, batches: list[Batch]) -> None:
    found = compare_layers(network, quantize(network, RANGES), batches, isolated=True)
    root = ElementTree.fromstring(plot(found, "a < b & c"))
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 6
    assert all(0 <= float(circle.attrib["cy"]) <= 320 for circle in circles)
    assert ElementTree.fromstring(plot([])).tag.endswith("svg")


def test_extreme_figures_stay_in_the_plot(network: Graph) -> None:
    from npuc.compare.layers import TensorFigures

    layers = [
        LayerError("x", "x", "npu.conv", "i8", TensorFigures(1.0, value, 0.0))
        for value in (math.inf, -math.inf, 40.0)
    ]
    root = ElementTree.fromstring(plot(layers))
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 3 and all(0 <= float(c.attrib["cy"]) <= 320 for c in circles)
