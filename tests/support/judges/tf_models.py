"""The shared Keras and TensorFlow models, what to import of them and on which inputs; and the judge's own Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_model
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.flow import ImportOptions, quantize_network
from npuc.ir import Graph
from npuc.sim import Simulator
from npuc.target import load_target
from support.paths import ROOT

PYTHON = ROOT / "build" / "peers" / "tensorflow" / "bin" / "python"
"""A Python with TensorFlow and Keras, which `make peers-tensorflow` installs."""


@dataclass(frozen=True)
class Model:
    """A shared model: how it is imported, and what its inputs look like."""

    path: str
    options: ImportOptions = field(default_factory=ImportOptions)
    images: str = ""
    """The folder of data that its images come from; empty where there are none."""
    low: float = 0.0
    high: float = 1.0
    """The natural range of random inputs."""

    def samples(self, shared: Path, graph: Graph, count: int) -> list[dict[str, Array]]:
        """Inputs: real images where there are some."""
        (port,) = graph.inputs
        shape = tuple(random_inputs(graph)[port.name].shape)
        if not self.images:
            rng = np.random.default_rng(11)
            return [
                {port.name: rng.uniform(self.low, self.high, shape).astype(np.float32)} for _ in range(count)
            ]
        files = sorted((shared / "data" / self.images).rglob("*.[jp]*g"))[:count]
        if not files:
            pytest.skip(f"the images of {self.images} are not here")
        size = (shape[2], shape[1])
        pixels = [np.asarray(Image.open(file).convert("RGB").resize(size), np.float32) for file in files]
        return [{port.name: (image * (self.high / 255.0))[None]} for image in pixels]


def _begins(name: str, *shape: int) -> ImportOptions:
    return ImportOptions(inputs=(name,), input_shapes={name: shape})


# The speech networks of ARM begin with the bytes of a .wav file; what they compute begins with its spectrum.
MODELS = {
    "resnet8": Model("keras/resnet8.h5", images="cifar10", high=255.0),
    "vww": Model("keras/vww.h5", images="coco"),
    "ad": Model("keras/ad.h5", low=-60.0, high=20.0),
    "cnn_s": Model("tensorflow/cnn_s.pb", _begins("Mfcc", 1, 49, 10), low=-30.0, high=30.0),
    "ds_cnn_s": Model("tensorflow/ds_cnn_s.pb", _begins("Mfcc", 1, 49, 10), low=-30.0, high=30.0),
    "lstm_s": Model("tensorflow/lstm_s.pb", _begins("Mfcc", 1, 25, 10), low=-30.0, high=30.0),
    "kws_savedmodel": Model("tensorflow/kws_savedmodel", low=-60.0, high=60.0),
}


def path_of(shared: Path, name: str) -> Path:
    """A shared model, or a skip where it is absent."""
    path = shared / "models" / MODELS[name].path
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    return path


def judge_python() -> str:
    """The judge's Python, or a skip that says how to get it."""
    if not PYTHON.is_file():
        pytest.skip("TensorFlow, the judge, is not here: 'make peers-tensorflow' installs it")
    return str(PYTHON)


def judged(jobs: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Let the judge run models on inputs, all in one process: TensorFlow takes long to start."""
    table = folder / "jobs.json"
    table.write_text(json.dumps(list(jobs)))
    script = Path(__file__).with_name("tf_judge.py")
    done = subprocess.run(
        [judge_python(), str(script), str(table)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]


def cosine(a: Array, b: Array) -> float:
    """Of the angle between two tensors of one shape."""
    assert a.shape == b.shape, (a.shape, b.shape)
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    size = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / size) if size else float(np.array_equal(x, y))


def require_equal_modes(graph: Graph, inputs: Mapping[str, Array]) -> None:
    """Quantize, compile for edge-4t, and compare instruction mode with graph mode to the bit."""
    values = {**inputs, **FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(inputs)}
    ranges = {
        name: (float(value.min()), float(value.max()))
        for name, value in values.items()
        if value.dtype == np.float32 and value.size and np.isfinite(value).all()
    }
    target = load_target("edge-4t")
    integers = quantize_network(graph, ranges, target=target).graph
    expected = IntegerEngine(integers, threads=1).run(inputs)
    simulated = Simulator(compile_model(integers, target, level=1), 1).run(inputs)
    for name, value in expected.items():
        assert simulated[name].dtype == value.dtype and np.array_equal(simulated[name], value), name
