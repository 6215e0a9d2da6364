"""Weights clipped to stated ranges before they are quantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuc.errors import UnknownTensorError
from npuc.flow import import_model
from npuc.ir import Graph
from npuc.quant.clipping import clip_weights
from support.networks.small_onnx import image_model


def weights(graph: Graph, name: str) -> np.ndarray:
    value = graph.find(name)
    assert value is not None
    array = graph.constant(value.owner.operands[1])
    assert array is not None
    return array


def test_weights_are_clipped_and_nothing_is_stretched(tmp_path: Path) -> None:
    onnx.save(image_model(), str(tmp_path / "net.onnx"))
    graph = import_model(tmp_path / "net.onnx")
    before = weights(graph, "r").copy()
    clipped = clip_weights(graph, {"r": (-0.5, 0.25)})
    assert np.array_equal(weights(clipped, "r"), np.clip(before, -0.5, 0.25))
    assert np.array_equal(weights(graph, "r"), before), "the network that was given has changed"
    assert np.array_equal(weights(clip_weights(graph, {"r": (-99.0, 99.0)}), "r"), before)
    most = np.array([0.1, 0.2, 0.3, 0.4])
    by_channel = weights(clip_weights(graph, {"r": (-most, most)}), "r")
    assert np.allclose(np.abs(by_channel).reshape(4, -1).max(axis=1), most)
    for name in ("p", "nothing"):
        with pytest.raises(UnknownTensorError):
            clip_weights(graph, {name: (0.0, 1.0)})
