"""Scales of weights that are stated take the place of those of the weights' maxima."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuc.errors import QuantizationError, UnknownTensorError
from npuc.flow import import_model, quantize_network
from npuc.ir import Graph, npu, result_names
from npuc.quant.config import QuantizationConfig
from support.networks.small_onnx import image_model


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    onnx.save(image_model(), str(tmp_path / "net.onnx"))
    return import_model(tmp_path / "net.onnx")


def integers(
    graph: Graph, scales: dict[str, np.ndarray] | None, **options: object
) -> tuple[np.ndarray, np.ndarray]:
    ranges = {name: (-4.0, 4.0) for name in [*graph.tensor_names(), *(port.name for port in graph.inputs)]}
    config = QuantizationConfig(scheme="int8-symmetric", options=options)
    quantized = quantize_network(graph, ranges, config, weight_scales=scales).graph
    op = next(op for op in quantized.ops if isinstance(op, npu.Conv) and result_names(op)[0] == "r")
    values, scale = quantized.constant(op.weight), quantized.constant(op.weight_scale)
    assert values is not None and scale is not None
    return values, scale


def test_the_integers_are_those_of_the_stated_scales(graph: Graph) -> None:
    value = graph.find("r")
    assert value is not None
    real = np.asarray(graph.constant(value.owner.operands[1]), np.float64)
    stated = np.array([0.01, 0.02, 0.004, 0.05])
    values, scale = integers(graph, {"r": stated})
    assert np.allclose(scale, stated, rtol=1e-6)
    steps = stated.astype(np.float32).astype(np.float64).reshape(-1, 1, 1, 1)
    assert np.array_equal(values, np.clip(np.rint(real / steps), -127, 127))
    assert not np.array_equal(values, integers(graph, None)[0])
    assert np.allclose(integers(graph, {"r": np.array([0.03])})[1], 0.03)


def test_what_cannot_be_stated(graph: Graph) -> None:
    with pytest.raises(UnknownTensorError, match="no layer 'nothing' with weights"):
        integers(graph, {"nothing": np.array([0.1])})
    with pytest.raises(QuantizationError, match="4 output channels, and 3 scales"):
        integers(graph, {"r": np.full(3, 0.1)})
    with pytest.raises(QuantizationError, match="not above 0"):
        integers(graph, {"r": np.array([0.0])})
    with pytest.raises(QuantizationError, match="one scale for all weights"):
        integers(graph, {"r": np.array([0.1, 0.2, 0.1, 0.1])}, per_channel=False)
