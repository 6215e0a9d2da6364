"""Python layers of Caffe, from a file that is loaded as a plugin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import npuc.plugins
from npuc.engine import FloatEngine
from npuc.errors import NpucError, PluginError
from npuc.flow import import_model
from npuc.registries import isolated

LAYER = """
import caffe


class Scaled(caffe.Layer):
    def setup(self, bottom, top):
        self.factor = float(self.param_str)

    def reshape(self, bottom, top):
        top[0].reshape(bottom[0].num, bottom[0].channels, bottom[0].height)
        top[1].reshape(1, bottom[0].count)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data.sum(axis=3) * self.factor
        top[1].data[...] = bottom[0].data.reshape(1, -1)
"""
NETWORK = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 3 dim: 4 } } }
layer { name: "own" type: "Python" bottom: "data" top: "sums" top: "flat"
        python_param { module: "layers" layer: "Scaled" param_str: "2.5" } }
layer { name: "relu" type: "ReLU" bottom: "sums" top: "relu" }
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "net.prototxt").write_text(NETWORK)
    with isolated():
        yield tmp_path / "net.prototxt"


def test_setup_reshape_and_forward_are_the_layer(network: Path) -> None:
    (network.parent / "layers.py").write_text(LAYER)
    npuc.plugins.load(network.parent / "layers.py", installed=False)
    assert "caffe" not in sys.modules
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    results = FloatEngine(import_model(network)).run({"data": x})
    assert np.allclose(results["relu"], np.maximum(x.sum(axis=3) * 2.5, 0), atol=1e-6)
    assert np.array_equal(results["flat"], x.reshape(1, -1))


def test_a_layer_that_gives_a_top_no_shape_is_told(network: Path) -> None:
    (network.parent / "half.py").write_text(LAYER.replace("        top[1].reshape(1, bottom[0].count)\n", ""))
    npuc.plugins.load(network.parent / "half.py", installed=False)
    with pytest.raises(PluginError, match="Scaled gives top 1 no shape"):
        import_model(network)


def test_what_the_layer_raises_names_the_file(network: Path) -> None:
    (network.parent / "wrong.py").write_text(LAYER.replace("float(self.param_str)", "self.param_str.no"))
    npuc.plugins.load(network.parent / "wrong.py", installed=False)
    with pytest.raises((NpucError, AttributeError), match="no"):
        import_model(network)
