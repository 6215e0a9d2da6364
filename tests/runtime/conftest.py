"""The demo network, compiled in the forms that the runtime has to serve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.sources import random_data
from npuc.codegen.compile_model import CompileOptions, compile_model, compile_program
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.frontend.onnx import ImportOptions
from npuc.ir import Graph
from npuc.program.model import CompiledModel
from npuc.target import load_target

TARGET = load_target("edge-1t")


def quantized(root: Path, batch: int = 1) -> Graph:
    options = ImportOptions(input_shapes={"image": (batch, 1, 8, 8)})
    graph = network_to_quantize(root / "examples/digits.onnx", options)
    ranges = ranges_from(graph, random_data(graph, 4, 0), schemes_of(graph, None, TARGET), "max")
    return quantize_network(graph, ranges, None, TARGET).graph


@pytest.fixture(scope="session")
def graph(root: Path) -> Graph:
    return quantized(root)


@pytest.fixture(scope="session")
def model(graph: Graph) -> CompiledModel:
    """Reals in and out, all layers on the NPU."""
    return compile_model(graph, TARGET, level=1, name="digits")


@pytest.fixture(scope="session")
def batched(root: Path) -> CompiledModel:
    """The same for four images at a time."""
    return compile_model(quantized(root, batch=4), TARGET, level=1)


@pytest.fixture(scope="session")
def mixed(graph: Graph) -> CompiledModel:
    """A layer in the middle runs on the CPU."""
    options = CompileOptions(1, {"pool": "cpu"}, island_threshold=0)
    return compile_program(graph, TARGET, options).model


@pytest.fixture(scope="session")
def integers(graph: Graph) -> CompiledModel:
    """Integers in and out: the network without its conversions."""
    graph = graph.copy()
    (argument,) = graph.block.args
    (use,) = argument.uses
    first, last = use.operation, graph.outputs[0].value.owner
    graph.set_outputs([("logits", last.operands[0])])
    last.detach()
    graph.set_inputs([("image", first.results[0].type, None)])
    first.results[0].replace_all_uses_with(argument)
    first.detach()
    graph.refresh_signature()
    graph.verify()
    return compile_model(graph, TARGET, level=1)


@pytest.fixture(scope="session")
def images(root: Path) -> Array:
    """Handwritten digits, N x 1 x 8 x 8."""
    with np.load(root / "examples/digits_samples.npz") as samples:
        found: Array = samples["image"].astype(np.float32)
    return found


@pytest.fixture(scope="session")
def expected(model: CompiledModel, images: Array) -> Array:
    """The outputs of the first ones, by the simulator alone."""
    from npuc.sim import Simulator

    simulator = Simulator(model)
    return np.concatenate([simulator.run({"image": one[None]})["logits"] for one in images[:32]])
