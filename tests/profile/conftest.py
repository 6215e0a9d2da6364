"""The demo network, compiled for two machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.calib.sources import random_data
from npuc.codegen.compile_model import compile_model
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.program.model import CompiledModel
from npuc.target import load_target


@pytest.fixture(scope="module", params=["edge-4t", "server-32t"])
def compiled(root: Path, request: pytest.FixtureRequest) -> CompiledModel:
    target = load_target(request.param)
    graph = network_to_quantize(root / "examples/digits.onnx")
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, target), "max")
    return compile_model(quantize_network(graph, ranges, None, target).graph, target, name="digits")
