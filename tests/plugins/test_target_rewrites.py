"""Rewrites of plugins for a machine: at their stage, for their targets, on a copy, and held to what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.codegen.compile_model import CompileOptions
from npuc.engine import FloatEngine
from npuc.errors import PluginFaultError
from npuc.flow import compile_network, quantize_network, quantize_on_data
from npuc.ir import Graph, print_graph
from npuc.plugins import load
from npuc.plugins.api import target_rewrite
from npuc.runtime import Runner
from npuc.target import load_target
from support.paths import PLUGINS

RNG = np.random.default_rng(3)
SAMPLES = [{"x": RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]


def network() -> Graph:
    """A convolution, a factor of one, a pool of one pixel, and a ReLU."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    y = lang.conv(lang.input("x", (1, 3, 8, 8)), weights, pads=1, name="conv")
    y = lang.max_pool(y * 1.0, kernel=1, strides=1, name="pool")
    return lang.build({"y": lang.relu(y, name="relu")})


def compiled(target: str) -> Any:
    machine = load_target(target)
    integers = quantize_on_data(network(), SAMPLES, None, machine, "max", correct=False)[0].graph
    return compile_network(integers, machine, CompileOptions(0)).model


@pytest.mark.parametrize(("target", "gone"), [("edge-4t", True), ("server-32t", False)])
def test_rewrites_are_for_their_targets(target: str, gone: bool) -> None:
    load(PLUGINS / "machine_rewrites.py")
    model = compiled(target)
    assert ("mul1" not in model.layers) == gone and ("pool" not in model.layers) == gone
    expected = FloatEngine(network()).run(SAMPLES[0])["y"]
    with Runner(model) as runner:
        got = runner.run(SAMPLES[0])["y"]
    assert np.abs(got - expected).max() < 0.1 * np.abs(expected).max()


def test_without_the_plugin_nothing_changes_and_the_network_is_left_alone() -> None:
    assert {"mul1", "pool"} <= set(compiled("edge-4t").layers)
    load(PLUGINS / "machine_rewrites.py")
    graph = network()
    before = print_graph(graph)
    quantize_on_data(graph, SAMPLES, None, load_target("edge-4t"), "max", correct=False)
    assert print_graph(graph) == before


def test_a_rewrite_that_breaks_its_promise_is_named() -> None:
    machine = load_target("edge-4t")
    ranges = {"x": (-3, 3), **dict.fromkeys(("conv", "mul1", "pool", "relu", "y"), (-9, 9))}
    integers = quantize_network(network(), ranges, None, machine).graph

    @target_rewrite("outputs")
    def outputs(graph: Graph, target: Any) -> None:
        graph.set_outputs([("other", graph.outputs[0].value)])

    with pytest.raises(PluginFaultError, match="'outputs' changes the inputs or outputs"):
        compile_network(integers, machine)

    @target_rewrite("outputs", replace=True)
    def fails(graph: Graph, target: Any) -> None:
        raise KeyError("what")

    with pytest.raises(PluginFaultError, match="what"):
        compile_network(integers, machine)
    with pytest.raises(PluginFaultError, match="the stage 'early'"):
        target_rewrite("x", stage="early")  # type: ignore[arg-type]
